#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "api/json.hpp"
#include "slurm/view/limits.hpp"
#include "slurm/view/snapshot.hpp"
#include "slurm/view/why.hpp"

namespace aliquot::slurm {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr WallTime kNow(1'794'725'045'000);

SlurmNode node(std::string name, std::string state = "IDLE") {
  SlurmNode made;
  made.name = std::move(name);
  made.state = std::move(state);
  made.gres = "gpu:h200:2(S:0-1),shard:h200:240";
  made.partitions = {"main"};
  made.cpus = 64;
  return made;
}

SlurmJob job(std::int64_t id, std::string words, std::string gres) {
  SlurmJob made;
  made.id = id;
  made.uid = 1000;
  made.state = "PENDING";
  made.reason = "Resources";
  made.partition = "main";
  made.qos = "normal";
  made.account = "users";
  made.tres_requested = "cpu=1,node=1";
  made.tres_per_node = "gres:" + gres;
  if (!words.empty()) made.admin_comment = "site's own; aliquot: " + words;
  return made;
}

SlurmJob running(std::int64_t id, std::string words, std::string gres, std::string on,
                 std::string held) {
  auto made = job(id, std::move(words), std::move(gres));
  made.state = "RUNNING";
  made.reason = "None";
  made.nodes = on;
  made.details = {{std::move(on), std::move(held)}};
  return made;
}

std::string name_of(std::uint32_t uid) { return fmt::format("u{}", uid); }

TEST(View, NodesHaveTheGpusOfTheirGres) {
  const Settings settings;
  auto one = node("n1");
  EXPECT_THAT(gpus_of(one, settings),
              ElementsAre(BookedGpu{"h200", 120, gib(120)}, BookedGpu{"h200", 120, gib(120)}));
  // The samples know the true size; one that does not fit the gres is not believed.
  one.extra = "aliquot:0=35%/12000M/123000M,1=0%/0M/1000M";
  EXPECT_EQ(gpus_of(one, settings)[0].memory, mib(123'000));
  EXPECT_EQ(gpus_of(one, settings)[1].memory, gib(120));
  one.gres = "gpu:h200:1,gpu:p100:1,shard:h200:120,shard:p100:16";
  EXPECT_EQ(gpus_of(one, settings)[1].shards, 16);
  one.gres = "gpu:2,shard:40";
  EXPECT_EQ(gpus_of(one, settings)[0].shards, 20);
  one.gres = "";
  EXPECT_TRUE(gpus_of(one, settings).empty());
}

TEST(View, JobsHoldWhatTheyAskedForOnTheirGpu) {
  Snapshot snapshot;
  snapshot.nodes = {node("n1", "MIXED"), node("n2")};
  snapshot.nodes[0].extra = "aliquot:0=35%/12000M/143771M,1=0%/0M/143771M";
  snapshot.jobs = {
      running(1, "--gpu-mem=8G --gpu-share=50%", "shard:60", "n1", "shard:h200:60(IDX:1)"),
      running(2, "gpu:1", "shard:120", "n1", "shard:h200:120(IDX:0)"),
      job(3, "mps:25", "shard:30")};
  const auto jobs = job_infos(snapshot, {}, name_of);
  ASSERT_EQ(jobs.size(), 3U);
  ASSERT_EQ(jobs[0].gpus.size(), 1U);
  EXPECT_EQ(jobs[0].gpus[0].node, "n1");
  EXPECT_EQ(jobs[0].gpus[0].index, 1);
  EXPECT_EQ(jobs[0].gpus[0].memory, gib(8).value());
  EXPECT_EQ(jobs[0].gpus[0].compute, 5'000);
  EXPECT_EQ(jobs[0].user, "u1000");
  EXPECT_TRUE(jobs[1].gpus[0].whole);
  EXPECT_TRUE(jobs[2].gpus.empty());
  EXPECT_EQ(jobs[2].gres, "mps:25");

  const auto cluster = cluster_info(snapshot, {});
  EXPECT_EQ(cluster.engine, "slurm");
  ASSERT_EQ(cluster.nodes.size(), 2U);
  const auto& first = cluster.nodes[0].gpus[0];
  EXPECT_EQ(first.utilisation, 3'500);
  EXPECT_EQ(first.memory_used, mib(12'000).value());
  EXPECT_FALSE(first.stale);
  EXPECT_TRUE(first.whole);
  EXPECT_THAT(cluster.nodes[0].gpus[1].jobs, ElementsAre(1));
  EXPECT_EQ(cluster.nodes[0].gpus[1].memory_granted, gib(8).value());
  EXPECT_TRUE(cluster.nodes[1].gpus[0].stale);
  // And it survives the wire.
  EXPECT_EQ(api::from_json<api::ClusterInfo>(api::to_json(cluster)).value().nodes.size(), 2U);
}

TEST(View, StatesAreInTheApisWords) {
  EXPECT_EQ(node_state("IDLE"), "idle");
  EXPECT_EQ(node_state("MIXED"), "mixed");
  EXPECT_EQ(node_state("IDLE+DRAIN"), "drained");
  EXPECT_EQ(node_state("MIXED+DRAIN"), "draining");
  EXPECT_EQ(node_state("DOWN*"), "down");
  EXPECT_EQ(node_state("IDLE*"), "down");
  EXPECT_EQ(node_state("IDLE+NOT_RESPONDING"), "down");
}

std::string why(const Snapshot& snapshot, const SlurmJob& waiting) {
  std::string text;
  for (const auto& sentence : why_info(snapshot, {}, waiting, kNow).sentences) {
    text += sentence + "\n";
  }
  return text;
}

TEST(Why, SaysWhatIsMissingOnWhichGpu) {
  Snapshot snapshot;
  snapshot.nodes = {node("n1", "MIXED"), node("n2", "DOWN*")};
  snapshot.nodes[1].reason = "fan broke";
  snapshot.jobs = {running(1, "gpu:1", "shard:120", "n1", "shard:h200:120(IDX:0)"),
                   running(2, "--gpu-mem=100G", "shard:100", "n1", "shard:h200:100(IDX:1)")};
  const auto text = why(snapshot, job(3, "--gpu-mem=30G", "shard:30"));
  EXPECT_EQ(text,
            "No GPU has 30 GiB of memory free.\n"
            "gpu0 on n1 is held whole by job 1.\n"
            "gpu1 on n1 lacks 10 GiB of memory: job 2 holds 100 GiB of its 120 GiB.\n"
            "This can start when jobs end.\n"
            "n2 is down: fan broke.\n");
}

TEST(Why, SaysThatThereIsRoom) {
  Snapshot snapshot;
  snapshot.nodes = {node("n1")};
  auto waiting = job(3, "--gpu-share=25%", "shard:30");
  waiting.reason = "Priority";
  EXPECT_THAT(why(snapshot, waiting), HasSubstr("a job before it is waiting for that room"));
  waiting.reason = "None";
  EXPECT_THAT(why(snapshot, waiting), HasSubstr("Slurm starts it when it next looks"));
}

TEST(Why, AYearIsNoEstimate) {
  Snapshot snapshot;
  snapshot.nodes = {node("n1")};
  auto waiting = job(3, "--gpu-share=25%", "shard:30");
  waiting.start_s = kNow.ms() / 1'000 + 60;
  EXPECT_EQ(why_info(snapshot, {}, waiting, kNow).earliest_start_ms, kNow.ms() + 60'000);
  waiting.start_s += 365 * 86'400;
  EXPECT_FALSE(why_info(snapshot, {}, waiting, kNow).earliest_start_ms);
}

TEST(Why, CpusCanBeWhatIsMissing) {
  Snapshot snapshot;
  snapshot.nodes = {node("n1", "MIXED")};
  snapshot.nodes[0].cpus_allocated = 60;
  auto waiting = job(3, "--gpu-share=25%", "shard:30");
  waiting.cpus = 8;
  EXPECT_THAT(why(snapshot, waiting), HasSubstr("n1 lacks 4 CPUs"));
}

TEST(Why, TurnsSlurmsWordsIntoSentences) {
  auto waiting = job(3, "--gpu-share=25%", "shard:30");
  const auto sentence = [&](std::string reason) {
    waiting.reason = std::move(reason);
    return reason_sentence(waiting);
  };
  EXPECT_EQ(sentence("Resources"), "");
  EXPECT_THAT(sentence("QOSMaxGRESPerUser"),
              HasSubstr("Its user holds as much as its QOS 'normal' gives to one user"));
  EXPECT_THAT(sentence("QOSMaxBillingPerUser"), HasSubstr("gives to one user"));
  EXPECT_THAT(sentence("AssocGrpGRES"), HasSubstr("The jobs of its account 'users'"));
  EXPECT_THAT(sentence("QOSMaxGRESPerJob"), HasSubstr("gives to one job"));
  EXPECT_THAT(sentence("Dependency"), HasSubstr("--dependency"));
  EXPECT_THAT(sentence("JobHeldUser"), HasSubstr("scontrol release"));
  EXPECT_EQ(sentence("FrontEndDown"), "Slurm's word for it is FrontEndDown.");
}

TEST(Why, FindsJobsAsUsersNameThem) {
  Snapshot snapshot;
  snapshot.jobs = {job(7, "", "gpu:1"), job(9, "", "gpu:1"), job(11, "", "gpu:1")};
  snapshot.jobs[1].array_job_id = 9;
  snapshot.jobs[1].array_task_id = 0;
  snapshot.jobs[1].state = "RUNNING";
  snapshot.jobs[2].array_job_id = 9;
  snapshot.jobs[2].array_task_id = 1;
  snapshot.jobs[2].uid = 5;
  EXPECT_EQ(find_job(snapshot, "7", 0).value().id, 7);
  EXPECT_EQ(find_job(snapshot, "9", 0).value().id, 11);  // the one that waits
  EXPECT_EQ(find_job(snapshot, "9_0", 0).value().id, 9);
  EXPECT_EQ(find_job(snapshot, "last", 1000).value().id, 9);
  EXPECT_EQ(find_job(snapshot, "8", 0).error().message, "Slurm knows no job 8");
  EXPECT_THAT(find_job(snapshot, "x", 0).error().message, HasSubstr("no job's id"));
  EXPECT_FALSE(find_job(snapshot, "last", 77));
}

TEST(Limits, AreReadInEveryCurrency) {
  const std::string lines =
      "normal|gres/gpu=4\nshards|cpu=9,gres/shard=240\nbill|billing=480\nno|\n";
  const GpuWorth worth{120, gpu_billing("CPU=0.25,GRES/gpu=120,GRES/shard=1")};
  EXPECT_EQ(worth.billing, 120);
  EXPECT_EQ(gpu_limit(lines, "normal", worth), 40'000);
  EXPECT_EQ(gpu_limit(lines, "shards", worth), 20'000);
  EXPECT_EQ(gpu_limit(lines, "bill", worth), 40'000);
  EXPECT_EQ(gpu_limit(lines, "no", worth), std::nullopt);
  EXPECT_EQ(gpu_limit(lines, "other", worth), std::nullopt);
  EXPECT_EQ(gpu_limit("", "normal", {}), std::nullopt);
}

// Whatever slurmctld says, the view answers and the books balance.
RC_GTEST_PROP(View, AnswersAnything,
              (const std::string& gres, const std::string& held, const std::string& comment)) {
  Snapshot snapshot;
  snapshot.nodes = {node("n1")};
  if (*rc::gen::arbitrary<bool>()) snapshot.nodes[0].gres = gres;
  snapshot.jobs = {running(1, comment, "shard:30", "n1", held),
                   running(2, "", "shard:30", "n1", "shard:h200:90(IDX:1)"),
                   running(3, "", "shard:30", "n1", "shard:h200:90(IDX:1)"), job(4, comment, gres)};
  static_cast<void>(job_infos(snapshot, {}, name_of));
  static_cast<void>(cluster_info(snapshot, {}));
  static_cast<void>(why_info(snapshot, {}, snapshot.jobs[3], kNow));
}

}  // namespace
}  // namespace aliquot::slurm
