#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/engine_fixture.hpp"

namespace aliquot::engine {
namespace {

using testing::ElementsAre;

class EngineStepsTest : public testing::Test, public EngineFixture {
 protected:
  Answer<api::Allocation> step(std::int64_t job, const api::StepSpec& spec = {}) {
    return begin_step({Uid(1000)}, std::to_string(job), spec);
  }
  static api::StepSpec with_gpus(const std::string& gres) {
    api::StepSpec spec;
    spec.gres = gres;
    return spec;
  }
  std::vector<std::string> gpus_of(std::int64_t job, std::size_t step) {
    return this->job(job).steps.at(step + 1).gpus;  // the first is the batch script
  }
};

TEST_F(EngineStepsTest, AStepOfASuspendedJobIsToWait) {
  const auto id = submit(spec());
  ASSERT_TRUE(engine->runs().suspend({Uid(1000)}, std::to_string(id)));
  settle();
  EXPECT_EQ(code_of(step(id).error()), "ESLURM_NODES_BUSY");
  ASSERT_TRUE(engine->runs().resume({Uid(1000)}, std::to_string(id)));
  settle();
  EXPECT_TRUE(step(id));
}

TEST_F(EngineStepsTest, AStepIsCancelledAloneAndTheJobGoesOn) {
  const auto id = submit(spec());
  ASSERT_TRUE(step(id));
  ASSERT_TRUE(step(id));
  ASSERT_TRUE(engine->clients().cancel_step({Uid(1000)}, "1", "0", {}));
  ASSERT_TRUE(engine->clients().cancel_step({Uid(1000)}, "1", "1", {.signal = 10}));
  ASSERT_TRUE(engine->clients().cancel_step({Uid(1000)}, "1", "batch", {.signal = 12}));
  settle();
  EXPECT_THAT(executor.step_signals, ElementsAre("1.0 9", "1.1 10"));
  EXPECT_EQ(executor.commands.size(), 1U);
  EXPECT_EQ(state(id), "RUNNING");
  ASSERT_TRUE(engine->clients().end_step({Uid(1000)}, "1", 0, {.exit_signal = 9}));
  settle();
  EXPECT_EQ(job(id).steps.at(1).state, "CANCELLED");
  const auto code = [&](const char* job, const char* one, Uid uid = Uid(1000)) {
    return code_of(engine->clients().cancel_step({uid}, job, one, {}).error());
  };
  EXPECT_EQ(code("1", "0"), "ESLURM_ALREADY_DONE") << "it is over";
  EXPECT_EQ(code("1", "7"), "ESLURM_INVALID_JOB_ID");
  EXPECT_EQ(code("1", "x"), "ESLURM_INVALID_JOB_ID");
  EXPECT_EQ(code("9", "0"), "ESLURM_INVALID_JOB_ID");
  for (const std::int64_t over : {0, 7}) {
    EXPECT_FALSE(engine->clients().end_step({Uid(1000)}, "1", over, {.exit_code = 5})) << over;
  }
  settle();
  EXPECT_EQ(job(id).derived_exit_code, 0);
  EXPECT_EQ(code("1", "1", Uid(1001)), "ESLURM_ACCESS_DENIED");
}

// Groups of steps that are over would pile up until the job ends.
TEST_F(EngineStepsTest, AStepThatIsOverIsForgottenHoweverItEnded) {
  const auto id = submit(spec());
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(step(id));
  ASSERT_TRUE(engine->clients().end_step({Uid(1000)}, "1", 1, {}));
  settle();
  engine->clients().hang_up_step({JobId(id), 0, 2});
  settle();
  EXPECT_THAT(executor.forgotten_steps, ElementsAre("1.1", "1.2"));
}

TEST_F(EngineStepsTest, WhoDoesNotDieIsNamed) {
  const auto id = submit(spec());
  engine->runs().on_stuck(JobId(id), 1, "of another run");
  settle();
  EXPECT_EQ(job(id).reason_detail, "");
  const auto stuck = [&](std::int64_t attempt) {
    engine->runs().on_stuck(JobId(id), attempt, "process 9 does not die");
    settle();
    EXPECT_EQ(job(id).reason_detail,
              "process 9 does not die: the job keeps what it holds until it does");
  };
  stuck(0);
  ASSERT_TRUE(engine->runs().requeue({Uid(1000)}, std::to_string(id), true));
  end(id);
  EXPECT_EQ(job(id).reason_detail, "held: 'scontrol release 1'") << "what was is no reason now";
  ASSERT_TRUE(engine->queue().release({Uid(1000)}, std::to_string(id)));
  settle();
  stuck(1);
  end(id);
  EXPECT_EQ(state(id), "COMPLETED");
  EXPECT_EQ(job(id).reason_detail, "") << "it did die";
}

TEST_F(EngineStepsTest, StepsThatAskGetDifferentGpus) {
  const auto id = submit(spec("gpu:3"));
  ASSERT_TRUE(step(id, with_gpus("gpu:1")));
  ASSERT_TRUE(step(id, with_gpus("gpu:2")));
  const auto one = gpus_of(id, 0);
  const auto two = gpus_of(id, 1);
  ASSERT_EQ(one.size(), 1U);
  ASSERT_EQ(two.size(), 2U);
  EXPECT_THAT(two, testing::Not(testing::Contains(one[0])));

  EXPECT_EQ(code_of(step(id, with_gpus("gpu:1")).error()), "ESLURM_NODES_BUSY");
  EXPECT_EQ(code_of(step(id, with_gpus("gpu:4")).error()), "ESLURM_INVALID_GRES");
  EXPECT_EQ(code_of(step(id, with_gpus("gpu:a100:1")).error()), "ESLURM_INVALID_GRES");
  EXPECT_EQ(code_of(step(id, with_gpus("nonsense")).error()), "ESLURM_INVALID_GRES");
  auto beside = with_gpus("gpu:3");
  beside.overlap = true;
  EXPECT_TRUE(step(id, beside));
  EXPECT_TRUE(step(id)) << "who asks for nothing sees all, as before";

  // What a step holds survives the daemon, and is free again at its end.
  crash();
  EXPECT_EQ(code_of(step(id, with_gpus("gpu:1")).error()), "ESLURM_NODES_BUSY");
  ASSERT_TRUE(engine->clients().end_step({Uid(1000)}, "1", 0, {}));
  ASSERT_TRUE(engine->clients().end_step({Uid(1000)}, "1", 2, {}));
  EXPECT_TRUE(step(id, with_gpus("gpu:h200:1")));
  api::StepSpec tasks;
  tasks.ntasks = 2;
  tasks.gpus_per_task = "1";
  EXPECT_EQ(code_of(step(id, tasks).error()), "ESLURM_TOO_MANY_REQUESTED_CPUS");
}

TEST_F(EngineStepsTest, AStepsNameIsShownToOthers) {
  const auto id = submit(spec());
  api::StepSpec named;
  named.name = "x\x1b[2J";
  EXPECT_EQ(code_of(step(id, named).error()), "ESLURM_INVALID_JOB_TEXT");
}

TEST_F(EngineStepsTest, ImmediateWaitsSoLongAndNoLonger) {
  submit(spec("gpu:4"));
  auto wanted = spec("gpu:1");
  wanted.immediate = true;
  wanted.immediate_s = 5;
  std::string answer;
  const auto ask = [&] {
    answer.clear();
    (void)engine->clients().allocate({Uid(1000)}, wanted, [&](const auto& granted) {
      answer = granted ? "granted" : code_of(granted.error());
    });
    settle();
  };
  ask();
  EXPECT_EQ(engine->next_due(), clock.wall() + seconds(5));
  clock.advance(Millis(4'999));
  settle();
  EXPECT_EQ(answer, "");
  clock.advance(Millis(1));
  settle();
  EXPECT_EQ(answer, "ESLURM_NODES_BUSY");
  EXPECT_EQ(state(2), "CANCELLED");
  ask();
  clock.advance(seconds(2));
  end(1);
  EXPECT_EQ(answer, "granted");
  clock.advance(seconds(10));
  settle();
  EXPECT_EQ(state(3), "RUNNING");
}

// It is let in on a worker; what comes meanwhile must not leave it without an answer.
TEST_F(EngineStepsTest, WhoIsLetInWhileTheJobEndsIsToldAtOnce) {
  std::vector<std::string> answers;
  const auto tell = [&](const auto& granted) {
    answers.push_back(granted ? "granted" : code_of(granted.error()));
  };
  ASSERT_TRUE(engine->clients().allocate({Uid(1000)}, spec("gpu:1"), tell));
  engine->settle();
  ASSERT_TRUE(engine->runs().cancel({Uid(1000)}, "1", {}));
  engine->settle();
  executor.deliver_admitted();
  engine->settle();
  EXPECT_THAT(answers, testing::ElementsAre("ESLURM_ALREADY_DONE")) << "before the job has ended";
  settle();
  EXPECT_EQ(state(1), "CANCELLED");
  EXPECT_EQ(answers.size(), 1U);
}

TEST_F(EngineStepsTest, AStepThatComesWhileTheJobEndsIsRefused) {
  const auto id = std::to_string(submit(spec()));
  std::vector<std::string> answers;
  const auto begin = [&] {
    answers.clear();
    ASSERT_TRUE(engine->clients().begin_step({Uid(1000)}, id, {}, [&](const auto& granted) {
      answers.push_back(granted ? "granted" : code_of(granted.error()));
    }));
    engine->settle();
  };
  const auto admit = [&] {
    executor.deliver_admitted();
    engine->settle();
  };
  begin();
  ASSERT_TRUE(engine->clients().cancel_step({Uid(1000)}, id, "0", {}));
  engine->settle();
  admit();
  EXPECT_THAT(answers, testing::ElementsAre("ESLURM_ALREADY_DONE")) << "cancelled";
  begin();
  ASSERT_TRUE(engine->runs().cancel({Uid(1000)}, id, {}));
  engine->settle();
  admit();
  EXPECT_THAT(answers, testing::ElementsAre("ESLURM_ALREADY_DONE")) << "its job is ending";
  EXPECT_THAT(executor.forgotten_steps, testing::ElementsAre(id + ".0", id + ".1"));
}

// Each has a group by then, of which the machine has only so many.
TEST_F(EngineStepsTest, AStepThatCannotBeLetInLeavesNothing) {
  const auto id = std::to_string(submit(spec()));
  executor.cannot_start = "process 9 is in job 3";
  std::vector<std::string> answers;
  ASSERT_TRUE(engine->clients().begin_step({Uid(1000)}, id, {}, [&](const auto& granted) {
    answers.push_back(granted ? "granted" : granted.error().message);
  }));
  engine->settle();
  executor.deliver_admitted();
  engine->settle();
  EXPECT_THAT(answers, testing::ElementsAre("process 9 is in job 3"));
  EXPECT_THAT(executor.forgotten_steps, testing::ElementsAre(id + ".0"));
}

TEST_F(EngineStepsTest, ADetachedAllocationLivesWithoutItsClient) {
  auto wanted = spec("gpu:1");
  wanted.detached = true;
  wanted.time_limit_ms = minutes(5).value();
  const auto id = engine->clients().allocate({Uid(1000)}, wanted, [](const auto&) {});
  ASSERT_TRUE(id);
  settle();
  engine->clients().hang_up(*id);
  settle();
  EXPECT_EQ(state(1), "RUNNING");
  crash();
  clock.advance(minutes(2));
  settle();
  EXPECT_EQ(state(1), "RUNNING") << "nobody needs to attach";
  clock.advance(minutes(4));
  settle();
  EXPECT_EQ(state(1), "TIMEOUT");
  (void)engine->clients().allocate({Uid(1000)}, wanted, [](const auto&) {});
  settle();
  ASSERT_TRUE(engine->runs().cancel({Uid(1000)}, "2", {}));
  settle();
  EXPECT_EQ(state(2), "CANCELLED");
}

TEST_F(EngineStepsTest, TopLowersOnesOwnOthersAlone) {
  submit(spec("gpu:4"));
  for (int i = 0; i < 3; ++i) submit(spec("gpu:4"));  // 2, 3, 4
  submit(spec("gpu:4"), Uid(1001));                   // 5
  const auto before = job(4).priority;
  ASSERT_TRUE(engine->queue().top({Uid(1000)}, "4,3"));
  settle();
  EXPECT_EQ(job(4).priority, before);
  EXPECT_LT(job(3).priority, job(4).priority);
  EXPECT_LT(job(2).priority, job(3).priority);
  EXPECT_EQ(job(5).priority, before);
  EXPECT_EQ(code_of(engine->queue().top({Uid(1000)}, "5").error()), "ESLURM_ACCESS_DENIED");
  EXPECT_EQ(code_of(engine->queue().top({Uid(1000)}, "1").error()), "ESLURM_JOB_NOT_PENDING");
  EXPECT_EQ(code_of(engine->queue().top({Uid(0)}, "4,5").error()), "ESLURM_ACCESS_DENIED");
  end(1);
  EXPECT_EQ(state(4), "RUNNING");
}

TEST_F(EngineStepsTest, AnArraysThrottleChanges) {
  auto array = spec("gpu:1");
  array.array = "1-8%1";
  const auto id = submit(array);
  EXPECT_EQ(engine->ledger().size(), 1U);
  ASSERT_TRUE(update({Uid(1000)}, std::to_string(id), R"({"array_throttle":3})"));
  settle();
  EXPECT_EQ(engine->ledger().size(), 3U);
  EXPECT_EQ(job(id).array_pending, "4-8%3");
  crash();
  ASSERT_TRUE(update({Uid(1000)}, std::to_string(id), R"({"array_throttle":0})"));
  settle();
  EXPECT_EQ(engine->ledger().size(), 4U) << "as many as fit";
  const auto plain = submit(spec());
  EXPECT_TRUE(update({Uid(1000)}, std::to_string(plain), R"({"array_throttle":3})"))
      << "nothing to it, as in Slurm";
  EXPECT_FALSE(update({Uid(1000)}, std::to_string(id), R"({"array_throttle":-1})"));
}

TEST_F(EngineStepsTest, ADrainOutlivesTheDaemonAndSaysWho) {
  EXPECT_FALSE(engine->queue().drain({Uid(1000)}, "mine"));
  ASSERT_TRUE(engine->queue().drain({Uid(0)}, "bad gpu 2"));
  settle();
  const auto since = clock.wall().ms();
  clock.advance(minutes(1));
  crash();
  auto node = engine->views().cluster_info().node;
  EXPECT_EQ(node.state, "drained");
  EXPECT_EQ(node.reason, "bad gpu 2");
  EXPECT_EQ(node.reason_user, "u0");
  EXPECT_EQ(node.reason_ms, since);
  const auto id = submit(spec());
  EXPECT_EQ(job(id).reason, "ReqNodeNotAvail");
  EXPECT_EQ(job(id).reason_detail, "the machine is drained: bad gpu 2");
  ASSERT_TRUE(engine->queue().undrain({Uid(0)}));
  settle();
  crash();
  EXPECT_EQ(engine->views().cluster_info().node.reason, "");
  EXPECT_EQ(state(id), "RUNNING");
}

TEST_F(EngineStepsTest, AUserHoldsSoManyGpusAtOnce) {
  settings.gpus_per_user = kWholeGpu * 2;
  crash();
  submit(spec("gpu:1"));
  submit(spec("mps:50"));
  const auto over = submit(spec("gpu:1"));
  EXPECT_EQ(job(over).reason, "QOSMaxGRESPerUser");
  EXPECT_EQ(job(over).reason_detail, "a limit keeps it: 'aliquot why 3' says whose");
  EXPECT_THAT(engine->views().why({Uid(1000)}, std::to_string(over))->sentences,
              ElementsAre("Each user may hold 2 GPUs at once.",
                          "u1000 holds 1.5 GPUs with jobs 1 and 2, and this job wants 1 GPU.",
                          "It can start when enough of them have ended."));
  EXPECT_EQ(state(submit(spec("mps:50"))), "RUNNING") << "a part that still fits";
  EXPECT_EQ(state(submit(spec())), "RUNNING") << "without GPUs";
  EXPECT_EQ(state(submit(spec("gpu:2"), Uid(1001))), "RUNNING") << "others are others";
  EXPECT_EQ(engine->views().cluster_info().config.at("MaxGpusPerUser"), "2");
  end(1);
  EXPECT_EQ(state(over), "RUNNING");
}

TEST_F(EngineStepsTest, AStartIsToldWhereItIsKnown) {
  auto limited = spec("gpu:4");
  limited.time_limit_ms = minutes(5).value();
  submit(limited);
  EXPECT_EQ(test({Uid(1000)}, spec("gpu:1"))->start_ms, (clock.wall() + minutes(5)).ms());
  auto endless = spec("gpu:4");
  endless.no_time_limit = true;
  const auto next = submit(endless);
  EXPECT_EQ(job(next).start_ms, (clock.wall() + minutes(5)).ms());
  end(1);
  ASSERT_EQ(state(next), "RUNNING") << "without a limit";
  auto one = spec("gpu:1");
  one.no_time_limit = true;
  const auto last = submit(one);
  EXPECT_EQ(job(last).start_ms, std::nullopt);
  EXPECT_EQ(test({Uid(1000)}, spec("gpu:1"))->start_ms, std::nullopt);
  const auto why = engine->views().why({Uid(1000)}, std::to_string(last));
  EXPECT_EQ(why->earliest_start_ms, std::nullopt);
  EXPECT_EQ(why->sentences.back(),
            "When it can start is not known: jobs without a time limit hold what it needs.");
}

// What is done late for one run must not touch the next.
TEST_F(EngineStepsTest, EachRunIsForgottenByItself) {
  const auto id = submit(spec());
  ASSERT_TRUE(engine->runs().requeue({Uid(1000)}, "1", false));
  end(id);
  ASSERT_EQ(state(id), "RUNNING") << "again";
  EXPECT_THAT(executor.forgotten_runs, ElementsAre(node::Run{JobId(1), 0}));
  end(id);
  EXPECT_THAT(executor.forgotten_runs, ElementsAre(node::Run{JobId(1), 0}, node::Run{JobId(1), 1}));
}

// Else it would be ended with what it runs, before it can say how that went.
TEST_F(EngineStepsTest, AClientIsKnownAgainAfterARestart) {
  auto wanted = spec();
  wanted.batch = false;
  (void)engine->clients().allocate({Uid(1000), Pid(71)}, wanted, [](const auto&) {});
  settle();
  crash();
  ASSERT_TRUE(engine->clients().attach({Uid(1000), Pid(71)}, "1"));
  settle();
  EXPECT_THAT(executor.attached, ElementsAre("1 71"));
  crash();
  ASSERT_TRUE(engine->clients().end_allocation({Uid(1000), Pid(71)}, "1", {}));
  settle();
  EXPECT_THAT(executor.attached, ElementsAre("1 71", "1 71")) << "without attaching before";
  EXPECT_EQ(state(1), "COMPLETED");
}

// A copy of the connection may live on in what the client started.
TEST_F(EngineStepsTest, AnAllocationEndsWhenItsClientSaysSo) {
  auto wanted = spec();
  wanted.batch = false;
  (void)engine->clients().allocate({Uid(1000)}, wanted, [](const auto&) {});
  settle();
  ASSERT_TRUE(engine->clients().end_allocation({Uid(1000)}, "1", {.exit_code = 3}));
  settle();
  EXPECT_EQ(state(1), "FAILED");
  EXPECT_EQ(job(1).exit_code, 3);
  engine->clients().hang_up(JobId(1));
  settle();
}

}  // namespace
}  // namespace aliquot::engine
