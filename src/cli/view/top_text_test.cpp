#include "cli/view/top_text.hpp"

#include <gtest/gtest.h>

#include "cli/view/samples.hpp"

namespace aliquot::cli {
namespace {

using namespace samples;

const Looking kRootLooks{0, "root", kNow};

// Two nodes of two GPUs; job 1 is alone on n1/gpu0, 2 and 3 share n1/gpu1, n2 says nothing.
api::Overview slurm_cluster() {
  api::Overview overview;
  overview.cluster.engine = "slurm";
  for (const auto* name : {"n1", "n2"}) {
    api::NodeInfo node;
    node.name = name;
    node.state = "idle";
    for (std::int64_t i = 0; i < 2; ++i) {
      api::GpuInfo gpu;
      gpu.index = i;
      gpu.model = "h200";
      gpu.memory = gib(140).value();
      gpu.stale = node.name == "n2";
      node.gpus.push_back(gpu);
    }
    overview.cluster.nodes.push_back(node);
  }
  auto& n1 = overview.cluster.nodes[0];
  n1.state = "mixed";
  n1.gpus[0].jobs = {1};
  n1.gpus[0].whole = true;
  n1.gpus[0].memory_granted = gib(140).value();
  n1.gpus[0].memory_used = gib(12).value();
  n1.gpus[0].utilisation = 3'500;
  n1.gpus[1].jobs = {2, 3};
  n1.gpus[1].memory_granted = gib(70).value();
  n1.gpus[1].utilisation = 9'500;
  for (std::int64_t id = 1; id <= 3; ++id) {
    auto one = running(id, "train");
    one.gpus = {{id == 1 ? 0 : 1, "", "h200", gib(id == 1 ? 140 : 35).value(),
                 id == 1 ? 10'000 : 2'500, id == 1, "n1"}};
    overview.jobs.push_back(one);
  }
  return overview;
}

TEST(Top, ShowsGpusAndJobs) {
  use_utc();
  EXPECT_EQ(
      format_top(slurm_cluster(), kRootLooks, Paint(false)),
      "06:44:35 · GPUs 2/4 in use · 2 free · free nodes 1/2 · 4 x h200 on 2 nodes · 3 "
      "running, 0 waiting\n"
      "  n1 gpu0  busy [####......]  35%  granted [##########]  140G/140G  used   12G  jobs 1 "
      "(whole)\n"
      "  n1 gpu1  busy [##########]  95%  granted [#####.....]   70G/140G  used     0  jobs "
      "2,3\n"
      "  n2 gpu0  busy [..........]    ?  granted [..........]     0/140G  used     ?  jobs -\n"
      "  n2 gpu1  busy [..........]    ?  granted [..........]     0/140G  used     ?  jobs -\n"
      "\n"
      "  JOB          USER       NAME                  TIME  BUSY   USED  SHARE\n"
      "  1            root       train                 0:29   35%    12G  n1/gpu0:whole\n"
      "  2            root       train                 0:29     -      -  n1/gpu1:35G,25%\n"
      "  3            root       train                 0:29     -      -  n1/gpu1:35G,25%\n");
}

TEST(Top, MeasuresWhatIsTheJobsOwn) {
  auto overview = slurm_cluster();
  EXPECT_EQ(use_of(overview.jobs[0], overview.cluster).utilisation, 3'500);
  EXPECT_FALSE(use_of(overview.jobs[1], overview.cluster).utilisation);
  overview.cluster.nodes[0].gpus[1].processes = {{7, "root", "x", gib(2).value(), 2},
                                                 {8, "root", "y", gib(1).value(), 2},
                                                 {9, "root", "z", gib(4).value(), 3}};
  overview.jobs[1].gpu_utilisation = 1'200;
  EXPECT_EQ(use_of(overview.jobs[1], overview.cluster).memory, gib(3).value());
  EXPECT_EQ(use_of(overview.jobs[1], overview.cluster).utilisation, 1'200);
  EXPECT_EQ(use_of(overview.jobs[2], overview.cluster).memory, gib(4).value());
}

TEST(Top, WorksOnOneMachine) {
  use_utc();
  api::Overview overview{cluster(), {running(1, "train")}};
  const auto text = format_top(overview, kRootLooks, Paint(false));
  EXPECT_NE(text.find("GPUs 2/4 in use · 2 free · 4 x h100 on localhost"), text.npos) << text;
  EXPECT_NE(text.find("  gpu0  busy"), text.npos);
}

TEST(Top, IsCutToTheScreen) {
  EXPECT_EQ(clip("abc\ndef\nghi\n", 2, 2), "ab\nde\n");
  EXPECT_EQ(clip("\x1b[1mabc\x1b[0m\n", 1, 2), "\x1b[1mab\x1b[0m\n");
  EXPECT_EQ(clip("a·c\n", 1, 2), "a·\n");
  EXPECT_EQ(clip("abc", 5, 10), "abc");
  EXPECT_EQ(clip("\x1b[1", 5, 10), "");
}

TEST(Overview, OfAClusterNamesNodes) {
  use_utc();
  auto overview = slurm_cluster();
  overview.cluster.config["MaxGpusPerUser"] = "4";
  EXPECT_EQ(format_status(overview.cluster, overview.jobs, kRootLooks, Paint(false)),
            R"(GPUs 2/4 in use · 2 free · free nodes 1/2 · 4 x h200 on 2 nodes
  n1 gpu0  [##########]  140G/140G    35% busy  jobs 1 (whole)
  n1 gpu1  [#####.....]   70G/140G    95% busy  jobs 2,3
  n2 gpu0  [..........]     0/140G      ? busy  jobs -
  n2 gpu1  [..........]     0/140G      ? busy  jobs -
root: using 1.5/4 GPUs allowed · 3 running, 0 waiting
  JOB          NAME           STATE            TIME  GPUS                     UNTIL / WHY
  1            train          RUNNING          0:29  n1/gpu0:whole            ends by 2026-11-15T06:54:06
  2            train          RUNNING          0:29  n1/gpu1:35G,25%          ends by 2026-11-15T06:54:06
  3            train          RUNNING          0:29  n1/gpu1:35G,25%          ends by 2026-11-15T06:54:06
)");
  overview.cluster.nodes[1].state = "down";
  overview.cluster.nodes[1].reason = "fan";
  const auto text = format_status(overview.cluster, {}, kRootLooks, Paint(false));
  EXPECT_NE(text.find("free nodes 0/2"), text.npos);
  EXPECT_NE(text.find("n2 down: fan\n"), text.npos);
}

TEST(Overview, OfALargeClusterIsALineANode) {
  auto overview = slurm_cluster();
  for (int i = 3; i <= 24; ++i) {
    overview.cluster.nodes.push_back(overview.cluster.nodes[1]);
    overview.cluster.nodes.back().name = "n" + std::to_string(i);
  }
  const auto text = format_status(overview.cluster, overview.jobs, kRootLooks, Paint(false));
  EXPECT_NE(text.find("  n1  [########..]  210G/280G    65% busy  2/2 GPUs in use, 3 jobs\n"),
            text.npos)
      << text;
  EXPECT_EQ(text.find("gpu0  ["), text.npos);
}

TEST(Overview, OfAClusterListsGpusWithTheirNodes) {
  const auto overview = slurm_cluster();
  const auto text = format_gpus(overview.cluster, overview.jobs, Paint(false));
  EXPECT_NE(text.find("NODE GPU   MODEL"), text.npos);
  EXPECT_NE(text.find("n1   1     h200"), text.npos) << text;
  EXPECT_NE(text.find("      job 3 root train: 35G, 25% of compute\n"), text.npos) << text;
}

TEST(Top, ShowsPods) {
  use_utc();
  auto overview = slurm_cluster();
  overview.cluster.engine = "kubernetes";
  for (auto& job : overview.jobs) job.pod = "team/train-" + std::to_string(job.id);
  const auto text = format_top(overview, kRootLooks, Paint(false));
  EXPECT_NE(text.find("pods team/train-2,team/train-3"), text.npos) << text;
  EXPECT_NE(text.find("  POD          "), text.npos) << text;
  EXPECT_NE(text.find("  team/train-1 "), text.npos) << text;
}

}  // namespace
}  // namespace aliquot::cli
