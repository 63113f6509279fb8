#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <set>

#include "engine/test_bench.hpp"

namespace aliquot::engine {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

class EngineTest : public testing::Test, public Bench {};

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
  auto wrong = spec();
  wrong.partition = "nope";
  EXPECT_EQ(refusal(wrong), "ESLURM_INVALID_PARTITION_NAME");
  EXPECT_EQ(refusal(spec("gpu:99")), "ESLURM_REQUESTED_NODE_CONFIG_UNAVAILABLE");
  EXPECT_EQ(refusal(spec("gpu:titan:1")), "ESLURM_REQUESTED_NODE_CONFIG_UNAVAILABLE");
  EXPECT_EQ(refusal(spec("gpu:x:y:z")), "ESLURM_INVALID_GRES");
  wrong = spec();
  wrong.nodes = 2;
  EXPECT_EQ(refusal(wrong), "ESLURM_REQUESTED_NODE_CONFIG_UNAVAILABLE");
  wrong = spec();
  wrong.memory = gib(900).value();
  EXPECT_EQ(refusal(wrong), "ESLURM_REQUESTED_NODE_CONFIG_UNAVAILABLE");
  wrong = spec();
  wrong.cpus_per_task = 65;
  EXPECT_EQ(refusal(wrong), "ESLURM_REQUESTED_NODE_CONFIG_UNAVAILABLE");
  wrong = spec();
  wrong.dependency = "bogus:1";
  EXPECT_EQ(refusal(wrong), "ESLURM_DEPENDENCY");
  wrong.dependency = "afterok:77";
  EXPECT_EQ(refusal(wrong), "ESLURM_DEPENDENCY");
  wrong = spec();
  wrong.array = "a-b";
  EXPECT_EQ(refusal(wrong), "ESLURM_INVALID_ARRAY");
  wrong = spec();
  wrong.script = "echo";
  EXPECT_EQ(refusal(wrong), "ESLURM_JOB_SCRIPT_MISSING");
  wrong = spec();
  wrong.nice = -5;
  EXPECT_EQ(refusal(wrong), "ESLURM_ACCESS_DENIED");
  EXPECT_EQ(refusal(wrong, Uid(0)), "accepted");
  wrong = spec();
  wrong.name = "\033[2J";
  EXPECT_EQ(refusal(wrong), "ESLURM_INVALID_JOB_TEXT");
  wrong = spec();
  wrong.work_dir = std::string("/tmp\0/etc", 9);
  EXPECT_EQ(refusal(wrong), "ESLURM_INVALID_JOB_TEXT");
  EXPECT_EQ(refusal(spec(), Uid(999)), "ESLURM_USER_ID_MISSING");
}

TEST_F(EngineTest, OthersSeeButDoNotTouch) {
  auto secret = spec();
  secret.command = "/home/u1000/secret.sh";
  const auto id = std::to_string(submit(secret));
  const Caller other{Uid(1001)};
  const auto seen = engine->show(other, id);
  ASSERT_TRUE(seen);
  EXPECT_EQ(seen->user, "u1000");
  EXPECT_EQ(seen->command + seen->work_dir + seen->std_out, "");
  const auto listed = engine->list(other, {}).value();
  EXPECT_THAT(listed, HasSubstr("u1000"));
  EXPECT_THAT(listed, Not(HasSubstr("secret.sh")));
  EXPECT_THAT(engine->list({Uid(1000)}, {}).value(), HasSubstr("secret.sh"));
  EXPECT_EQ(engine->script(other, id).error().error.code, "ESLURM_ACCESS_DENIED");
  EXPECT_EQ(engine->cancel(other, id, {}).error().error.code, "ESLURM_ACCESS_DENIED");
  EXPECT_EQ(engine->requeue(other, id, false).error().error.code, "ESLURM_ACCESS_DENIED");
  EXPECT_EQ(engine->suspend(other, id).error().error.code, "ESLURM_ACCESS_DENIED");
  EXPECT_EQ(engine->begin_step(other, id, {}).error().error.code, "ESLURM_ACCESS_DENIED");
  EXPECT_EQ(engine->hold(other, id).error().error.code, "ESLURM_USER_ID_MISSING");
  EXPECT_EQ(engine->update(other, id, "{}").error().error.code, "ESLURM_USER_ID_MISSING");
  EXPECT_EQ(engine->drain(other, "x").error().error.code, "ESLURM_ACCESS_DENIED");
  EXPECT_TRUE(engine->cancel({Uid(0)}, id, {}));
  EXPECT_EQ(engine->cancel({Uid(1000)}, "55", {}).error().error.code, "ESLURM_INVALID_JOB_ID");
}

TEST_F(EngineTest, AnOrdinaryUsersDaemonServesThatUserAlone) {
  owner = Uid(1000);
  crash();
  EXPECT_EQ(refusal(spec(), Uid(1001)), "ESLURM_ACCESS_DENIED");
  EXPECT_FALSE(engine->list({Uid(1001)}, {}));
  EXPECT_EQ(refusal(spec(), Uid(1000)), "accepted");
}

TEST_F(EngineTest, WaitsForRoomAndSaysWhy) {
  const auto first = submit(spec("gpu:4"));
  const auto second = submit(spec("gpu:1"));
  const auto third = submit(spec("gpu:1"));
  EXPECT_EQ(state(second), "PENDING");
  EXPECT_EQ(job(second).reason, "Resources");
  EXPECT_EQ(job(third).reason, "Priority");
  EXPECT_FALSE(engine->why({Uid(1000)}, std::to_string(second))->sentences.empty());
  end(first);
  EXPECT_EQ(state(second), "RUNNING");
  EXPECT_EQ(state(third), "RUNNING");
}

TEST_F(EngineTest, CancelsWhatWaitsAndWhatRuns) {
  const auto running = submit(spec("gpu:4"));
  const auto waiting = submit(spec("gpu:1"));
  ASSERT_TRUE(engine->cancel({Uid(1000)}, std::to_string(waiting), {}));
  settle();
  EXPECT_EQ(state(waiting), "CANCELLED");
  EXPECT_EQ(job(waiting).cancelled_by, 1000U);
  ASSERT_TRUE(engine->cancel({Uid(1000)}, std::to_string(running), {}));
  settle();
  EXPECT_EQ(state(running), "COMPLETING");
  EXPECT_EQ(engine->ledger().size(), 1U);
  end(running);
  EXPECT_EQ(state(running), "CANCELLED");
  EXPECT_EQ(engine->ledger().size(), 0U);
  EXPECT_EQ(engine->cancel({Uid(1000)}, std::to_string(running), {}).error().error.code,
            "ESLURM_ALREADY_DONE");
}

TEST_F(EngineTest, HoldsAndReleases) {
  auto held = spec();
  held.hold = true;
  const auto id = submit(held);
  EXPECT_EQ(job(id).reason, "JobHeldUser");
  ASSERT_TRUE(engine->release({Uid(1000)}, std::to_string(id)));
  settle();
  EXPECT_EQ(state(id), "RUNNING");
  auto later = spec();
  later.begin_ms = (clock.wall() + minutes(1)).ms();
  const auto begin = submit(later);
  EXPECT_EQ(job(begin).reason, "BeginTime");
  ASSERT_TRUE(engine->hold({Uid(0)}, std::to_string(begin)));
  settle();
  EXPECT_EQ(job(begin).reason, "JobHeldAdmin");
  EXPECT_EQ(engine->release({Uid(1000)}, std::to_string(begin)).error().error.code,
            "ESLURM_ACCESS_DENIED");
  ASSERT_TRUE(engine->release({Uid(0)}, std::to_string(begin)));
  settle();
  EXPECT_EQ(engine->next_due(), WallTime(*later.begin_ms));
  clock.advance(minutes(1));
  settle();
  EXPECT_EQ(state(begin), "RUNNING");
}

TEST_F(EngineTest, RequeueKeepsTheId) {
  const auto id = submit(spec("gpu:1"));
  ASSERT_TRUE(engine->requeue({Uid(1000)}, std::to_string(id), false));
  settle();
  EXPECT_EQ(state(id), "COMPLETING");
  end(id);
  EXPECT_EQ(state(id), "RUNNING");
  EXPECT_EQ(job(id).restarts, 1);
  end(id, 0);
  EXPECT_EQ(state(id), "COMPLETED");
  ASSERT_TRUE(engine->requeue({Uid(1000)}, std::to_string(id), true));
  settle();
  EXPECT_EQ(state(id), "PENDING");
  EXPECT_EQ(job(id).reason, "JobHeldUser");
  EXPECT_EQ(job(id).restarts, 2);
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
  ASSERT_TRUE(engine->cancel({Uid(1000)}, "1", {}));
  settle();
  EXPECT_EQ(state(1), "COMPLETING");
  EXPECT_EQ(state(3), "COMPLETING");
}

TEST_F(EngineTest, OneWaitingElementCanBeHeldOrCancelled) {
  const auto blocker = submit(spec("gpu:4"));
  auto array = spec("gpu:1");
  array.array = "1-3";
  const auto id = submit(array);
  ASSERT_TRUE(engine->cancel({Uid(1000)}, std::to_string(id) + "_2", {}));
  settle();
  EXPECT_EQ(job(id).array_pending, "1,3");
  EXPECT_EQ(job(std::to_string(id) + "_2").state, "CANCELLED");
  end(blocker);
  EXPECT_EQ(job(std::to_string(id) + "_1").state, "RUNNING");
  EXPECT_EQ(job(std::to_string(id) + "_3").state, "RUNNING");
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

TEST_F(EngineTest, UpdatesWhatMayBeUpdated) {
  const auto running = submit(spec("gpu:4"));
  const auto id = std::to_string(submit(spec("gpu:1")));
  const Caller user{Uid(1000)};
  ASSERT_TRUE(engine->update(user, id, R"({"time_limit_ms":300000,"name":"new"})"));
  EXPECT_EQ(job(id).time_limit_ms, 300'000);
  EXPECT_EQ(job(id).name, "new");
  EXPECT_EQ(engine->update(user, id, R"({"gres":"gpu:9"})").error().error.code,
            "ESLURM_REQUESTED_NODE_CONFIG_UNAVAILABLE");
  ASSERT_TRUE(engine->update(user, std::to_string(running), R"({"time_limit_ms":60000})"));
  settle();
  EXPECT_THAT(executor.commands, Contains(testing::Pair(running, HasSubstr("60000"))));
  EXPECT_FALSE(engine->update(user, std::to_string(running), R"({"time_limit_ms":90000})"));
  EXPECT_FALSE(engine->update(user, std::to_string(running), R"({"gres":"gpu:1"})"));
  EXPECT_TRUE(engine->update({Uid(0)}, std::to_string(running), R"({"time_limit_ms":90000})"));
}

TEST_F(EngineTest, SuspendedTimeDoesNotCount) {
  auto limited = spec();
  limited.time_limit_ms = 60'000;
  const auto id = std::to_string(submit(limited));
  ASSERT_TRUE(engine->suspend({Uid(1000)}, id));
  settle();
  EXPECT_EQ(job(id).state, "SUSPENDED");
  clock.advance(seconds(10));
  ASSERT_TRUE(engine->resume({Uid(1000)}, id));
  settle();
  EXPECT_EQ(job(id).suspended_total_ms, 10'000);
  EXPECT_EQ(*job(id).end_ms, *job(id).start_ms + 70'000);
}

// The time limit of a batch job is its stepd's to keep; one that hangs is not waited for.
TEST_F(EngineTest, AStepdThatDoesNotKeepTheTimeLimitIsHelped) {
  auto limited = spec();
  limited.time_limit_ms = 60'000;
  limited.requeue = true;
  const auto id = submit(limited);
  const auto cancelled = [&] { return executor.runs.at({id, 0}).cancelled; };
  clock.advance(seconds(60) + settings.kill_wait);
  settle();
  EXPECT_FALSE(cancelled());
  ASSERT_TRUE(engine->next_due());
  clock.advance(*engine->next_due() - clock.wall());
  settle();
  EXPECT_TRUE(cancelled());
  engine->on_lost(JobId(id), 0);
  settle();
  EXPECT_EQ(state(id), "TIMEOUT");
}

// Also where the limit was passed long before it was set.
TEST_F(EngineTest, AStepdHasItsTimeToKeepALimitThatWasLowered) {
  const auto id = submit(spec());
  const auto cancelled = [&] { return executor.runs.at({id, 0}).cancelled; };
  clock.advance(seconds(600));
  settle();
  ASSERT_TRUE(engine->update({Uid(1000)}, std::to_string(id), R"({"time_limit_ms":60000})"));
  settle();
  EXPECT_FALSE(cancelled());
  ASSERT_TRUE(engine->next_due());
  clock.advance(*engine->next_due() - clock.wall());
  settle();
  EXPECT_TRUE(cancelled());
}

TEST_F(EngineTest, InteractiveJobsLiveWithTheirConnection) {
  auto wanted = spec("gpu:4");
  wanted.time_limit_ms = 60'000;
  std::optional<Answer<api::Allocation>> granted;
  const auto id = engine->allocate({Uid(1000)}, wanted, [&](auto answer) { granted = answer; });
  ASSERT_TRUE(id);
  settle();
  ASSERT_TRUE(granted && *granted);
  EXPECT_EQ((*granted)->environment, std::vector<std::string>{"SLURM_JOB_ID=1"});
  api::StepSpec wanted_step;
  wanted_step.name = "x";
  const auto step = engine->begin_step({Uid(1000)}, "1", wanted_step);
  ASSERT_TRUE(step);
  EXPECT_EQ(step->step_id, 0);
  ASSERT_TRUE(engine->end_step({Uid(1000)}, "1", 0, {.exit_code = 7}));
  engine->hang_up(*id);
  settle();
  EXPECT_EQ(state(1), "FAILED");
  EXPECT_EQ(job(1).exit_code, 7);
  EXPECT_EQ(job(1).derived_exit_code, 7);
  EXPECT_EQ(job(1).steps.size(), 1U);

  (void)engine->allocate({Uid(1000)}, wanted, [](auto) {});
  settle();
  clock.advance(seconds(61));
  settle();
  EXPECT_EQ(state(2), "TIMEOUT");

  wanted.immediate = true;
  (void)engine->allocate({Uid(1000)}, wanted, [](auto) {});
  settle();
  EXPECT_EQ(engine->allocate({Uid(1000)}, wanted, [](auto) {}).error().error.code,
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
  Bench bench;
  std::set<std::int64_t> accepted;
  std::map<std::int64_t, int> exit_codes;
  const auto any_id = [&]() -> std::int64_t {
    if (accepted.empty()) return 1;
    return *std::next(accepted.begin(), *rc::gen::inRange<std::ptrdiff_t>(0, std::ssize(accepted)));
  };
  const int steps = *rc::gen::inRange(10, 60);
  for (int i = 0; i < steps; ++i) {
    const std::string id = std::to_string(any_id());
    const Caller user{Uid(1000)};
    switch (*rc::gen::inRange(0, 10)) {
      case 0:
      case 1:
      case 2: {
        auto spec = bench.spec(*rc::gen::element<std::string>("", "gpu:1", "gpu:3", "mps:30"));
        if (*rc::gen::inRange(0, 5) == 0) spec.array = "1-3%2";
        std::int64_t told = 0;
        const auto answer = bench.engine->submit(user, spec);
        RC_ASSERT(answer.has_value());
        bench.engine->after_commit([&, job = answer->job_id] { told = job; });
        if (*rc::gen::inRange(0, 4) == 0) {
          bench.crash();  // before the commit: nobody was told
          RC_ASSERT(told == 0);
        } else {
          bench.engine->settle();
          RC_ASSERT(told != 0);
          accepted.insert(told);
        }
        break;
      }
      case 3:
      case 4:
        for (const auto& [key, run] : bench.executor.runs) {
          if (run.over || *rc::gen::arbitrary<bool>()) continue;
          const int code = *rc::gen::inRange(0, 3);
          exit_codes[key.first] = run.cancelled ? -1 : code;
          bench.executor.end(key.first, code);
          break;
        }
        break;
      case 5:
        (void)bench.engine->cancel(user, id, {});
        break;
      case 6:
        (void)bench.engine->requeue(user, id, false);
        break;
      case 7:
        (void)bench.engine->hold(user, id);
        (void)bench.engine->release(user, id);
        break;
      case 8:
        bench.crash();
        break;
      default:
        bench.settle();
    }
    if (*rc::gen::arbitrary<bool>()) bench.settle();
    // Nothing twice: the ledger would have refused; and what it holds is what is on record.
    const auto running = bench.engine->running();
    RC_ASSERT(bench.engine->ledger().size() == running.size());
  }
  bench.crash();
  // Let everything that can run do so.
  for (int round = 0; round < 400 && bench.engine->live() > 0; ++round) {
    bench.settle();
    for (auto& [key, run] : bench.executor.runs) {
      if (!run.over) {
        exit_codes[key.first] = run.cancelled ? -1 : 0;
        bench.executor.end(key.first, 0);
      }
    }
  }
  RC_ASSERT(bench.engine->live() == 0U);
  RC_ASSERT(bench.engine->ledger().size() == 0U);
  for (const std::int64_t id : accepted) {
    const auto info = bench.engine->show({Uid(0)}, std::to_string(id));
    RC_ASSERT(info.has_value());
    RC_ASSERT(core::is_final(*core::parse_job_state(info->state)));
  }
  AccountingQuery all;
  const auto record = bench.engine->accounting({Uid(0)}, all);
  for (const auto& job : record->jobs) {
    if (job.state != "COMPLETED" && job.state != "FAILED") continue;
    RC_ASSERT(exit_codes.contains(job.id));
    RC_ASSERT(job.exit_code == exit_codes[job.id]);
  }
}

}  // namespace
}  // namespace aliquot::engine
