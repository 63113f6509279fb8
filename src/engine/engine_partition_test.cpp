#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/engine_fixture.hpp"

namespace aliquot::engine {
namespace {

using testing::HasSubstr;

class EnginePartitionTest : public testing::Test, public EngineFixture {
 protected:
  api::JobSpec in(const std::string& partition, const std::string& gres = "") const {
    auto wanted = spec(gres);
    wanted.partition = partition;
    return wanted;
  }
  std::set<std::string> gpus_of(std::int64_t id) {
    std::set<std::string> gpus;
    for (const auto& gpu : job(id).gpus) gpus.insert(gpu.uuid);
    return gpus;
  }
  std::string why(std::int64_t id) {
    const auto answer = engine->views().why({Uid(0)}, std::to_string(id));
    return answer ? answer->sentences.front() : answer.error().message;
  }
  void use(std::vector<Partition> partitions) {
    settings.partitions = std::move(partitions);
    crash();
  }
};

TEST_F(EnginePartitionTest, BestEffortIsThereAndComesLast) {
  const auto all = submit(spec("gpu:4"));
  const auto spare = submit(in("besteffort", "gpu:3"));
  const auto usual = submit(spec("gpu:3"));
  EXPECT_EQ(job(spare).partition, "besteffort");
  EXPECT_EQ(job(usual).partition, "main");
  end(all);
  EXPECT_EQ(state(usual), "RUNNING");
  EXPECT_EQ(state(spare), "PENDING");
}

TEST_F(EnginePartitionTest, AJobHasTheGpusOfItsPartition) {
  use({{.name = "course", .gpus = {1, 3}}, {.name = "rest", .is_default = false, .gpus = {0, 2}}});
  const auto course = submit(in("course", "gpu:2"));
  EXPECT_EQ(gpus_of(course), (std::set<std::string>{"GPU-1", "GPU-3"}));
  const auto waits = submit(in("course", "gpu:1"));
  EXPECT_EQ(job(waits).reason, "Resources");
  EXPECT_EQ(gpus_of(submit(in("rest", "gpu:1"))).size(), 1U);
  EXPECT_EQ(refusal(in("course", "gpu:3")), "ESLURM_REQUESTED_NODE_CONFIG_UNAVAILABLE");
  const auto refused = engine->queue().submit({Uid(1000)}, in("course", "gpu:3"));
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message, HasSubstr("partition course can never give gpu:3"));
  crash();
  EXPECT_EQ(state(waits), "PENDING");
  end(course);
  EXPECT_EQ(state(waits), "RUNNING");
}

TEST_F(EnginePartitionTest, WhoMayNotUseItIsRefused) {
  use({{.name = "ann", .users = {"u1000"}},
       {.name = "staff", .is_default = false, .groups = {"g", "other"}},
       {.name = "ml", .is_default = false, .users = {"u1000"}, .groups = {"second"}}});
  EXPECT_EQ(refusal(in("ann")), "accepted");
  EXPECT_EQ(refusal(in("ann"), Uid(1001)), "ESLURM_JOB_MISSING_REQUIRED_PARTITION_GROUP");
  EXPECT_EQ(refusal(in(""), Uid(1001)), "ESLURM_JOB_MISSING_REQUIRED_PARTITION_GROUP");
  EXPECT_EQ(refusal(in("staff,ann"), Uid(1001)), "ESLURM_JOB_MISSING_REQUIRED_PARTITION_GROUP");
  EXPECT_EQ(refusal(in("staff"), Uid(1001)), "accepted");
  EXPECT_EQ(refusal(in("ml"), Uid(1001)), "ESLURM_JOB_MISSING_REQUIRED_PARTITION_GROUP");
  users.groups[Uid(1001)] = {"g", "second"};
  EXPECT_EQ(refusal(in("ml"), Uid(1001)), "accepted");
  EXPECT_EQ(refusal(in("ann"), Uid(0)), "accepted");
  // Who was let in stays in, and may still change other things.
  auto held = in("ann");
  held.hold = true;
  const auto id = std::to_string(submit(held));
  settings.partitions[0].users = {"nobody"};
  (void)engine->reload(settings);
  EXPECT_TRUE(update({Uid(1000)}, id, R"({"name":"new"})"));
  EXPECT_FALSE(update({Uid(1000)}, id, R"({"partition":"staff,ann"})"));
}

TEST_F(EnginePartitionTest, OfSeveralTheFirstThatCanStartItDoes) {
  use({{.name = "a", .max_time = {minutes(10)}, .default_time = {minutes(5)}, .gpus = {0}},
       {.name = "b", .is_default = false, .gpus = {1, 2}}});
  const auto first = submit(in("a,b", "gpu:1"));
  EXPECT_EQ(job(first).partition, "a");
  EXPECT_EQ(job(first).time_limit_ms, minutes(5).value());
  const auto second = submit(in("a,b", "gpu:1"));
  EXPECT_EQ(job(second).partition, "b");
  EXPECT_EQ(job(second).time_limit_ms, hours(24).value());
  EXPECT_EQ(gpus_of(second).count("GPU-0"), 0U);
  // Too long for one of them, too large for the other one.
  auto longer = in("a,b", "gpu:1");
  longer.time_limit_ms = minutes(20).value();
  EXPECT_EQ(job(submit(longer)).partition, "b");
  EXPECT_EQ(refusal(in("a,b", "gpu:3")), "ESLURM_REQUESTED_NODE_CONFIG_UNAVAILABLE");
  const auto waits = submit(in("a,b", "gpu:1"));
  EXPECT_EQ(job(waits).partition, "a,b");
  EXPECT_EQ(job(waits).reason, "Resources");
  crash();
  end(first);
  EXPECT_EQ(job(waits).partition, "a");
  EXPECT_EQ(state(waits), "RUNNING");
  EXPECT_EQ(refusal(in("a,nope")), "ESLURM_INVALID_PARTITION_NAME");
  EXPECT_EQ(refusal(in("a,")), "ESLURM_INVALID_PARTITION_NAME");
  // A requeued one has its choice again.
  ASSERT_TRUE(engine->runs().requeue({Uid(1000)}, std::to_string(waits), true));
  settle();
  end(waits);
  EXPECT_EQ(job(waits).partition, "a,b");
}

TEST_F(EnginePartitionTest, EachElementOfAnArrayGoesWhereThereIsRoom) {
  use({{.name = "a", .gpus = {0}}, {.name = "b", .is_default = false, .gpus = {1}}});
  auto array = in("a,b", "gpu:1");
  array.array = "1-3";
  const auto id = submit(array);
  EXPECT_EQ(job(fmt::format("{}_1", id)).partition, "a");
  EXPECT_EQ(job(fmt::format("{}_2", id)).partition, "b");
  EXPECT_EQ(job(fmt::format("{}_3", id)).state, "PENDING");
}

TEST_F(EnginePartitionTest, WhySaysWhichLimitAndWhatToDo) {
  use({{.name = "short", .max_time = {minutes(30)}, .default_time = {minutes(10)}}});
  auto longer = spec();
  longer.time_limit_ms = hours(2).value();
  const auto id = submit(longer);
  EXPECT_EQ(job(id).reason, "PartitionTimeLimit");
  EXPECT_EQ(why(id), fmt::format("Its time limit, 2:00:00, is longer than the partition short "
                                 "allows, 30:00: 'scontrol update jobid={} timelimit=30:00'.",
                                 id));
  settings.partitions[0].up = false;
  (void)engine->reload(settings);
  settle();
  EXPECT_EQ(job(id).reason, "PartitionDown");
  EXPECT_EQ(why(id), "The partition short is down or gone: an administrator brings it up.");
}

// What still runs in a partition that the settings have no more counts in no other one, and lifts
// no limit of another one.
TEST_F(EnginePartitionTest, APartitionThatIsGoneLeavesTheOthersTheirLimits) {
  use({{.name = "main", .gpu_count = 2}, {.name = "old", .is_default = false}});
  EXPECT_EQ(state(submit(in("old", "gpu:1"))), "RUNNING");
  use({{.name = "main", .gpu_count = 2}});
  for (int i = 0; i < 2; ++i) EXPECT_EQ(state(submit(in("main", "gpu:1"))), "RUNNING");
  EXPECT_EQ(job(submit(in("main", "gpu:1"))).reason, "QOSGrpGRES");
}

}  // namespace
}  // namespace aliquot::engine
