#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <set>

#include "engine/engine_fixture.hpp"
#include "engine/faulty_disk.hpp"
#include "engine/history_fixture.hpp"

namespace aliquot::engine {
namespace {

using testing::HasSubstr;

// The disk first: the bench opens its database on it.
class FaultyFixture : public FaultyDisk, public EngineFixture {};
class EngineDiskTest : public testing::Test, public FaultyFixture {
 protected:
  // What a client is told in the end: 200 or 503.
  int submitted(const api::JobSpec& wanted, std::int64_t* id = nullptr) {
    int status = 0;
    const auto answer = engine->queue().submit({Uid(1000)}, wanted);
    if (!answer) return status_of(answer.error());
    if (id != nullptr) *id = answer->value();
    engine->after_commit([&] { status = 200; }, [&] { status = 503; });
    settle();
    return status;
  }
};

TEST_F(EngineDiskTest, AFullDiskRefusesAndIsGotOver) {
  const auto running = submit(spec("gpu:4"));
  const auto waiting = submit(spec("gpu:1"));
  writes = 0;
  std::int64_t refused = 0;
  EXPECT_EQ(submitted(spec(), &refused), 503);
  ASSERT_TRUE(engine->trouble());
  EXPECT_THAT(engine->trouble()->message, HasSubstr("full"));
  EXPECT_EQ(job(refused).state, "");
  // What waits and runs stays as it was.
  ASSERT_TRUE(engine->runs().cancel({Uid(1000)}, std::to_string(waiting), {}));
  ASSERT_TRUE(engine->runs().cancel({Uid(1000)}, std::to_string(running), {}));
  settle();
  EXPECT_EQ(state(waiting), "PENDING");
  EXPECT_EQ(state(running), "RUNNING");
  EXPECT_TRUE(executor.commands.empty());
  // It ends meanwhile: on record as soon as there is room, without anybody asking.
  end(running, 3);
  EXPECT_EQ(state(running), "RUNNING");
  EXPECT_EQ(engine->ledger().size(), 1U);
  EXPECT_TRUE(executor.forgotten.empty());
  mend();
  ASSERT_EQ(engine->next_due(), clock.wall() + kRecordPause);
  clock.advance(*engine->next_due() - clock.wall());
  settle();
  EXPECT_EQ(state(running), "FAILED");
  EXPECT_EQ(job(running).exit_code, 3);
  EXPECT_EQ(state(waiting), "RUNNING");
  EXPECT_FALSE(engine->trouble());
  std::int64_t accepted = 0;
  EXPECT_EQ(submitted(spec(), &accepted), 200);
  EXPECT_GT(accepted, refused);  // the number of the one that was refused is never another's
}

TEST_F(EngineDiskTest, ARequestTooLargeForTheDiskHoldsNothingElseUp) {
  const auto running = submit(spec("gpu:1"));
  auto large = spec();
  large.environment = {"X=" + std::string(100'000, 'x')};
  executor.end(running, 0);
  executor.deliver();
  const auto answer = engine->queue().submit({Uid(1000)}, large);
  ASSERT_TRUE(answer);
  int status = 0;
  engine->after_commit([&] { status = 200; }, [&] { status = 503; });
  writes = 20;  // pages of the log: enough for an end
  engine->settle();
  writes = 20;
  EXPECT_EQ(status, 503);
  engine->settle();
  EXPECT_EQ(state(running), "COMPLETED");
}

TEST_F(EngineDiskTest, AnAllocationThatCannotBeRecordedIsRefused) {
  writes = 0;
  std::optional<Answer<api::Allocation>> granted;
  const auto id = engine->clients().allocate({Uid(1000)}, spec("gpu:1"),
                                             [&](auto answer) { granted = answer; });
  ASSERT_TRUE(id);
  settle();
  ASSERT_TRUE(granted && !*granted);
  EXPECT_EQ(status_of(granted->error()), 503);
  EXPECT_EQ(code_of(granted->error()), "EAGAIN");
  // Its connection ends: nothing to end.
  engine->clients().hang_up(*id);
  mend();
  settle();
  EXPECT_EQ(engine->live(), 0U);
}

TEST_F(EngineDiskTest, WhatAClientSaidOfItsEndIsKept) {
  (void)engine->clients().allocate({Uid(1000)}, spec("gpu:1"), [](auto) {});
  settle();
  ASSERT_TRUE(engine->clients().end_allocation({Uid(1000)}, "1", {.exit_code = 9}));
  engine->clients().hang_up(JobId(1));
  writes = 0;
  settle();
  EXPECT_EQ(state(1), "RUNNING");
  mend();
  settle();
  settle();
  EXPECT_EQ(state(1), "FAILED");
  EXPECT_EQ(job(1).exit_code, 9);
}

TEST_F(EngineDiskTest, WhileTheRecordCannotBeReadEither) {
  const auto running = submit(spec("gpu:1"));
  settle();
  executor.end(running, 0);
  writes = 0;
  reads = 0;
  settle();
  mend();
  settle();
  EXPECT_EQ(state(running), "COMPLETED");
  EXPECT_EQ(engine->ledger().size(), 0U);
}

// Nobody is told that there is no such job because the disk does not answer.
TEST_F(EngineDiskTest, WhatCannotBeReadIsNotSaidToBeMissing) {
  end(submit(spec()));
  auto held = spec();
  held.hold = true;
  submit(held);
  int unread = 0;
  for (const char* id : {"1", "2", "last"}) {
    for (int left = 0; left < 8; ++left) {
      crash();  // what is cached needs no disk
      reads = left;
      const Caller user{Uid(1000)};
      std::vector<Refused> refusals;
      if (const auto answer = engine->queue().hold(user, id); !answer)
        refusals.push_back(answer.error());
      if (const auto answer = engine->views().show(user, id); !answer)
        refusals.push_back(answer.error());
      if (const auto answer = engine->runs().requeue(user, id, true); !answer) {
        refusals.push_back(answer.error());
      }
      for (const Refused& one : refusals) {
        EXPECT_NE(status_of(one), 404) << id << ": " << one.message;
        if (status_of(one) == 503) ++unread;
      }
      mend();
      settle();
    }
  }
  EXPECT_GT(unread, 0);
}

// Any history on a disk that fails at any write, sync or read: what was accepted is never lost,
// what was refused never runs, nothing is granted twice, no process is without its job, and every
// job ends as its processes did.
RC_GTEST_PROP(EngineDisk, SurvivesADiskThatFailsAnywhere, ()) {
  FaultyFixture bench;
  History history(bench);
  std::set<std::int64_t> refused;
  // A transaction that failed at its very end may be there after a crash, until another is written.
  bool failed = false;
  bool sure = true;
  const auto crash = [&] {
    if (failed || bench.engine->trouble()) sure = false;
    bench.mend();
    bench.crash();
  };
  const int steps = *rc::gen::inRange(10, 60);
  for (int i = 0; i < steps; ++i) {
    const int what = *rc::gen::inRange(0, 12);
    if (what < 3) {
      const auto answer = bench.engine->queue().submit({Uid(1000)}, history.any_spec());
      if (answer) {
        const auto job = answer->value();
        bench.engine->after_commit([&, job] { history.accepted.insert(job); },
                                   [&, job] { refused.insert(job); });
      } else {
        RC_ASSERT(status_of(answer.error()) == 503);
      }
    } else if (what < 8) {
      history.go_on();
    } else if (what == 8) {
      if (*rc::gen::inRange(0, 4) == 0) crash();
    } else if (what == 9) {
      bench.writes = *rc::gen::inRange(0, 12);
    } else if (what == 10 && *rc::gen::arbitrary<bool>()) {
      bench.reads = *rc::gen::inRange(0, 6);
    } else if (what == 10) {
      bench.syncs = 0;
    } else {
      bench.mend();
    }
    if (*rc::gen::arbitrary<bool>()) bench.settle();
    failed |= bench.engine->trouble().has_value();
    RC_ASSERT(bench.engine->trouble() ||
              bench.engine->ledger().size() == bench.engine->runs().running().size());
  }
  bench.mend();
  bench.settle();
  bench.settle();
  // No process without its job.
  for (const auto& [key, run] : bench.executor.runs) {
    if (run.over) continue;
    const auto info = bench.engine->views().show({Uid(0)}, std::to_string(key.first));
    RC_ASSERT(info.has_value());
    RC_ASSERT(core::is_active(*core::parse_job_state(info->state)));
    RC_ASSERT(info->restarts == key.second);
  }
  if (*rc::gen::arbitrary<bool>()) crash();
  history.wind_up();
  for (const std::int64_t id : refused) {
    RC_ASSERT(!sure || !bench.engine->views().show({Uid(0)}, std::to_string(id)));
  }
}

}  // namespace
}  // namespace aliquot::engine
