#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>
#include <unistd.h>

#include "engine/engine_fixture.hpp"
#include "engine/history_fixture.hpp"

namespace aliquot::engine {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

class EngineTest : public testing::Test, public EngineFixture {
 protected:
  // Of a job whose stepd does not keep its time limit.
  void expect_cancelled_when_due(std::int64_t id) {
    const auto& run = executor.runs.at({id, 0});
    EXPECT_FALSE(run.cancelled);
    ASSERT_TRUE(engine->next_due());
    clock.advance(*engine->next_due() - clock.wall());
    settle();
    EXPECT_TRUE(run.cancelled);
  }
};

TEST_F(EngineTest, RunsAJobFromSubmissionToItsEnd) {
  const auto id = submit(spec("gpu:1"));
  EXPECT_EQ(id, 1);
  EXPECT_EQ(state(id), "RUNNING");
  EXPECT_EQ(job(id).gpus.size(), 1U);
  EXPECT_EQ(job(id).std_out, "/tmp/slurm-1.out");
  EXPECT_EQ(executor.runs.begin()->second.order.payload.script, "#!/bin/sh\n");
  clock.advance(seconds(5));
  end(id, 3);
  const auto over = job(id);
  EXPECT_EQ(over.state, "FAILED");
  EXPECT_EQ(over.reason, "NonZeroExitCode");
  EXPECT_EQ(over.exit_code, 3);
  EXPECT_EQ(*over.end_ms - *over.start_ms, 5'000);
  EXPECT_EQ(over.gpu_ms, 5'000);
  ASSERT_EQ(over.steps.size(), 1U);
  EXPECT_EQ(over.steps[0].id, "batch");
  EXPECT_EQ(engine->live(), 0U);
  EXPECT_EQ(engine->ledger().size(), 0U);
  EXPECT_THAT(executor.forgotten, Contains(id));
}

TEST_F(EngineTest, RefusesWithSlurmsErrors) {
  const std::string never = "ESLURM_REQUESTED_NODE_CONFIG_UNAVAILABLE";
  using Change = std::function<void(api::JobSpec&)>;
  const std::vector<std::pair<std::string, Change>> wrong{
      {"ESLURM_INVALID_PARTITION_NAME", [](auto& job) { job.partition = "nope"; }},
      {never, [](auto& job) { job.gres = "gpu:99"; }},
      {never, [](auto& job) { job.gres = "gpu:titan:1"; }},
      {"ESLURM_INVALID_GRES", [](auto& job) { job.gres = "gpu:x:y:z"; }},
      {never, [](auto& job) { job.nodes = 2; }},
      {never, [](auto& job) { job.memory = gib(900).value(); }},
      {never, [](auto& job) { job.cpus_per_task = 65; }},
      {"ESLURM_DEPENDENCY", [](auto& job) { job.dependency = "bogus:1"; }},
      {"ESLURM_DEPENDENCY", [](auto& job) { job.dependency = "afterok:77"; }},
      {"ESLURM_INVALID_ARRAY", [](auto& job) { job.array = "a-b"; }},
      {"ESLURM_JOB_SCRIPT_MISSING", [](auto& job) { job.script = "echo"; }},
      {"ESLURM_ACCESS_DENIED", [](auto& job) { job.nice = -5; }},
      {"ESLURM_INVALID_JOB_TEXT", [](auto& job) { job.name = "\033[2J"; }},
      {"ESLURM_INVALID_JOB_TEXT", [](auto& job) { job.work_dir = std::string("/tmp\0/etc", 9); }},
  };
  for (std::size_t i = 0; i < wrong.size(); ++i) {
    auto wanted = spec();
    wrong[i].second(wanted);
    EXPECT_EQ(refusal(wanted), wrong[i].first) << "number " << i;
  }
  auto raised = spec();
  raised.nice = -5;
  EXPECT_EQ(refusal(raised, Uid(0)), "accepted");
  EXPECT_EQ(refusal(spec(), Uid(999)), "ESLURM_USER_ID_MISSING");
}

TEST_F(EngineTest, OthersSeeButDoNotTouch) {
  auto secret = spec();
  secret.command = "/home/u1000/secret.sh";
  const auto id = std::to_string(submit(secret));
  const Caller other{Uid(1001)};
  const auto seen = engine->views().show(other, id);
  ASSERT_TRUE(seen);
  EXPECT_EQ(seen->user, "u1000");
  EXPECT_EQ(seen->command + seen->work_dir + seen->std_out, "");
  const auto listed = api::to_json(list(other, {}).value());
  EXPECT_THAT(listed, HasSubstr("u1000"));
  EXPECT_THAT(listed, Not(HasSubstr("secret.sh")));
  EXPECT_THAT(api::to_json(list({Uid(1000)}, {}).value()), HasSubstr("secret.sh"));
  EXPECT_EQ(code_of(engine->views().script(other, id).error()), "ESLURM_ACCESS_DENIED");
  EXPECT_EQ(code_of(engine->runs().cancel(other, id, {}).error()), "ESLURM_ACCESS_DENIED");
  EXPECT_EQ(code_of(engine->runs().requeue(other, id, false).error()), "ESLURM_ACCESS_DENIED");
  EXPECT_EQ(code_of(engine->runs().suspend(other, id).error()), "ESLURM_ACCESS_DENIED");
  EXPECT_EQ(code_of(begin_step(other, id, {}).error()), "ESLURM_ACCESS_DENIED");
  EXPECT_EQ(code_of(engine->queue().hold(other, id).error()), "ESLURM_USER_ID_MISSING");
  EXPECT_EQ(code_of(update(other, id, "{}").error()), "ESLURM_USER_ID_MISSING");
  EXPECT_EQ(code_of(engine->queue().drain(other, "x").error()), "ESLURM_ACCESS_DENIED");
  EXPECT_TRUE(engine->runs().cancel({Uid(0)}, id, {}));
  EXPECT_EQ(code_of(engine->runs().cancel({Uid(1000)}, "55", {}).error()), "ESLURM_INVALID_JOB_ID");
}

TEST_F(EngineTest, AnOrdinaryUsersDaemonServesThatUserAlone) {
  owner = Uid(1000);
  crash();
  EXPECT_EQ(refusal(spec(), Uid(1001)), "ESLURM_ACCESS_DENIED");
  EXPECT_FALSE(list({Uid(1001)}, {}));
  EXPECT_EQ(refusal(spec(), Uid(1000)), "accepted");
}

TEST_F(EngineTest, WaitsForRoomAndSaysWhy) {
  const auto first = submit(spec("gpu:4"));
  const auto second = submit(spec("gpu:1"));
  const auto third = submit(spec("gpu:1"));
  EXPECT_EQ(state(second), "PENDING");
  EXPECT_EQ(job(second).reason, "Resources");
  EXPECT_EQ(job(third).reason, "Priority");
  EXPECT_FALSE(engine->views().why({Uid(1000)}, std::to_string(second))->sentences.empty());
  end(first);
  EXPECT_EQ(state(second), "RUNNING");
  EXPECT_EQ(state(third), "RUNNING");
}

TEST_F(EngineTest, CancelsWhatWaitsAndWhatRuns) {
  const auto running = submit(spec("gpu:4"));
  const auto waiting = submit(spec("gpu:1"));
  ASSERT_TRUE(engine->runs().cancel({Uid(1000)}, std::to_string(waiting), {}));
  settle();
  EXPECT_EQ(state(waiting), "CANCELLED");
  EXPECT_EQ(job(waiting).cancelled_by, 1000U);
  ASSERT_TRUE(engine->runs().cancel({Uid(1000)}, std::to_string(running), {}));
  settle();
  EXPECT_EQ(state(running), "COMPLETING");
  EXPECT_EQ(engine->ledger().size(), 1U);
  end(running);
  EXPECT_EQ(state(running), "CANCELLED");
  EXPECT_EQ(engine->ledger().size(), 0U);
  EXPECT_EQ(code_of(engine->runs().cancel({Uid(1000)}, std::to_string(running), {}).error()),
            "ESLURM_ALREADY_DONE");
}

TEST_F(EngineTest, HoldsAndReleases) {
  auto held = spec();
  held.hold = true;
  const auto id = submit(held);
  EXPECT_EQ(job(id).reason, "JobHeldUser");
  ASSERT_TRUE(engine->queue().release({Uid(1000)}, std::to_string(id)));
  settle();
  EXPECT_EQ(state(id), "RUNNING");
  auto later = spec();
  later.begin_ms = (clock.wall() + minutes(1)).ms();
  const auto begin = submit(later);
  EXPECT_EQ(job(begin).reason, "BeginTime");
  ASSERT_TRUE(engine->queue().hold({Uid(0)}, std::to_string(begin)));
  settle();
  EXPECT_EQ(job(begin).reason, "JobHeldAdmin");
  EXPECT_EQ(code_of(engine->queue().release({Uid(1000)}, std::to_string(begin)).error()),
            "ESLURM_ACCESS_DENIED");
  ASSERT_TRUE(engine->queue().release({Uid(0)}, std::to_string(begin)));
  settle();
  EXPECT_EQ(engine->next_due(), WallTime(*later.begin_ms));
  clock.advance(minutes(1));
  settle();
  EXPECT_EQ(state(begin), "RUNNING");
}

TEST_F(EngineTest, RequeueKeepsTheId) {
  const auto id = submit(spec("gpu:1"));
  ASSERT_TRUE(engine->runs().requeue({Uid(1000)}, std::to_string(id), false));
  settle();
  EXPECT_EQ(state(id), "COMPLETING");
  end(id);
  EXPECT_EQ(state(id), "RUNNING");
  EXPECT_EQ(job(id).restarts, 1);
  end(id, 0);
  EXPECT_EQ(state(id), "COMPLETED");
  ASSERT_TRUE(engine->runs().requeue({Uid(1000)}, std::to_string(id), true));
  settle();
  EXPECT_EQ(state(id), "PENDING");
  EXPECT_EQ(job(id).reason, "JobHeldUser");
  EXPECT_EQ(job(id).restarts, 2);
}

TEST_F(EngineTest, WhatIsRequeuedBeforeItCouldStartIsNotFailed) {
  const auto id = submit(spec("gpu:1"));
  ASSERT_TRUE(engine->runs().requeue({Uid(1000)}, std::to_string(id), true));
  settle();
  executor.runs.clear();
  engine->runs().on_never_started(JobId(id), 0, "no MPS server");
  settle();
  EXPECT_EQ(state(id), "PENDING");
  EXPECT_EQ(job(id).reason, "JobHeldUser");
}

TEST_F(EngineTest, ArraysStartElementByElement) {
  auto array = spec();
  array.array = "3-4,7%2";
  const auto id = submit(array);
  EXPECT_EQ(id, 1);
  // As Slurm numbers them: each started element a new id, the last one the array's.
  EXPECT_EQ(job("1_3").id, 2);
  EXPECT_EQ(job("1_4").id, 3);
  EXPECT_EQ(job("1").array_pending, "7%2");
  EXPECT_EQ(job("1").reason, "JobArrayTaskLimit");
  EXPECT_EQ(job("1_3").std_out, "/tmp/slurm-1_3.out");
  end(2);
  EXPECT_EQ(state(1), "RUNNING");
  EXPECT_EQ(job("1_7").id, 1);
  EXPECT_EQ(job("1_7").array_count, 3);
  ASSERT_TRUE(engine->runs().cancel({Uid(1000)}, "1", {}));
  settle();
  EXPECT_EQ(state(1), "COMPLETING");
  EXPECT_EQ(state(3), "COMPLETING");
}

TEST_F(EngineTest, OneWaitingElementCanBeHeldOrCancelled) {
  const auto blocker = submit(spec("gpu:4"));
  auto array = spec("gpu:1");
  array.array = "1-3";
  const auto id = submit(array);
  ASSERT_TRUE(engine->runs().cancel({Uid(1000)}, std::to_string(id) + "_2", {}));
  settle();
  EXPECT_EQ(job(id).array_pending, "1,3");
  EXPECT_EQ(job(std::to_string(id) + "_2").state, "CANCELLED");
  end(blocker);
  EXPECT_EQ(job(std::to_string(id) + "_1").state, "RUNNING");
  EXPECT_EQ(job(std::to_string(id) + "_3").state, "RUNNING");
}

// Nothing is changed by asking, and nothing by what is refused.
TEST_F(EngineTest, AnElementGoesItsOwnWayOnlyWhereSomethingIsDoneToIt) {
  submit(spec("gpu:4"));
  auto array = spec("gpu:1");
  array.array = "1-3";
  submit(array);
  const Caller user{Uid(1000)};
  EXPECT_FALSE(engine->runs().suspend(user, "2_2"));
  EXPECT_FALSE(engine->runs().resume(user, "2_2"));
  EXPECT_FALSE(engine->runs().cancel(user, "2_2", {.signal = 99}));
  EXPECT_FALSE(engine->runs().cancel(user, "2_2", {.signal = 10}));
  EXPECT_FALSE(engine->runs().requeue(user, "2_2", false));
  EXPECT_FALSE(update(user, "2_2", "no JSON"));
  EXPECT_FALSE(update(user, "2_2", R"({"gres":"gpu:9"})"));
  EXPECT_FALSE(update(user, "2_2", R"({"dependency":"afterok:2"})"));
  EXPECT_FALSE(update(user, "2_2", R"({"dependency":"afterok:2_2"})"));
  EXPECT_FALSE(engine->queue().top(user, "2_2,1"));
  EXPECT_FALSE(engine->clients().attach(user, "2_2"));
  EXPECT_FALSE(begin_step(user, "2_2", {}));
  EXPECT_TRUE(engine->queue().release(user, "2_2")) << "nobody holds it";
  settle();
  EXPECT_EQ(job("2").array_pending, "1-3");
  EXPECT_EQ(job("2_2").id, 2);
  // Who waits for another element waits for no circle, unless that one waits for it.
  ASSERT_TRUE(update(user, "2_2", R"({"dependency":"afterok:2_3"})"));
  settle();
  EXPECT_EQ(job("2").array_pending, "1,3");
  EXPECT_EQ(job("2_2").id, 3);
  EXPECT_EQ(code_of(update(user, "2_3", R"({"dependency":"afterok:2_2"})").error()),
            "ESLURM_CIRCULAR_DEPENDENCY");
  ASSERT_TRUE(engine->queue().top(user, "2_3,2_3"));
  settle();
  EXPECT_EQ(job("2").array_pending, "1");
}

TEST_F(EngineTest, DependenciesAreWaitedFor) {
  const auto first = submit(spec());
  auto next = spec();
  next.dependency = fmt::format("afterok:{}", first);
  const auto ok = submit(next);
  next.dependency = fmt::format("afternotok:{}", first);
  const auto not_ok = submit(next);
  next.dependency = fmt::format("afterok:{}", first);
  next.kill_on_invalid_dependency = true;
  const auto killed = submit(next);
  EXPECT_EQ(job(ok).reason, "Dependency");
  EXPECT_EQ(job(ok).dependency, fmt::format("afterok:{}(unfulfilled)", first));
  end(first, 1);
  EXPECT_EQ(state(not_ok), "RUNNING");
  EXPECT_EQ(job(ok).reason, "DependencyNeverSatisfied");
  EXPECT_EQ(state(killed), "CANCELLED");

  auto single = spec();
  single.dependency = "singleton";
  single.name = "one";
  const auto a = submit(single);
  const auto b = submit(single);
  EXPECT_EQ(state(a), "RUNNING");
  EXPECT_EQ(job(b).reason, "Dependency");
  end(a);
  EXPECT_EQ(state(b), "RUNNING");
}

TEST_F(EngineTest, WhoWaitsForAStartBeginsWithIt) {
  const auto before = submit(spec("gpu:4"));
  const auto first = submit(spec("gpu:4"));
  auto next = spec();
  next.dependency = fmt::format("after:{}", first);
  const auto after = submit(next);
  EXPECT_EQ(job(after).reason, "Dependency");
  end(before);
  EXPECT_EQ(state(first), "RUNNING");
  EXPECT_EQ(state(after), "RUNNING") << "and not only when something else ends";
}

TEST_F(EngineTest, UpdatesWhatMayBeUpdated) {
  const auto running = submit(spec("gpu:4"));
  const auto id = std::to_string(submit(spec("gpu:1")));
  const Caller user{Uid(1000)};
  ASSERT_TRUE(update(user, id, R"({"time_limit_ms":300000,"name":"new"})"));
  EXPECT_EQ(job(id).time_limit_ms, 300'000);
  EXPECT_EQ(job(id).name, "new");
  EXPECT_EQ(code_of(update(user, id, R"({"gres":"gpu:9"})").error()),
            "ESLURM_REQUESTED_NODE_CONFIG_UNAVAILABLE");
  ASSERT_TRUE(update(user, std::to_string(running), R"({"time_limit_ms":60000})"));
  settle();
  EXPECT_THAT(executor.commands, Contains(testing::Pair(running, HasSubstr("60000"))));
  EXPECT_FALSE(update(user, std::to_string(running), R"({"time_limit_ms":90000})"));
  EXPECT_FALSE(update(user, std::to_string(running), R"({"gres":"gpu:1"})"));
  EXPECT_TRUE(update({Uid(0)}, std::to_string(running), R"({"time_limit_ms":90000})"));
}

TEST_F(EngineTest, UpdatesAreForJobsOfEarlierSettingsToo) {
  settings.partitions = {{.name = "a", .is_default = true}, {.name = "b", .is_default = false}};
  crash();
  const auto running = submit(spec("gpu:4"));
  const auto waiting = submit(spec("gpu:1"));
  Settings next = settings;
  next.partitions[0].is_default = false;
  next.partitions[1].is_default = true;
  next.memory_per_cpu = gib(1);
  engine->reload(next);
  const Caller user{Uid(1000)};
  for (const auto id : {running, waiting}) {
    const auto updated = update(user, std::to_string(id), R"({"name":"new"})");
    EXPECT_TRUE(updated) << updated.error().message;
    settle();
    EXPECT_EQ(job(id).name, "new");
    EXPECT_EQ(job(id).partition, "a");
  }
  EXPECT_EQ(job(running).memory, 0);
  EXPECT_FALSE(update(user, std::to_string(running), R"({"memory":2147483648})"));
  EXPECT_FALSE(update(user, std::to_string(running), R"({"partition":"b"})"));
  EXPECT_TRUE(update(user, std::to_string(waiting), R"({"partition":"b"})"));
  EXPECT_EQ(job(waiting).partition, "b");
}

TEST_F(EngineTest, SuspendedTimeDoesNotCount) {
  auto limited = spec();
  limited.time_limit_ms = 60'000;
  const auto id = std::to_string(submit(limited));
  ASSERT_TRUE(engine->runs().suspend({Uid(1000)}, id));
  settle();
  EXPECT_EQ(job(id).state, "SUSPENDED");
  clock.advance(seconds(10));
  ASSERT_TRUE(engine->runs().resume({Uid(1000)}, id));
  settle();
  EXPECT_EQ(job(id).suspended_total_ms, 10'000);
  EXPECT_EQ(*job(id).end_ms, *job(id).start_ms + 70'000);
}

TEST_F(EngineTest, SuspendedTimeIsNotChargedHoweverItEnds) {
  const Caller user{Uid(1000)};
  for (const bool cancelled : {true, false}) {
    const auto id = submit(spec("gpu:1"));
    clock.advance(seconds(60));
    ASSERT_TRUE(engine->runs().suspend(user, std::to_string(id)));
    settle();
    clock.advance(hours(10));
    if (cancelled) {
      ASSERT_TRUE(engine->runs().cancel(user, std::to_string(id), {}));
      settle();
      clock.advance(seconds(1));
    }
    end(id);
    EXPECT_EQ(job(id).gpu_ms, cancelled ? 61'000 : 60'000);
    EXPECT_EQ(job(id).suspended_total_ms, hours(10).value());
  }
}

// The time limit of a batch job is its stepd's to keep; one that hangs is not waited for.
TEST_F(EngineTest, AStepdThatDoesNotKeepTheTimeLimitIsHelped) {
  auto limited = spec();
  limited.time_limit_ms = 60'000;
  limited.requeue = true;
  const auto id = submit(limited);
  clock.advance(seconds(60) + settings.kill_wait);
  settle();
  expect_cancelled_when_due(id);
  engine->runs().on_lost(JobId(id), 0);
  settle();
  EXPECT_EQ(state(id), "TIMEOUT");
}

TEST_F(EngineTest, WhoIsOverItsTimeIsNotCancelledByWhoIsImpatient) {
  auto limited = spec();
  limited.time_limit_ms = 60'000;
  const auto id = submit(limited);
  clock.advance(seconds(60) + settings.kill_wait);
  settle();
  expect_cancelled_when_due(id);
  ASSERT_EQ(state(id), "COMPLETING");
  ASSERT_TRUE(engine->runs().cancel({Uid(1000)}, std::to_string(id), {}));
  settle();
  end(id);
  EXPECT_EQ(state(id), "TIMEOUT");
  // One that was to come back is.
  auto again = spec();
  again.requeue = true;
  const auto back = submit(again);
  ASSERT_TRUE(engine->runs().requeue({Uid(1000)}, std::to_string(back), false));
  settle();
  ASSERT_TRUE(engine->runs().cancel({Uid(1000)}, std::to_string(back), {}));
  settle();
  end(back);
  EXPECT_EQ(state(back), "CANCELLED");
}

// What was said of one run is not said of the next.
TEST_F(EngineTest, ALimitThatWasLoweredIsTheWholeOneInTheNextRun) {
  const Caller user{Uid(1000)};
  const auto id = submit(spec());
  clock.advance(hours(10));
  settle();
  ASSERT_TRUE(update(user, std::to_string(id), R"({"time_limit_ms":60000})"));
  ASSERT_TRUE(engine->runs().requeue(user, std::to_string(id), false));
  settle();
  end(id);
  ASSERT_EQ(state(id), "RUNNING");
  clock.advance(minutes(10));
  settle();
  EXPECT_EQ(state(id), "COMPLETING");
}

// Also where the limit was passed long before it was set.
TEST_F(EngineTest, AStepdHasItsTimeToKeepALimitThatWasLowered) {
  const auto id = submit(spec());
  clock.advance(seconds(600));
  settle();
  ASSERT_TRUE(update({Uid(1000)}, std::to_string(id), R"({"time_limit_ms":60000})"));
  settle();
  expect_cancelled_when_due(id);
}

TEST_F(EngineTest, InteractiveJobsLiveWithTheirConnection) {
  auto wanted = spec("gpu:4");
  wanted.time_limit_ms = 60'000;
  std::optional<Answer<api::Allocation>> granted;
  const auto id =
      engine->clients().allocate({Uid(1000)}, wanted, [&](auto answer) { granted = answer; });
  ASSERT_TRUE(id);
  settle();
  ASSERT_TRUE(granted && *granted);
  EXPECT_EQ((*granted)->environment, std::vector<std::string>{"SLURM_JOB_ID=1"});
  api::StepSpec wanted_step;
  wanted_step.name = "x";
  const auto step = begin_step({Uid(1000)}, "1", wanted_step);
  ASSERT_TRUE(step);
  EXPECT_EQ(step->step_id, 0);
  ASSERT_TRUE(engine->clients().end_step({Uid(1000)}, "1", 0, {.exit_code = 7}));
  engine->clients().hang_up(*id);
  settle();
  EXPECT_EQ(state(1), "FAILED");
  EXPECT_EQ(job(1).exit_code, 7);
  EXPECT_EQ(job(1).derived_exit_code, 7);
  EXPECT_EQ(job(1).steps.size(), 1U);

  (void)engine->clients().allocate({Uid(1000)}, wanted, [](auto) {});
  settle();
  clock.advance(seconds(61));
  settle();
  EXPECT_EQ(state(2), "TIMEOUT");

  wanted.immediate = true;
  (void)engine->clients().allocate({Uid(1000)}, wanted, [](auto) {});
  settle();
  EXPECT_EQ(code_of(engine->clients().allocate({Uid(1000)}, wanted, [](auto) {}).error()),
            "ESLURM_NODES_BUSY");
}

TEST_F(EngineTest, PartitionsLimitTime) {
  settings.partitions = {{.name = "short",
                          .is_default = true,
                          .up = true,
                          .max_time = {minutes(30)},
                          .default_time = {minutes(10)}}};
  crash();
  const auto usual = submit(spec());
  EXPECT_EQ(job(usual).time_limit_ms, minutes(10).value());
  auto longer = spec();
  longer.time_limit_ms = minutes(31).value();
  EXPECT_EQ(job(submit(longer)).reason, "PartitionTimeLimit");
}

TEST_F(EngineTest, PlacesAroundForeignProcesses) {
  settings.policy = "least-occupied";
  crash();
  std::vector<node::GpuView> views(4);
  for (std::size_t i = 0; i < 4; ++i) views[i].sample.id = GpuId("GPU-" + std::to_string(i));
  views[0].processes = {{.pid = 1, .user = "x", .command = "y", .memory = gib(1)}};
  engine->observe(views);
  const auto id = submit(spec("gpu:3"));
  EXPECT_EQ(state(id), "RUNNING");
  for (const auto& gpu : job(id).gpus) EXPECT_NE(gpu.uuid, "GPU-0");
  EXPECT_EQ(state(submit(spec("gpu:1"))), "PENDING");
  views[0].processes.clear();
  engine->observe(views);
  settle();
  EXPECT_EQ(state(2), "RUNNING");
}

TEST_F(EngineTest, ABrokenGpuGetsNoJobs) {
  std::vector<node::GpuView> views(4);
  for (std::size_t i = 0; i < 4; ++i) views[i].sample.id = GpuId("GPU-" + std::to_string(i));
  views[2].sample.health = core::Health::lost;
  views[2].sample.trouble = "xid79";
  engine->observe(views);
  EXPECT_EQ(engine->views().cluster_info().node.gpus[2].health,
            "Xid 79, it has fallen off the bus");
  const auto id = submit(spec("gpu:3"));
  for (const auto& gpu : job(id).gpus) EXPECT_NE(gpu.uuid, "GPU-2");
  const auto waits = submit(spec("gpu:1"));
  EXPECT_EQ(state(waits), "PENDING");
  views[2].sample = {.id = GpuId("GPU-2")};
  engine->observe(views);
  settle();
  EXPECT_EQ(state(waits), "RUNNING");
}

TEST_F(EngineTest, SpreadsABurstEvenlyWithLeastOccupied) {
  settings.policy = "least-occupied";
  settings.cpus = 256;
  crash();
  for (int i = 0; i < 60; ++i) submit(spec("shard:1"));
  std::vector<std::size_t> jobs;
  for (core::GpuIndex gpu = 0; gpu < 4; ++gpu)
    jobs.push_back(engine->ledger().jobs_on(0, gpu).size());
  const auto [least, most] = std::ranges::minmax(jobs);
  EXPECT_LE(most - least, 1U);
}

// Any history of submissions, ends, cancels, holds, requeues and crashes at any point: what was
// accepted is never lost, nothing is granted twice, and every job ends as its processes did.
RC_GTEST_PROP(EngineHistory, SurvivesCrashesAnywhere, ()) {
  EngineFixture bench;
  History history(bench);
  const int steps = *rc::gen::inRange(10, 60);
  for (int i = 0; i < steps; ++i) {
    const int what = *rc::gen::inRange(0, 10);
    if (what < 3) {
      std::int64_t told = 0;
      const auto answer = bench.engine->queue().submit({Uid(1000)}, history.any_spec());
      RC_ASSERT(answer.has_value());
      bench.engine->after_commit([&, job = answer->value()] { told = job; });
      if (*rc::gen::inRange(0, 4) == 0) {
        bench.crash();  // before the commit: nobody was told
        RC_ASSERT(told == 0);
      } else {
        bench.engine->settle();
        RC_ASSERT(told != 0);
        history.accepted.insert(told);
      }
    } else if (what < 8) {
      history.go_on();
    } else if (what == 8) {
      bench.crash();
    } else {
      bench.settle();
    }
    if (*rc::gen::arbitrary<bool>()) bench.settle();
    // Nothing twice: the ledger would have refused; and what it holds is what is on record.
    RC_ASSERT(bench.engine->ledger().size() == bench.engine->runs().running().size());
  }
  bench.crash();
  history.wind_up();
}

}  // namespace
}  // namespace aliquot::engine
