#include "cli/view/overview_text.hpp"

#include <gtest/gtest.h>

#include "cli/machine/doctor_checks.hpp"
#include "cli/view/samples.hpp"

namespace aliquot::cli {
namespace {

using namespace samples;

const Looking kRoot{0, "root", kNow};

TEST(Overview, ShowsTheStateOfThings) {
  use_utc();
  auto info = cluster();
  info.simulated = true;
  auto other = running(2, "theirs");
  other.uid = 1'000;
  auto waits = job(4, "big", "Resources");
  waits.start_ms = *running(1, "train").start_ms + minutes(10).value();
  EXPECT_EQ(format_status(info, {running(1, "train"), other, waits}, kRoot, Paint(false)),
            R"(GPUs 2/4 in use · 2 free · 4 x h100 (simulated) on localhost
  gpu0  [##########]   80G/80G      0% busy  jobs 1 (whole)
  gpu1  [##########]   80G/80G      0% busy  jobs 2 (whole)
  gpu2  [..........]     0/80G      0% busy  jobs -
  gpu3  [..........]     0/80G      0% busy  jobs -
root: using 1 of 4 GPUs (no limit) · 1 running, 1 waiting
  JOB          NAME           STATE            TIME  GPUS                     UNTIL / WHY
  1            train          RUNNING          0:29  gpu0:whole               ends by 2026-11-15T06:54:06
  4            big            PENDING          0:00  gpu:1                    expected 2026-11-15T06:54:06; Resources
others: using 1 GPU · 1 running, 0 waiting
)");
}

TEST(Overview, NamesTheLimit) {
  auto info = cluster();
  info.config["MaxGpusPerUser"] = "4";
  auto share = running(1, "share");
  share.gpus[0].whole = false;
  share.gpus[0].compute = 2'500;
  const auto text =
      format_status(info, {share, running(2, "b"), running(3, "c")}, kRoot, Paint(true));
  EXPECT_NE(text.find("using 2.25/4 GPUs allowed"), text.npos);
  EXPECT_NE(text.find("\x1b[1m"), text.npos);
  info.config["GpusCountedPerUser"] = "2.5";
  EXPECT_NE(format_status(info, {share}, kRoot, Paint(false)).find("using 2.5/4 GPUs allowed"),
            text.npos);
}

TEST(Overview, ALimitThatCountsAPartIsNotTheLimit) {
  auto info = cluster();
  info.config["PartialGpuLimit"] = "gres/gpu=4 of QOS lab counts whole GPUs only";
  const auto text = format_status(info, {running(1, "a")}, kRoot, Paint(false));
  EXPECT_NE(text.find("using 1 of 4 GPUs (gres/gpu=4 of QOS lab counts whole GPUs only)"),
            text.npos);
}

TEST(Overview, GpusOfNodesThatTakeNoJobsAreNotFree) {
  auto info = cluster();
  auto node = info.node;
  node.name = "n1";
  info.nodes = {node, node, node};
  info.nodes[1].name = "n2";
  info.nodes[1].state = "draining";
  info.nodes[2].name = "n3";
  info.nodes[2].state = "down";
  const auto text = format_status(info, {}, kRoot, Paint(false));
  EXPECT_EQ(
      text.substr(0, text.find('\n')),
      "GPUs 6/12 in use · 2 free · 4 down or drained · free nodes 0/3 · 12 x h100 on 3 nodes");
}

TEST(Overview, ShowsEachGpuAndWhoIsOutsideTheQueue) {
  auto info = cluster();
  info.node.gpus.resize(1);
  info.node.gpus[0].simulated = true;
  info.node.gpus[0].processes = {{4'711, "eve", "python", gib(2).value(), std::nullopt}};
  const auto text = format_gpus(info, {running(1, "train")}, Paint(false));
  EXPECT_EQ(
      text,
      "GPU   MODEL              MEMORY                   COMPUTE                   BUSY  JOBS\n"
      "0     h100 (simulated)   [##########] 80G/80G     [##########] 100/100%       0%  1 "
      "(whole)\n"
      "      job 1 root train: the whole GPU\n"
      "      outside the queue: pid 4711 eve python 2G\n");
}

// A cluster of Kubernetes: two GPUs, four pods, one of which waits in another namespace.
api::Overview kubernetes() {
  api::Overview all;
  all.cluster.engine = "kubernetes";
  all.cluster.config["Namespace"] = "team";
  auto node = cluster().node;
  node.name = "n1";
  node.gpus.resize(2);
  node.gpus[0].whole = false;
  node.gpus[0].jobs = {1, 2};
  node.gpus[0].memory_granted = gib(20).value();
  node.gpus[0].compute_granted = 2'500;
  node.gpus[0].processes = {{0, "", "", gib(3).value(), std::nullopt},
                            {0, "team", "main", gib(1).value(), 1}};
  node.gpus[1].jobs = {3};
  all.cluster.nodes = {node};
  for (std::int64_t id = 1; id <= 4; ++id) {
    auto job = id == 4 ? small(id, "big", "Unschedulable") : running(id, "train");
    job.pod = fmt::format("{}/{}-{}", id == 3 ? "other" : "team", job.name, id);
    job.user = id == 3 ? "other" : "team";
    job.uid = 77;
    job.time_limit_ms.reset();
    if (id < 3) job.gpus = {{0, "", "h100", gib(10).value(), 1'250, false, "n1", "main"}};
    if (id == 3) job.gpus = {{1, "", "h100", gib(80).value(), 10'000, true, "n1", "c"}};
    if (id == 4) job.gres = "50G";
    if (id == 4) job.reason_detail = "0/1 nodes are available";
    all.jobs.push_back(job);
  }
  return all;
}

TEST(Overview, ShowsPodsOfANamespace) {
  use_utc();
  const auto all = kubernetes();
  EXPECT_EQ(format_status(all.cluster, all.jobs, kRoot, Paint(false)),
            R"(GPUs 2/2 in use · 0 free · free nodes 0/1 · 2 x h100 on 1 node
  n1 gpu0  [###.......]   20G/80G      0% busy  pods team/train-1,team/train-2  + processes of no pod
  n1 gpu1  [##########]   80G/80G      0% busy  pods other/train-3 (whole)
namespace team: using 0.25 of 2 GPUs (no limit) · 2 running, 1 waiting
  POD          STATE             TIME  GPUS                     WHY
  team/train-1 RUNNING           0:29  n1/gpu0:10G,12.5%        
  team/train-2 RUNNING           0:29  n1/gpu0:10G,12.5%        
  team/big-4   PENDING           0:00  50G                      0/1 nodes are available
others: using 1 GPU · 1 running, 0 waiting
)");
  const auto gpus = format_gpus(all.cluster, all.jobs, Paint(false));
  EXPECT_NE(gpus.find("      pod team/train-1 main: 10G, 12.5% of compute\n"), gpus.npos) << gpus;
  EXPECT_NE(gpus.find("      pod other/train-3 c: the whole GPU\n"), gpus.npos) << gpus;
  EXPECT_NE(gpus.find("      processes of no pod: 3G\n"), gpus.npos) << gpus;
}

TEST(Overview, ShowsAllPodsWhereNoNamespaceIsMeant) {
  auto all = kubernetes();
  all.cluster.config["Namespace"].clear();
  all.cluster.config["NotSeen"] = "You may not do this.\nNor that.";
  const auto text = format_status(all.cluster, all.jobs, kRoot, Paint(false));
  EXPECT_NE(text.find("all namespaces: using 1.25 of 2 GPUs"), text.npos) << text;
  EXPECT_EQ(text.find("others:"), text.npos) << text;
  EXPECT_TRUE(text.ends_with("You may not do this.\nNor that.\n")) << text;
  // Nobody who may see no nodes reads that there are none.
  all.cluster.nodes.clear();
  EXPECT_FALSE(format_status(all.cluster, all.jobs, kRoot, Paint(false)).starts_with("GPUs"));
  EXPECT_EQ(format_gpus(all.cluster, {}, Paint(false)), "You may not do this.\nNor that.\n");
}

TEST(Overview, ManyPodsAreCounted) {
  api::GpuInfo gpu;
  std::vector<api::JobInfo> jobs(5);
  for (std::size_t i = 0; i < jobs.size(); ++i) {
    jobs[i].id = static_cast<std::int64_t>(i) + 1;
    jobs[i].pod = fmt::format("n/p{}", i);
    gpu.jobs.push_back(jobs[i].id);
  }
  EXPECT_EQ(jobs_on(gpu, by_id(jobs)), "n/p0,n/p1,n/p2,+2");
  EXPECT_EQ(jobs_on(gpu, {}), "1,2,3,4,5");
}

TEST(Overview, DrawsBars) {
  EXPECT_EQ(bar(0, 10), "[..........]");
  EXPECT_EQ(bar(1, 1'000), "[#.........]");
  EXPECT_EQ(bar(5, 10), "[#####.....]");
  EXPECT_EQ(bar(50, 10), "[##########]");
  EXPECT_EQ(bar(1, 0), "[#.........]");
  EXPECT_EQ(gpu_count(12'500), "1.25");
  EXPECT_EQ(gpu_count(10'000), "1");
}

TEST(Overview, ShowsNoMoreMemoryThanThereIs) {
  EXPECT_EQ(gib_text(mib(143'156).value()), "139G");
  EXPECT_EQ(gib_text((gib(10) - mib(1)).value()), "9.9G");
  EXPECT_EQ(gib_text(mib(1'536).value()), "1.5G");
  EXPECT_EQ(gib_text(gib(8).value()), "8G");
  EXPECT_EQ(gib_text(mib(512).value()), "512M");
}

TEST(Overview, TellsWhyOfTheIdThatWasAsked) {
  EXPECT_EQ(format_why({8, "RUNNING", "None", {}, std::nullopt}, "7_1", kNow, Paint(false)),
            "job 7_1 is RUNNING\n");
}

TEST(Overview, TellsWhyOfAPod) {
  EXPECT_EQ(format_why({0, "PENDING", "Unschedulable", {"It asks."}, std::nullopt, "team/train"},
                       "last", kNow, Paint(false)),
            "pod team/train is PENDING (Unschedulable)\n  It asks.\n");
}

TEST(Overview, TellsWhy) {
  use_utc();
  EXPECT_EQ(format_why({7, "PENDING", "Resources", {"No GPU has 8 GiB free."}, kNow.ms() + 90'000},
                       "last", kNow, Paint(false)),
            "job 7 is PENDING (Resources)\n  No GPU has 8 GiB free.\n"
            "  earliest start: 2026-11-15T06:46:05, in 1:30\n");
}

TEST(Doctor, SaysWhatHoldsShares) {
  auto info = cluster();
  info.enforcement = {{"mps", true, "one server for each user and GPU"},
                      {"library", false, "there is no /x/libaliquot.so"}};
  const auto checks = check_daemon(info);
  EXPECT_TRUE(all_well(checks));
  EXPECT_EQ(checks[1].name, "holds: mps");
  EXPECT_EQ(checks[1].level, Check::Level::ok);
  EXPECT_EQ(checks[2].level, Check::Level::warn);
  EXPECT_EQ(checks[2].finding, "not used: there is no /x/libaliquot.so");
}

TEST(Doctor, SaysWhatToDo) {
  const auto down =
      check_daemon(tl::make_unexpected(api::ErrorInfo{std::string(kUnreachable), ""}));
  EXPECT_FALSE(all_well(down));
  EXPECT_EQ(format_checks(down, Paint(false)),
            "fail  daemon             no daemon answers\n"
            "                         -> start it: aliquot up\n");
  auto info = cluster();
  info.node.gpus[0].processes = {{4'711, "eve", "python", 1, std::nullopt}};
  const auto up = check_daemon(info);
  EXPECT_TRUE(all_well(up));
  EXPECT_EQ(up[1].level, Check::Level::warn);
  EXPECT_EQ(up[1].finding, "1 on GPUs outside the queue, such as pid 4711 of eve on gpu0");
  EXPECT_NE(checks_json(up).find("\"well\": true"), std::string::npos);
}

}  // namespace
}  // namespace aliquot::cli
