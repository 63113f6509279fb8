#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <map>

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
  return {.name = std::move(name),
          .state = std::move(state),
          .gres = "gpu:h200:2(S:0-1),shard:h200:240",
          .partitions = {"main"},
          .cpus = 64};
}

SlurmJob job(std::int64_t id, const std::string& words, const std::string& gres) {
  return {.id = id,
          .uid = 1000,
          .submit_s = kNow.ms() / 1'000 - 60,
          .priority = 1,
          .name = "wrap",
          .account = "users",
          .partition = "main",
          .qos = "normal",
          .state = "PENDING",
          .reason = "Resources",
          .tres_per_node = "gres:" + gres,
          .tres_requested = "cpu=1,node=1",
          .admin_comment = words.empty() ? "" : "site's own; aliquot: " + words};
}

SlurmJob running(std::int64_t id, const std::string& words, const std::string& gres, std::string on,
                 std::string held) {
  auto made = job(id, words, gres);
  made.state = "RUNNING";
  made.reason = "None";
  made.nodes = on;
  made.details = {{std::move(on), std::move(held)}};
  return made;
}

std::string name_of(std::uint32_t uid) { return fmt::format("u{}", uid); }

TEST(View, NodesHaveTheGpusOfTheirGres) {
  const SiteSettings settings;
  auto one = node("n1");
  EXPECT_THAT(gpus_of(one, settings),
              ElementsAre(BookedGpu{"h200", 120, gib(120)}, BookedGpu{"h200", 120, gib(120)}));
  // The samples know the true size; one that does not fit the gres is not believed.
  one.extra = "aliquot:0=35%/12000M/123000M,1=0%/0M/300000M";
  EXPECT_EQ(gpus_of(one, settings)[0].memory, mib(123'000));
  EXPECT_EQ(gpus_of(one, settings)[1].memory, gib(120));
  one.gres = "gpu:h200:1,gpu:p100:1,shard:h200:120,shard:p100:16";
  EXPECT_EQ(gpus_of(one, settings)[1].shards, 16);
  one.gres = "gpu:2,shard:40";
  EXPECT_EQ(gpus_of(one, settings)[0].shards, 20);
  one.gres = "";
  EXPECT_TRUE(gpus_of(one, settings).empty());
}

TEST(View, APartitionsOvercommitIsThatOfItsNodes) {
  Snapshot snapshot{.nodes = {node("n1"), node("n2"), node("n3")}};
  snapshot.nodes[1].partitions = {"course"};
  snapshot.nodes[2].partitions = {"main", "course"};
  SiteSettings settings;
  settings.share.by_partition["course"].overcommit = kWholeGpu * 2;
  const auto info = cluster_info(snapshot, settings);
  EXPECT_EQ(info.nodes[0].gpus[0].compute_limit, 10'000);
  EXPECT_EQ(info.nodes[1].gpus[0].compute_limit, 20'000);
  EXPECT_EQ(info.nodes[2].gpus[0].compute_limit, 20'000);
  // Where all nodes are in partitions of less, that counts.
  settings.share.overcommit = kWholeGpu * 3;
  EXPECT_EQ(cluster_info(snapshot, settings).nodes[1].gpus[0].compute_limit, 20'000);
  snapshot.nodes[1].partitions = {};
  EXPECT_EQ(cluster_info(snapshot, settings).nodes[1].gpus[0].compute_limit, 30'000);
}

TEST(View, TheMemoryOfASilentNodesGpusIsKnown) {
  Snapshot snapshot{.nodes = {node("n1"), node("n2"), node("n3")}};
  snapshot.nodes[0].extra = "aliquot:0=35%/12000M/24000M";
  know_sizes(snapshot.nodes,
             {{.nodes = {"n3"}, .model = "h200", .count = 2, .memory = mib(143'156), .files = {}}});
  EXPECT_EQ(gpus_of(snapshot.nodes[1], {})[0].memory, mib(24'000)) << "as the same model elsewhere";
  EXPECT_EQ(gpus_of(snapshot.nodes[2], {})[1].memory, mib(143'156)) << "as setup was told";
}

TEST(View, JobsHoldWhatTheyAskedForOnTheirGpu) {
  Snapshot snapshot;
  snapshot.nodes = {node("n1", "MIXED"), node("n2")};
  snapshot.nodes[0].extra = "aliquot:0=35.27%/12000M/143771M/4711:eve:2048M,1=0%/0M/143771M";
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
  EXPECT_EQ(first.utilisation, 3'527);
  EXPECT_EQ(first.memory_used, mib(12'000).value());
  EXPECT_FALSE(first.stale);
  ASSERT_EQ(first.processes.size(), 1U);
  EXPECT_EQ(first.processes[0].user, "eve");
  EXPECT_FALSE(first.processes[0].job_id) << "outside the queue";
  EXPECT_TRUE(first.whole);
  EXPECT_THAT(cluster.nodes[0].gpus[1].jobs, ElementsAre(1));
  EXPECT_EQ(cluster.nodes[0].gpus[1].memory_granted, gib(8).value());
  EXPECT_TRUE(cluster.nodes[1].gpus[0].stale);
  // And it survives the wire.
  EXPECT_EQ(api::from_json<api::ClusterInfo>(api::to_json(cluster)).value().nodes.size(), 2U);
}

TEST(View, ABrokenGpuAndWhatJobsDoAreShown) {
  Snapshot snapshot;
  snapshot.nodes = {node("n1", "MIXED+DRAIN")};
  snapshot.nodes[0].extra = "aliquot:0=0%/0M/143771M/!xid79,1=80%/3G/143771M";
  EXPECT_TRUE(cluster_info(snapshot, {}).nodes[0].gpus[0].stale) << "it cannot be read";
  snapshot.nodes[0].extra =
      "aliquot:0=0%/0M/143771M/!xid79,1=80%/3000M/143771M/@1:20%:2048M/@2:60%:512M";
  snapshot.jobs = {running(1, "--gpu-mem=8G", "shard:7", "n1", "shard:h200:7(IDX:1)"),
                   running(2, "--gpu-mem=8G", "shard:7", "n1", "shard:h200:7(IDX:1)"),
                   running(3, "--gpu-mem=8G", "shard:7", "n1", "shard:h200:7(IDX:0)")};
  snapshot.jobs[2].admin_comment += "; broken GPU on n1; used 12.5 s 900M on n1";
  const auto gpus = cluster_info(snapshot, {}).nodes[0].gpus;
  EXPECT_EQ(gpus[0].health, "Xid 79, it has fallen off the bus");
  EXPECT_EQ(gpus[1].health, "draining");
  ASSERT_EQ(gpus[1].processes.size(), 2U);
  EXPECT_EQ(gpus[1].processes[0].job_id, 1);
  EXPECT_EQ(gpus[1].processes[0].memory, gib(2).value());
  const auto jobs = job_infos(snapshot, {}, name_of);
  EXPECT_EQ(jobs[0].gpu_utilisation, 2'000);
  EXPECT_EQ(jobs[1].gpu_utilisation, 6'000);
  EXPECT_EQ(jobs[2].gpu_utilisation, 0);
  EXPECT_EQ(jobs[2].reason_detail, "a GPU that it holds on n1 is broken");
  EXPECT_EQ(jobs[2].gpu_ms, 12'500);
  EXPECT_EQ(jobs[2].gpu_memory_peak, mib(900).value());
}

TEST(View, WhatJobsUseOfTheirGpuIsToldApart) {
  Snapshot snapshot{.nodes = {node("n1", "ALLOCATED"), node("n2", "ALLOCATED")}};
  snapshot.cluster = "lab";
  snapshot.nodes[0].extra = "aliquot:0=80%/3000M/143771M/@1:20%:2048M/@2:60%:512M";
  snapshot.nodes[0].cpus_allocated = 5;
  snapshot.nodes[1].cpus_allocated = 64;
  const auto cluster = cluster_info(snapshot, {});
  EXPECT_EQ(cluster.cluster, "lab");
  EXPECT_EQ(cluster.nodes[0].state, "mixed") << "59 CPUs are free";
  EXPECT_EQ(cluster.nodes[1].state, "allocated");
  const auto& uses = cluster.nodes[0].gpus[0].uses;
  ASSERT_EQ(uses.size(), 2U);
  EXPECT_EQ(uses[1].job_id, 2);
  EXPECT_EQ(uses[1].utilisation, 6'000);
  EXPECT_EQ(uses[1].memory, mib(512).value());
}

TEST(View, WhyAJobWaitsAndWhenItStartsAsFarAsThatIsKnown) {
  const std::int64_t now_s = kNow.ms() / 1'000;
  Snapshot snapshot{.jobs = {job(1, "", "gpu:1"), job(2, "", "gpu:1"), job(3, "", "gpu:1")}};
  snapshot.jobs[0].start_s = now_s + 60;
  snapshot.jobs[1].start_s = now_s + 365 * 86'400;
  snapshot.jobs[2].start_s = now_s;
  snapshot.jobs[2].reason = "JobHeldUser";
  snapshot.jobs[2].priority = 0;
  const auto jobs = job_infos(snapshot, {}, name_of);
  EXPECT_EQ(jobs[0].start_ms, kNow.ms() + 60'000);
  EXPECT_FALSE(jobs[1].start_ms);
  EXPECT_FALSE(jobs[2].start_ms);
  EXPECT_EQ(jobs[0].reason_detail, "");
  EXPECT_THAT(jobs[2].reason_detail, HasSubstr("It is held"));
}

TEST(View, StatesAreInTheApisWords) {
  const std::map<std::string, std::string> words{
      {"IDLE", "idle"},
      {"MIXED", "mixed"},
      {"IDLE+DRAIN", "drained"},
      {"MIXED+DRAIN", "draining"},
      {"DOWN*", "down"},
      {"IDLE*", "down"},
      {"IDLE+NOT_RESPONDING", "down"},
  };
  for (const auto& [slurms, ours] : words) EXPECT_EQ(node_state(slurms), ours) << slurms;
}

std::string why(const Snapshot& snapshot, const SlurmJob& waiting) {
  std::string text;
  for (const auto& sentence : why_info(snapshot, {}, waiting, kNow).sentences) {
    text += sentence + "\n";
  }
  return text;
}

TEST(Why, KnowsWhatSlurmctldDoesNot) {
  Snapshot snapshot;
  snapshot.nodes = {node("n1", "MIXED")};
  snapshot.nodes[0].extra = "aliquot:0=0%/0M/143771M/7:eve:102400M,1=0%/0M/143771M/8:bob:100M";
  EXPECT_THAT(why(snapshot, job(3, "--gpu-mem=80G", "shard:80")),
              HasSubstr("Processes of no job hold 102400 MiB of gpu0 on n1: a share that does not "
                        "fit beside them does not start there.\n"));
  EXPECT_THAT(why(snapshot, job(3, "--gpu-mem=80G", "shard:80")),
              testing::Not(HasSubstr("of gpu1")));
  auto broken = running(4, "--gpu-mem=8G", "shard:7", "n1", "shard:h200:7(IDX:1)");
  broken.admin_comment += "; broken GPU on n1; used 12.5 s 900M on n1";
  EXPECT_EQ(why(snapshot, broken),
            "Job 4 is RUNNING on n1.\n"
            "A GPU that it held on n1 broke: what ran there has to be started again.\n"
            "It has used 12.5 s of GPU time and at most 900 MiB.\n");
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

TEST(Why, WhatIsHeldStartsNever) {
  auto held = job(3, "--gpu-share=25%", "shard:30");
  held.reason = "JobHeldUser";
  held.priority = 0;
  held.start_s = kNow.ms() / 1'000 + 60;
  EXPECT_FALSE(why_info({}, {}, held, kNow).earliest_start_ms);
  EXPECT_THAT(why({}, held), testing::Not(HasSubstr("by its user")));
}

TEST(Why, LooksOnlyWhereTheJobMayGo) {
  Snapshot snapshot;
  snapshot.nodes = {node("n1"), node("n2", "MIXED")};
  snapshot.jobs = {running(1, "gpu:1", "shard:120", "n2", "shard:h200:120(IDX:0)"),
                   running(2, "gpu:1", "shard:120", "n2", "shard:h200:120(IDX:1)")};
  auto waiting = job(3, "--gpu-mem=30G", "shard:30");
  EXPECT_THAT(why(snapshot, waiting), HasSubstr("There is room for it"));
  auto required = waiting;
  required.required_nodes = {"n2"};
  EXPECT_THAT(why(snapshot, required), HasSubstr("gpu0 on n2 is held whole by job 1."));
  EXPECT_THAT(why(snapshot, required), testing::Not(HasSubstr("There is room")));
  auto excluding = waiting;
  excluding.excluded_nodes = {"n1"};
  EXPECT_EQ(why(snapshot, excluding), why(snapshot, required));
  auto both = waiting;
  both.required_nodes = {"n1", "n2"};
  EXPECT_THAT(why(snapshot, both), HasSubstr("It needs 2 such nodes at once; 1 would do now."));
}

TEST(Why, AReservationIsWhereItsJobsRunAndNobodyElse) {
  Snapshot snapshot;
  snapshot.nodes = {node("n1"), node("n2", "MIXED")};
  snapshot.jobs = {running(1, "gpu:1", "shard:120", "n2", "shard:h200:120(IDX:0)"),
                   running(2, "--gpu-share=90%", "shard:108", "n2", "shard:h200:108(IDX:1)")};
  const std::string shown =
      "ReservationName=rr StartTime=2026-11-19T06:00:00 Duration=02:00:00 Nodes=n2 NodeCnt=1 "
      "CoreCnt=64 Features=(null) PartitionName=(null) Flags=IGNORE_JOBS,SPEC_NODES TRES=cpu=64 "
      "Users=games Groups=(null) Accounts=(null) Licenses=(null) State=ACTIVE "
      "MaxStartDelay=(null) Comment=x State=INACTIVE\n";
  snapshot.reservations = read_reservations("No reservations in the system\n\n" + shown);
  ASSERT_EQ(snapshot.reservations.size(), 1U);
  EXPECT_TRUE(snapshot.reservations[0].active);
  auto inside = job(3, "--gpu-share=25%", "shard:30");
  inside.reservation = "rr";
  EXPECT_EQ(why(snapshot, inside),
            "No GPU has 25% of its compute and memory free.\n"
            "gpu0 on n2 is held whole by job 1.\n"
            "gpu1 on n2 lacks 18 GiB of memory: job 2 holds 108 GiB of its 120 GiB.\n"
            "This can start when jobs end.\n"
            "Its reservation 'rr' has n2: it can start nowhere else.\n");
  auto unknown = inside;
  unknown.reservation = "private";
  EXPECT_THAT(why(snapshot, unknown), HasSubstr("There is room for it"));
  // And from outside the other way round.
  snapshot.jobs.clear();
  auto outside = job(3, "--gpu-share=25%", "shard:30");
  EXPECT_THAT(why(snapshot, outside), HasSubstr("There is room for it"));
  outside.required_nodes = {"n2"};
  EXPECT_EQ(why(snapshot, outside), "n2 is for the reservation 'rr', which it is not in.\n");
  // A part of a node, and one that lets anybody in, keep no job away.
  const auto held_for = [&](const std::string& from, const std::string& to) {
    auto text = shown;
    text.replace(text.find(from), from.size(), to);
    snapshot.reservations = read_reservations(text);
    return why(snapshot, outside);
  };
  EXPECT_THAT(held_for("TRES=cpu=64", "TRES=cpu=4"), HasSubstr("There is room for it"));
  EXPECT_THAT(held_for("IGNORE_JOBS", "MAGNETIC"), HasSubstr("There is room for it"));
  EXPECT_THAT(held_for("State=ACTIVE", "State=INACTIVE"), HasSubstr("There is room for it"));
}

TEST(Why, NamesTheGpuThatTheJobNames) {
  Snapshot snapshot;
  snapshot.nodes = {node("n1", "MIXED")};
  snapshot.nodes[0].gres = "gpu:h200.0:1,gpu:h200.1:1,shard:h200.0:120,shard:h200.1:120";
  SiteSettings settings;
  settings.share.placement = "aliquot";
  const auto waiting = job(3, "--gpu-mem=100G", "shard:h200.1:100");
  EXPECT_THAT(why_info(snapshot, settings, waiting, kNow).sentences,
              Contains(HasSubstr("not on the GPU that it names, h200.1")));
}

TEST(Why, ALimitThatTheJobAloneIsTooMuchForIsNotSomebodyElses) {
  Snapshot snapshot;
  snapshot.version = "22.05.8";
  auto large = node("n1");
  large.gres = "gpu:h200:4,shard:h200:480";
  snapshot.nodes = {large};
  snapshot.partitions = {{.name = "main",
                          .billing_weights = "CPU=1,GRES/gpu=120000,GRES/shard=1000",
                          .is_default = true}};
  const std::string lines = "normal|billing=240999\nhalf|gres/shard=60\nlarge|billing=480999\n";
  auto waiting = job(3, "gpu:2", "gpu:2");
  waiting.reason = "QOSMaxBillingPerUser";
  waiting.exclusive = true;
  snapshot.jobs = {waiting};
  EXPECT_EQ(reason_sentence(snapshot, waiting, never_allowed(lines, snapshot, {}, waiting)),
            "It takes 4 GPUs, as its nodes are its own, and its QOS 'normal' gives 2 to one user "
            "(QOSMaxBillingPerUser): it can never start; ask for less.");
  // Where the limit is not known, nothing is said that may be false.
  EXPECT_THAT(reason_sentence(snapshot, waiting), HasSubstr("nothing else of that is held now"));
  snapshot.jobs.push_back(running(4, "gpu:1", "shard:120", "n1", "shard:h200:120(IDX:0)"));
  EXPECT_THAT(reason_sentence(snapshot, waiting), HasSubstr("Its user holds as much"));
  EXPECT_THAT(reason_sentence(snapshot, waiting, never_allowed(lines, snapshot, {}, waiting)),
              HasSubstr("it can never start"));
  waiting.qos = "large";
  EXPECT_EQ(never_allowed(lines, snapshot, {}, waiting), "");
  snapshot.partitions[0].qos = "normal";
  EXPECT_THAT(never_allowed(lines, snapshot, {}, waiting), HasSubstr("QOS 'normal' gives 2"));
  // The same by the job's words, which stand in no node's.
  waiting.tres_per_node = "";
  waiting.tres_requested = "cpu=2,node=1,billing=240002,gres/gpu=2";
  EXPECT_THAT(never_allowed(lines, snapshot, {}, waiting),
              HasSubstr("It takes 4 GPUs, as its nodes are its own, and its QOS 'normal' gives 2"));
  waiting.exclusive = false;
  EXPECT_EQ(never_allowed(lines, snapshot, {}, waiting), "");
  waiting.exclusive = true;
  // Nodes with one GPU might do.
  snapshot.nodes.push_back(node("n2"));
  snapshot.nodes[1].gres = "gpu:h200:1,shard:h200:120";
  EXPECT_EQ(never_allowed(lines, snapshot, {}, waiting), "");
  auto share = job(5, "--gpu-share=75%", "shard:90");
  share.qos = "half";
  EXPECT_EQ(never_allowed(lines, snapshot, {}, share),
            "It takes 0.75 GPUs, and its QOS 'half' gives 0.5 to one user");
  auto whole = job(6, "gpu:1", "shard:120");
  whole.qos = "half";
  EXPECT_EQ(never_allowed(lines, snapshot, {}, whole),
            "It takes 1 GPU, and its QOS 'half' gives 0.5 to one user");
}

TEST(Limits, UseIsCountedAsTheLimitCounts) {
  Snapshot snapshot;
  snapshot.version = "22.05.8";
  snapshot.nodes = {node("n1")};
  const std::string weights = "CPU=1,GRES/gpu=120000,GRES/shard=1000";
  snapshot.partitions = {
      {.name = "main", .billing_weights = weights, .qos = {}, .is_default = true},
      {.name = "course", .billing_weights = weights, .qos = {}}};
  // Half of a GPU each in words, and a quarter of what the partition promises.
  snapshot.jobs = {
      running(1, "--gpu-mem=20G --gpu-share=50%", "shard:30", "n1", "shard:h200:30(IDX:0)"),
      running(2, "--gpu-mem=20G --gpu-share=50%", "shard:30", "n1", "shard:h200:30(IDX:0)"),
      running(3, "gpu:1", "shard:120", "n1", "shard:h200:120(IDX:1)"), job(4, "gpu:1", "gpu:1")};
  for (auto& each : snapshot.jobs) each.partition = "course";
  snapshot.jobs[2].uid = 7;
  const auto worth = gpu_worth(snapshot, {});
  EXPECT_EQ(gpu_limit("normal|billing=60999\n", "normal", worth).most, 5'000);
  EXPECT_EQ(gpus_counted(snapshot, "normal", 1000, worth), 5'000);
  EXPECT_EQ(gpus_counted(snapshot, "normal", 7, worth), 10'000);
  EXPECT_EQ(gpus_counted(snapshot, "other", 1000, worth), 0) << "another limit";
  snapshot.partitions[1].qos = "other";
  EXPECT_EQ(gpus_counted(snapshot, "other", 1000, worth), 5'000) << "of their partition";
  for (auto& partition : snapshot.partitions) partition.billing_weights = "";
  EXPECT_EQ(gpus_counted(snapshot, "normal", 1000, gpu_worth(snapshot, {})), 5'000);
}

TEST(View, JobsOfAYearHaveNoLimit) {
  Snapshot snapshot;
  snapshot.jobs = {job(1, "", "gpu:1"), job(2, "", "gpu:1")};
  snapshot.jobs[0].time_limit_s = 365 * 86'400;
  snapshot.jobs[1].time_limit_s = 86'400;
  const auto jobs = job_infos(snapshot, {}, name_of);
  EXPECT_FALSE(jobs[0].time_limit_ms);
  EXPECT_EQ(jobs[1].time_limit_ms, 86'400'000);
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
  Snapshot snapshot;
  snapshot.jobs = {running(4, "gpu:1", "shard:120", "n1", "shard:h200:120(IDX:0)")};
  const auto sentence = [&](std::string reason) {
    waiting.reason = std::move(reason);
    return reason_sentence(snapshot, waiting);
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

TEST(Why, ElementsOfAnArrayThatWaitAreThere) {
  Snapshot snapshot;
  snapshot.jobs = {job(9, "", "gpu:1"), job(10, "", "gpu:1")};
  for (auto& each : snapshot.jobs) each.array_job_id = 9;
  snapshot.jobs[0].array_tasks = "4-40%3";
  snapshot.jobs[1].array_task_id = 1;
  snapshot.jobs[1].state = "RUNNING";
  EXPECT_EQ(find_job(snapshot, "9_39", 0).value().id, 9);
  EXPECT_EQ(find_job(snapshot, "9_1", 0).value().id, 10);
  EXPECT_EQ(find_job(snapshot, "9_[4-40%3]", 0).value().id, 9);
  EXPECT_FALSE(find_job(snapshot, "9_[]", 0));
  EXPECT_FALSE(find_job(snapshot, "9_41", 0));
  EXPECT_FALSE(find_job(snapshot, "9_2", 0));
  EXPECT_THAT(why(snapshot, find_job(snapshot, "9_1", 0).value()), HasSubstr("Job 9_1 is RUNNING"));
  const auto jobs = job_infos(snapshot, {}, name_of);
  EXPECT_EQ(jobs[0].array_pending, "4-40%3");
  EXPECT_EQ(jobs[1].array_pending, "");
}

TEST(View, ANodeThatIsNotHeardKeepsItsSize) {
  std::vector<SlurmNode> nodes{node("n1"), node("n2"), node("n3")};
  nodes[0].extra = "aliquot:0=0%/0M/143100M";
  nodes[1].extra = nodes[2].extra = "aliquot:?";
  know_sizes(nodes, {{{"n3"}, nodes[0].gres.substr(4, 4), 4, mib(143156), "/dev/x"}});
  EXPECT_EQ(gpus_of(nodes[1], {}).front().memory, mib(143100));
  EXPECT_EQ(gpus_of(nodes[2], {}).front().memory, mib(143156));
  // Not where it cannot be, by its shards.
  nodes[1].gpu_memory["h200"] = gib(288);
  EXPECT_NE(gpus_of(nodes[1], {}).front().memory, gib(288));
}

TEST(Limits, OnlyWhatCountsAllGpusIsALimitOfAll) {
  const std::string lines =
      "normal|gres/gpu=4\nshards|cpu=9,gres/shard=240\nbill|billing=480999\nno|\n"
      "both|billing=240999,gres/gpu=4\nhalf|gres/shard=180\n";
  const auto bill = gpu_bill("CPU=0.25,GRES/gpu=120000,GRES/shard=1000");
  EXPECT_EQ(bill, (GpuBill{120'000, 1'000}));
  const GpuWorth old{120, bill, true};
  const GpuWorth newer{120, bill, false};
  EXPECT_EQ(gpu_limit(lines, "bill", old).most, 40'000);
  EXPECT_EQ(gpu_limit(lines, "both", newer).most, 20'000);
  EXPECT_EQ(gpu_limit(lines, "shards", old).most, 20'000);
  EXPECT_EQ(gpu_limit(lines, "half", old).most, 15'000);
  EXPECT_EQ(gpu_limit(lines, "shards", newer).most, std::nullopt);
  EXPECT_EQ(gpu_limit(lines, "shards", newer).partial,
            "gres/shard=240 of QOS shards counts shares only");
  EXPECT_EQ(gpu_limit(lines, "normal", newer).partial,
            "gres/gpu=4 of QOS normal counts whole GPUs only");
  EXPECT_EQ(gpu_limit(lines, "normal", old).most, std::nullopt);
  EXPECT_THAT(gpu_limit(lines, "normal", old).partial, HasSubstr("booked as shards"));
  for (const auto* name : {"no", "other"}) {
    EXPECT_EQ(gpu_limit(lines, name, old).most, std::nullopt);
    EXPECT_EQ(gpu_limit(lines, name, old).partial, "");
  }
  EXPECT_EQ(limit_text(15'000), "1.5");
  EXPECT_EQ(limit_text(40'000), "4");
}

TEST(Limits, ThatAreGotAroundAreTold) {
  const GpuWorth old{120, {120'000, 1'000}, true};
  const auto checks =
      check_limits("normal||gres/gpu=8|\nlab|gres/gpu=4,cpu=9||\nok|billing=1000||\n",
                   "lab|ann|gres/gpu=2\nlab||\n", old);
  const auto per_job = check_limits("lab||||gres/gpu=1\n", "lab||gres/gpu=2|gres/gpu=1\n", old);
  ASSERT_EQ(per_job.size(), 3U);
  EXPECT_EQ(per_job[0].cure, "sacctmgr modify qos lab set MaxTRESPerJob=billing=120999");
  EXPECT_EQ(per_job[2].cure, "sacctmgr modify account lab set MaxTRESPerJob=billing=120999");
  ASSERT_EQ(checks.size(), 3U);
  EXPECT_EQ(checks[1].finding,
            "QOS lab: MaxTRESPerUser=gres/gpu=4 counts nothing that is booked as shards, as whole "
            "GPUs are here");
  EXPECT_EQ(checks[1].cure, "sacctmgr modify qos lab set MaxTRESPerUser=billing=480999");
  EXPECT_EQ(checks[0].cure, "sacctmgr modify qos normal set MaxTRESPerAccount=billing=960999");
  EXPECT_EQ(checks[2].cure,
            "sacctmgr modify user where name=ann account=lab set GrpTRES=billing=240999");
  const auto unbilled = check_limits("lab|gres/gpu=4||\n", "", {120, {}, false});
  EXPECT_THAT(unbilled[0].finding, HasSubstr("counts whole GPUs only"));
  EXPECT_EQ(
      unbilled[0].cure,
      "aliquot slurm setup --billing --apply, restart slurmctld, then sacctmgr modify qos lab "
      "set MaxTRESPerUser=billing=480999");
  EXPECT_EQ(check_limits("lab|gres/gpu=4,billing=480999||\n", "", old)[0].level, Check::Level::ok);
}

TEST(Limits, OneThatNoShareFitsIntoIsTold) {
  const GpuWorth worth{120, {120'000, 1'000}, false};
  const auto checks = check_limits("main|billing=480||\n", "", worth);
  ASSERT_EQ(checks.size(), 1U);
  EXPECT_EQ(checks[0].level, Check::Level::warn);
  EXPECT_EQ(checks[0].finding,
            "QOS main: MaxTRESPerUser=billing=480 is less than one shard, 1000: no job with a GPU "
            "starts");
  EXPECT_EQ(checks[0].cure, "sacctmgr modify qos main set MaxTRESPerUser=billing=120999");
  EXPECT_EQ(check_limits("main|billing=480||\n", "", {120, {}, false})[0].level, Check::Level::ok)
      << "CPUs are what is billed";
}

TEST(Billing, IsAlikeForAGpuAndItsShards) {
  EXPECT_TRUE(bills_alike("CPU=1.0,GRES/gpu=120000,GRES/shard=1000", 120));
  EXPECT_TRUE(bills_alike("gres/gpu=8,gres/shard=0.0667", 120));
  EXPECT_FALSE(bills_alike("GRES/gpu=1,GRES/shard=1", 120));
  EXPECT_FALSE(bills_alike("GRES/gpu=120000,GRES/shard=1000", 80)) << "as before more memory";
  EXPECT_FALSE(bills_alike("GRES/gpu=120000", 120));
  EXPECT_FALSE(bills_alike("GRES/gpu=9223372036854,GRES/shard=9223372036854", 120));
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
