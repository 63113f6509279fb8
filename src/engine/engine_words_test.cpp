// Words of users that the engine carries out, and what it tells them of ends and reasons.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/engine_fixture.hpp"

namespace aliquot::engine {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class EngineWordsTest : public testing::Test, protected EngineFixture {
 protected:
  std::string why(std::int64_t id) {
    const auto info = engine->views().why({Uid(1000)}, std::to_string(id));
    return info ? info->sentences.back() : info.error().message;
  }
};

TEST_F(EngineWordsTest, ExclusiveIsTheMachineWithAllItsGpus) {
  auto wanted = spec("gpu:1");
  wanted.exclusive = true;
  const auto id = submit(wanted);
  EXPECT_EQ(job(id).gpus.size(), 4U);
  EXPECT_EQ(job(id).cpus, 64);
  EXPECT_EQ(state(submit(spec("gpu:1"))), "PENDING");
  auto share = spec("mps:50");
  share.exclusive = true;
  EXPECT_EQ(refusal(share), "ESLURM_INVALID_GRES");
}

TEST_F(EngineWordsTest, CpusByOtherCountsThanTasks) {
  auto wanted = spec();
  wanted.min_cpus = 8;
  EXPECT_EQ(job(submit(wanted)).cpus, 8);
  wanted.ntasks = 9;
  EXPECT_EQ(job(submit(wanted)).cpus, 9) << "at least";
  wanted.min_cpus.reset();
  wanted.cpus_per_task = 2;
  wanted.overcommit = true;
  EXPECT_EQ(job(submit(wanted)).cpus, 2) << "what one of the tasks asks for";
  wanted.min_cpus = 0;
  EXPECT_EQ(refusal(wanted), "ESLURM_REQUESTED_NODE_CONFIG_UNAVAILABLE");
}

TEST_F(EngineWordsTest, AStepMayHaveMoreTasksThanCpusWhereItSaysSo) {
  const auto id = std::to_string(submit(spec()));
  api::StepSpec step;
  step.ntasks = 4;
  EXPECT_EQ(code_of(begin_step({Uid(1000)}, id, step).error()), "ESLURM_TOO_MANY_REQUESTED_CPUS");
  step.overcommit = true;
  EXPECT_TRUE(begin_step({Uid(1000)}, id, step));
}

TEST_F(EngineWordsTest, WhyNamesLimitsTimesAndWhatToDo) {
  settings.partitions = {{.name = "short",
                          .is_default = true,
                          .up = true,
                          .max_time = {minutes(30)},
                          .default_time = {minutes(10)}}};
  crash();
  auto wanted = spec();
  wanted.time_limit_ms = minutes(60).value();
  EXPECT_EQ(why(submit(wanted)),
            "Its time limit, 1:00:00, is longer than the partition short allows, 30:00: 'scontrol "
            "update jobid=1 timelimit=30:00'.");
  wanted = spec();
  wanted.begin_ms = (clock.wall() + hours(1)).ms();
  EXPECT_THAT(why(submit(wanted)), HasSubstr("It is not to start before 20"));
  const auto failing = submit(spec());
  end(failing, 1);
  wanted = spec();
  wanted.dependency = "afterok:" + std::to_string(failing);
  EXPECT_EQ(why(submit(wanted)),
            "What it waits for can never happen any more (afterok:3): 'scancel 4', or 'scontrol "
            "update JobId=4 Dependency=' to start it without.");
}

TEST_F(EngineWordsTest, WhyTellsOfTheEnd) {
  const auto id = submit(spec());
  clock.advance(seconds(12));
  end(id, 3);
  EXPECT_EQ(why(id), "It ended with exit code 3 after 0:12.");
}

TEST_F(EngineWordsTest, RunsBeforeARequeueAreKept) {
  const auto id = submit(spec());
  clock.advance(seconds(5));
  ASSERT_TRUE(engine->runs().requeue({Uid(1000)}, "1", false));
  end(id);
  ASSERT_EQ(state(id), "RUNNING");
  crash();
  AccountingQuery query;
  EXPECT_EQ(engine->views().accounting({Uid(1000)}, query)->jobs.size(), 1U);
  query.earlier = true;
  const auto all = engine->views().accounting({Uid(1000)}, query)->jobs;
  ASSERT_EQ(all.size(), 2U);
  EXPECT_EQ(all[0].state, "REQUEUED");
  EXPECT_EQ(all[0].restarts, 0);
  EXPECT_EQ(*all[0].end_ms - *all[0].start_ms, 5'000);
  ASSERT_EQ(all[0].steps.size(), 1U);
  EXPECT_EQ(all[0].steps[0].id, "batch");
  EXPECT_EQ(all[1].state, "RUNNING");
  EXPECT_EQ(all[1].restarts, 1);
}

TEST_F(EngineWordsTest, AClientHearsOfTheEndWhenItBegins) {
  auto wanted = spec();
  wanted.batch = false;
  wanted.time_limit_ms = minutes(1).value();
  std::vector<std::string> told;
  const auto watch = [&](const std::string& id) {
    return engine->views().wait_for_ending({Uid(1000)}, id, [&](const auto& job) {
      told.push_back(
          job ? fmt::format("{} {} {}", job->state, job->reason, job->cancelled_by.value_or(0))
              : job.error().message);
    });
  };
  for (int i = 0; i < 2; ++i) {
    (void)engine->clients().allocate({Uid(1000)}, wanted, [](const auto&) {});
    settle();
  }
  EXPECT_TRUE(watch("1"));
  EXPECT_TRUE(watch("2"));
  const auto gone = watch("2");
  engine->views().stop_waiting(*gone);
  EXPECT_TRUE(told.empty());
  ASSERT_TRUE(engine->runs().cancel({Uid(1000)}, "1", {}));
  settle();
  EXPECT_THAT(told, ElementsAre("COMPLETING None 1000"));
  clock.advance(minutes(1));
  settle();
  EXPECT_THAT(told, ElementsAre("COMPLETING None 1000", "COMPLETING TimeLimit 0"));
  EXPECT_FALSE(watch("2")) << "at once";
  EXPECT_EQ(told.size(), 3U);
}

TEST_F(EngineWordsTest, AStepSaysWhatEndedIt) {
  const auto id = std::to_string(submit(spec()));
  const auto ended = [&](const api::StepEnd& end) {
    const auto step = begin_step({Uid(1000)}, id, {});
    EXPECT_TRUE(step);
    EXPECT_TRUE(engine->clients().end_step({Uid(1000)}, id, *step->step_id, end));
    settle();
    return job(id).steps.back().state;
  };
  EXPECT_EQ(ended({}), "COMPLETED");
  EXPECT_EQ(ended({.exit_code = 1}), "FAILED");
  EXPECT_EQ(ended({.exit_signal = 9}), "CANCELLED") << "as in Slurm";
  EXPECT_EQ(ended({.exit_signal = 9, .out_of_memory = true}), "OUT_OF_MEMORY");
  EXPECT_EQ(ended({.exit_signal = 15, .timed_out = true}), "TIMEOUT");
}

}  // namespace
}  // namespace aliquot::engine
