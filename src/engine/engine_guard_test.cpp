// What must hold whoever asks for whatever, and whatever the daemon finds when it comes back.
#include <SQLiteCpp/SQLiteCpp.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/engine_fixture.hpp"

namespace aliquot::engine {
namespace {

using testing::HasSubstr;
using testing::Not;

class EngineGuardTest : public testing::Test, public EngineFixture {
 protected:
  const Caller user{Uid(1000)};
  const Caller root{Uid(0)};

  void damage(const std::string& sql) {
    engine.reset();
    SQLite::Database(database(), SQLite::OPEN_READWRITE).exec(sql);
    open();
  }
  std::int64_t count(const std::string& table) {
    return SQLite::Database(database()).execAndGet("SELECT count(*) FROM " + table).getInt64();
  }
  // Every verb that takes a job, with this one.
  std::vector<Answer<void>> command(const std::string& id) {
    const auto nothing = [](const auto& answer) -> Answer<void> {
      if (answer) return {};
      return tl::make_unexpected(answer.error());
    };
    std::vector<Answer<void>> answers{
        engine->runs().requeue(user, id, true),
        engine->runs().requeue(user, id, false),
        engine->runs().cancel(user, id, {}),
        engine->queue().hold(user, id),
        engine->queue().release(user, id),
        engine->runs().suspend(user, id),
        engine->runs().resume(user, id),
        update(user, id, R"({"name":"x"})"),
        engine->queue().top(user, id),
        engine->clients().end_allocation(user, id, {}),
        engine->clients().end_step(user, id, 0, {}),
        engine->clients().cancel_step(user, id, "0", {}),
        nothing(engine->clients().attach(user, id)),
        nothing(engine->clients().begin_step(user, id, {}, [](const auto&) {})),
        nothing(engine->views().show(user, id)),
        nothing(engine->views().why(user, id)),
        nothing(engine->views().script(user, id)),
        nothing(list(user, {.id = id}))};
    engine->views().wait(user, id, [&](const auto& ended) { answers.push_back(nothing(ended)); });
    settle();
    return answers;
  }
};

TEST_F(EngineGuardTest, ATaskThatIsNotThereIsNoJobForAnyVerb) {
  submit(spec("gpu:2"));
  auto array = spec("gpu:1");
  array.array = "1-3";
  submit(array);  // two run, the third waits under the array's id
  auto held = spec();
  held.hold = true;
  submit(held);
  end(submit(spec()));
  auto last = spec();
  last.array = "5";
  const auto over = submit(last);
  end(over);
  const auto starts = executor.starts.size();
  for (const std::string id :
       {"1_99", "1_0", "2_99", "2_0", "5_1", "99", "99_1", "2_", "_2", "x", "-1", "x_1"}) {
    for (const auto& answer : command(id)) {
      ASSERT_FALSE(answer) << id;
      EXPECT_EQ(code_of(answer.error()), "ESLURM_INVALID_JOB_ID") << id;
    }
  }
  EXPECT_EQ(code_of(command(fmt::format("{}_99", over)).front().error()), "ESLURM_INVALID_JOB_ID");
  EXPECT_EQ(executor.starts.size(), starts);
  EXPECT_EQ(state(1), "RUNNING");
  EXPECT_EQ(engine->ledger().size(), 3U);
  auto next = spec();
  next.dependency = "afterok:2_99";
  EXPECT_EQ(refusal(next), "ESLURM_DEPENDENCY");
  next.dependency = "afterok:2_3";
  EXPECT_EQ(refusal(next), "accepted");
}

TEST_F(EngineGuardTest, AnArrayThatIsOverComesBackWhole) {
  auto array = spec();
  array.array = "1-2";
  const auto id = std::to_string(submit(array));
  end(job(id + "_1").id);
  end(job(id + "_2").id);
  ASSERT_TRUE(engine->runs().requeue(user, id + "_1", true));
  settle();
  EXPECT_EQ(job(id + "_1").state, "PENDING");
  EXPECT_EQ(job(id + "_2").state, "COMPLETED");
  ASSERT_TRUE(engine->runs().cancel(user, id, {}));
  settle();
  ASSERT_TRUE(engine->runs().requeue(user, id, true));
  settle();
  EXPECT_EQ(job(id + "_1").state, "PENDING");
  EXPECT_EQ(job(id + "_2").state, "PENDING");
}

TEST_F(EngineGuardTest, WhatAnAdministratorHoldsIsNotLetGoByAUser) {
  auto array = spec();
  array.array = "1-3";
  array.hold = true;
  const auto id = std::to_string(submit(array));
  ASSERT_TRUE(engine->queue().hold(root, id));
  settle();
  for (const std::string& one : {id, id + "_2"}) {
    ASSERT_TRUE(engine->queue().hold(user, one));
    EXPECT_EQ(code_of(engine->queue().release(user, one).error()), "ESLURM_ACCESS_DENIED");
    ASSERT_TRUE(engine->runs().requeue(user, one, true));
    EXPECT_EQ(code_of(engine->queue().release(user, one).error()), "ESLURM_ACCESS_DENIED");
    settle();
    EXPECT_EQ(job(one).reason, "JobHeldAdmin");
  }
  crash();
  EXPECT_EQ(code_of(engine->queue().release(user, id).error()), "ESLURM_ACCESS_DENIED");
  ASSERT_TRUE(engine->queue().release(root, id));
  settle();
  EXPECT_EQ(job(id + "_2").state, "RUNNING");
}

TEST_F(EngineGuardTest, AnAdministratorsHoldOutlivesCancelAndRequeue) {
  auto held = spec();
  held.hold = true;
  const auto id = std::to_string(submit(held));
  ASSERT_TRUE(engine->queue().hold(root, id));
  settle();
  ASSERT_TRUE(engine->runs().cancel(user, id, {}));
  settle();
  ASSERT_TRUE(engine->runs().requeue(user, id, true));
  settle();
  EXPECT_EQ(code_of(engine->queue().release(user, id).error()), "ESLURM_ACCESS_DENIED");
  EXPECT_EQ(job(id).reason, "JobHeldAdmin");
}

TEST_F(EngineGuardTest, WhatIsHeldGetsItsPriorityWhenItIsLetGo) {
  auto held = spec();
  held.hold = true;
  const auto id = std::to_string(submit(held));
  EXPECT_EQ(code_of(update(root, id, R"({"priority":9})").error()), "ESLURM_JOB_HELD");
  EXPECT_TRUE(update(root, id, R"({"name":"new"})"));
  ASSERT_TRUE(engine->queue().release(root, id));
  EXPECT_TRUE(update(root, id, R"({"priority":9})"));
}

TEST_F(EngineGuardTest, RefusesNodesFeaturesAndDeadlinesThatAreNone) {
  const auto code = [&](const std::function<void(api::JobSpec&)>& change) {
    auto wanted = spec();
    change(wanted);
    return refusal(wanted);
  };
  EXPECT_EQ(code([](auto& wanted) { wanted.nodelist = "elsewhere"; }), "ESLURM_INVALID_NODE_NAME");
  EXPECT_EQ(code([](auto& wanted) { wanted.constraint = "nope"; }), "ESLURM_INVALID_FEATURE");
  EXPECT_EQ(code([](auto& wanted) { wanted.nodes = 0; }), "ESLURM_INVALID_NODE_COUNT");
  EXPECT_EQ(code([](auto& wanted) { wanted.deadline_ms = 1; }), "ESLURM_INVALID_TIME_LIMIT");
}

TEST_F(EngineGuardTest, AnUpdateByRootLeavesTheJobItsOwners) {
  auto later = spec();
  later.begin_ms = (clock.wall() + hours(1)).ms();
  const auto id = std::to_string(submit(later));
  ASSERT_TRUE(update(root, id, R"({"name":"new","priority":9})"));
  EXPECT_EQ(job(id).account, "u1000");
  EXPECT_EQ(job(id).user, "u1000");
  EXPECT_EQ(job(id).uid, 1000U);
  // What root set is no reason to refuse its owner something else.
  EXPECT_TRUE(update(user, id, R"({"name":"newer"})"));
  EXPECT_FALSE(update(user, id, R"({"priority":10})"));
  ASSERT_TRUE(update(root, id, R"({"account":"course"})"));
  EXPECT_EQ(job(id).account, "course");
  const auto circle = fmt::format(R"({{"dependency":"afterok:{}"}})", id);
  EXPECT_EQ(code_of(update(user, id, circle).error()), "ESLURM_DEPENDENCY");
}

TEST_F(EngineGuardTest, NoTextOfAUserSteersATerminal) {
  const auto with = [&](const std::function<void(api::JobSpec&)>& change) {
    auto wanted = spec();
    change(wanted);
    return refusal(wanted);
  };
  for (const std::string bad : {"/tmp/\x1b[2J", "/tmp/\xc2\x9b", "/tmp/\x9b", "a\rb", "a\nb"}) {
    EXPECT_EQ(with([&](auto& one) { one.work_dir = bad; }), "ESLURM_INVALID_JOB_TEXT");
    EXPECT_EQ(with([&](auto& one) { one.command = bad; }), "ESLURM_INVALID_JOB_TEXT");
    EXPECT_EQ(with([&](auto& one) { one.std_out = bad; }), "ESLURM_INVALID_JOB_TEXT");
    EXPECT_EQ(with([&](auto& one) { one.std_err = bad; }), "ESLURM_INVALID_JOB_TEXT");
    EXPECT_EQ(with([&](auto& one) { one.std_in = bad; }), "ESLURM_INVALID_JOB_TEXT");
  }
  // A name of a file in an old character set is no attack.
  EXPECT_EQ(with([](auto& one) { one.work_dir = "/tmp/caf\xe9"; }), "accepted");
  const auto id = submit(spec("gpu:1"));
  std::vector<node::GpuView> views(4);
  for (std::size_t i = 0; i < 4; ++i) views[i].sample.id = GpuId("GPU-" + std::to_string(i));
  views[0].processes = {{.pid = 1, .user = "x", .command = "\x1b[2J", .memory = Bytes(1)}};
  engine->observe(views);
  EXPECT_EQ(engine->views().cluster_info().node.gpus[0].processes[0].command, "\\x1b[2J");
  engine->runs().report({{.job = holder_of(JobId(id)), .what = "process \x1b[2J is over"}});
  EXPECT_EQ(job(id).reason_detail, "process \\x1b[2J is over");
}

TEST_F(EngineGuardTest, AnUnreadableRowIsSetAsideAndTheOthersGoOn) {
  const auto running = submit(spec("gpu:1"));
  const auto lost = submit(spec("gpu:1"));
  ASSERT_TRUE(engine->runs().requeue(user, std::to_string(lost), false));
  end(lost);
  ASSERT_EQ(job(lost).restarts, 1);
  auto held = spec();
  held.hold = true;
  const auto waiting = submit(held);
  const auto over = submit(spec());
  end(over);
  damage(fmt::format("UPDATE jobs SET info = 'not json' WHERE id IN ({}, {}, {})", lost, waiting,
                     over));
  EXPECT_EQ(state(running), "RUNNING");
  EXPECT_EQ(code_of(engine->views().show(root, std::to_string(lost)).error()),
            "ESLURM_INVALID_JOB_ID");
  EXPECT_TRUE(engine->views().accounting(root, {})) << "and what is over harms nobody either";
  // Nobody knows what it held: nothing starts until nothing of it is left.
  const auto next = engine->queue().submit(user, spec("gpu:1"));
  ASSERT_TRUE(next);
  EXPECT_GT(next->value(), over) << "no number is used twice";
  engine->settle();
  EXPECT_EQ(state(next->value()), "PENDING");
  settle();
  EXPECT_EQ(state(next->value()), "RUNNING");
  EXPECT_EQ(executor.forgotten_runs.back(), (node::Run{JobId(lost), 1}));
  EXPECT_EQ(count("unreadable"), 3);
  EXPECT_EQ(count("unreadable WHERE info = 'not json' AND why LIKE 'not JSON%'"), 3);
  crash();
  EXPECT_EQ(state(next->value()), "RUNNING");
}

TEST_F(EngineGuardTest, AJobWhoseScriptIsGoneFailsAlone) {
  auto held = spec();
  held.hold = true;
  const auto id = submit(held);
  damage("DELETE FROM payloads");
  ASSERT_TRUE(engine->queue().release(user, std::to_string(id)));
  settle();
  EXPECT_EQ(state(id), "FAILED");
  EXPECT_THAT(job(id).reason_detail, HasSubstr("no longer kept"));
}

TEST_F(EngineGuardTest, AMachineThatShrankOwesWhatItsJobsHold) {
  settings.compute_limit = kWholeGpu * 2;
  crash();
  auto large = spec("gpu:1");
  large.cpus_per_task = 20;
  large.memory = gib(100).value();
  std::vector<std::int64_t> ids{submit(large), submit(large)};
  const auto share = submit(spec("mps:100"));
  const auto beside = submit(spec("mps:60"));
  for (const auto id : {ids[0], ids[1], share, beside}) ASSERT_EQ(state(id), "RUNNING");
  machine.cpus = 24;
  machine.memory = gib(120);
  settings.compute_limit = kWholeGpu;
  std::ranges::reverse(machine.gpus);
  crash();
  for (const auto id : {ids[0], ids[1], share, beside}) ASSERT_EQ(state(id), "RUNNING");
  auto small = spec();
  small.cpus_per_task = 4;
  const auto next = submit(small);
  EXPECT_EQ(state(next), "PENDING") << "42 of 24 CPUs are held";
  end(ids[0]);
  EXPECT_EQ(state(next), "PENDING") << "22 of 24 are";
  end(ids[1]);
  EXPECT_EQ(state(next), "RUNNING");
  end(share);
  end(beside);
  end(next);
  EXPECT_EQ(engine->ledger().size(), 0U);
  EXPECT_EQ(engine->views().cluster_info().node.cpus_allocated, 0);
  EXPECT_EQ(state(submit(spec("gpu:4"))), "RUNNING");
}

TEST_F(EngineGuardTest, WhatStartsAgainOnAMachineThatShrankHasWhatThatGives) {
  auto whole = spec();
  whole.exclusive = true;
  whole.memory = 0;
  const auto id = submit(whole);
  ASSERT_EQ(state(id), "RUNNING");
  machine.cpus = 24;
  machine.memory = gib(120);
  crash();
  ASSERT_EQ(job(id).cpus, 64) << "what it holds";
  ASSERT_TRUE(engine->runs().requeue(user, std::to_string(id), false));
  end(id);
  ASSERT_EQ(state(id), "RUNNING");
  EXPECT_EQ(job(id).cpus, 24);
  EXPECT_EQ(job(id).memory, gib(120).value());
}

TEST_F(EngineGuardTest, WhatTheMachineCannotGiveAnyMoreWaitsAndIsNotStartedWithout) {
  auto held = spec("gpu:h200:1");
  held.hold = true;
  const auto id = submit(held);
  machine.gpus.clear();
  crash();
  ASSERT_TRUE(engine->queue().release(root, std::to_string(id)));
  settle();
  EXPECT_EQ(state(id), "PENDING");
  EXPECT_EQ(job(id).reason, "BadConstraints");
  EXPECT_THAT(job(id).reason_detail, HasSubstr("h200"));
  ASSERT_TRUE(update(user, std::to_string(id), R"({"gres":null})"));
  settle();
  EXPECT_EQ(state(id), "RUNNING");
}

// stepd.pid is not synced: after the power was gone its absence says nothing.
TEST_F(EngineGuardTest, AfterAPowerLossWhatMayHaveRunDoesNotRunAgain) {
  auto once = spec();
  once.requeue = false;
  const auto first = submit(once);
  const auto again = submit(spec());
  executor.runs.clear();
  executor.starts.clear();
  machine.boot_id = "second";
  crash();
  settle();
  EXPECT_EQ(state(first), "NODE_FAIL");
  EXPECT_EQ(state(again), "RUNNING");
  EXPECT_EQ(job(again).restarts, 1);
  // Within a boot it does: nothing was written, nothing ran.
  const auto third = submit(once);
  executor.runs.clear();
  crash();
  settle();
  EXPECT_EQ(state(third), "RUNNING");
}

TEST_F(EngineGuardTest, InteractiveTimeIsNotTheWallClocks) {
  auto wanted = spec();
  wanted.time_limit_ms = 60'000;
  const auto id = engine->clients().allocate(user, wanted, [](const auto&) {})->value();
  settle();
  clock.set_wall(clock.wall() + hours(5));
  settle();
  EXPECT_EQ(state(id), "RUNNING") << "a clock that is set forward ends nobody";
  EXPECT_EQ(engine->next_due(), clock.wall() + seconds(60));
  clock.set_wall(clock.wall() - hours(10));
  clock.advance(seconds(20));
  ASSERT_TRUE(engine->runs().suspend(user, std::to_string(id)));
  settle();
  clock.advance(seconds(1'000));
  crash();
  ASSERT_TRUE(engine->clients().attach(user, std::to_string(id)));
  ASSERT_TRUE(engine->runs().resume(user, std::to_string(id)));
  settle();
  EXPECT_EQ(job(id).suspended_total_ms, 1'000'000);
  clock.advance(seconds(39));
  settle();
  EXPECT_EQ(state(id), "RUNNING");
  clock.advance(seconds(1));
  settle();
  EXPECT_EQ(state(id), "TIMEOUT") << "and one that is set back gives nobody time";
}

TEST_F(EngineGuardTest, WhoWaitedForAnAllocationWhenTheDaemonWentDoesNotGetItLater) {
  const auto blocker = submit(spec("gpu:4"));
  const auto id = engine->clients().allocate(user, spec("gpu:1"), [](const auto&) {})->value();
  settle();
  crash();
  settle();
  EXPECT_EQ(state(id), "CANCELLED");
  end(blocker);
  EXPECT_EQ(engine->ledger().size(), 0U);
}

TEST_F(EngineGuardTest, ALateHangUpEndsNoStepOfTheNextAttempt) {
  const auto id = submit(spec());
  ASSERT_TRUE(begin_step(user, std::to_string(id), {}));
  ASSERT_TRUE(engine->runs().requeue(user, std::to_string(id), false));
  settle();
  end(id);
  ASSERT_EQ(state(id), "RUNNING");
  ASSERT_TRUE(begin_step(user, std::to_string(id), {}));
  engine->clients().hang_up_step({JobId(id), 0, 0});
  settle();
  EXPECT_EQ(job(id).steps.at(1).state, "RUNNING");
  engine->clients().hang_up_step({JobId(id), 1, 0});
  settle();
  EXPECT_EQ(job(id).steps.at(1).state, "CANCELLED");
}

// Between the commit and the act: the next daemon acts.
TEST_F(EngineGuardTest, WhatWasDecidedAndNotDoneIsDoneAfterARestart) {
  auto limited = spec();
  limited.time_limit_ms = 60'000;
  const auto id = submit(limited);
  ASSERT_TRUE(engine->runs().suspend(user, std::to_string(id)));
  settle();
  executor.commands.clear();
  crash();
  settle();
  EXPECT_THAT(executor.commands,
              testing::UnorderedElementsAre(testing::Pair(id, HasSubstr("suspend")),
                                            testing::Pair(id, HasSubstr("60000"))));
}

}  // namespace
}  // namespace aliquot::engine
