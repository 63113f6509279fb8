#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <map>
#include <set>

#include "engine/faulty_disk.hpp"
#include "engine/test_bench.hpp"

namespace aliquot::engine {
namespace {

using testing::HasSubstr;

// The disk first: the bench opens its database on it.
class FaultyBench : public FaultyDisk, public Bench {};
class EngineDiskTest : public testing::Test, public FaultyBench {
 protected:
  // What a client is told in the end: 200 or 503.
  int submitted(const api::JobSpec& wanted, std::int64_t* id = nullptr) {
    int status = 0;
    const auto answer = engine->submit({Uid(1000)}, wanted);
    if (!answer) return answer.error().status;
    if (id != nullptr) *id = answer->job_id;
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
  ASSERT_TRUE(engine->cancel({Uid(1000)}, std::to_string(waiting), {}));
  ASSERT_TRUE(engine->cancel({Uid(1000)}, std::to_string(running), {}));
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
  const auto answer = engine->submit({Uid(1000)}, large);
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
  const auto id =
      engine->allocate({Uid(1000)}, spec("gpu:1"), [&](auto answer) { granted = answer; });
  ASSERT_TRUE(id);
  settle();
  ASSERT_TRUE(granted && !*granted);
  EXPECT_EQ(granted->error().status, 503);
  EXPECT_EQ(granted->error().error.code, "EAGAIN");
  // Its connection ends: nothing to end.
  engine->hang_up(*id);
  mend();
  settle();
  EXPECT_EQ(engine->live(), 0U);
}

TEST_F(EngineDiskTest, WhatAClientSaidOfItsEndIsKept) {
  (void)engine->allocate({Uid(1000)}, spec("gpu:1"), [](auto) {});
  settle();
  ASSERT_TRUE(engine->end_allocation({Uid(1000)}, "1", {.exit_code = 9}));
  engine->hang_up(JobId(1));
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
      if (const auto answer = engine->hold(user, id); !answer) refusals.push_back(answer.error());
      if (const auto answer = engine->show(user, id); !answer) refusals.push_back(answer.error());
      if (const auto answer = engine->requeue(user, id, true); !answer) {
        refusals.push_back(answer.error());
      }
      for (const Refused& one : refusals) {
        EXPECT_NE(one.status, 404) << id << ": " << one.error.message;
        if (one.status == 503) ++unread;
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
  FaultyBench bench;
  std::set<std::int64_t> accepted;
  std::set<std::int64_t> refused;
  std::map<std::int64_t, int> exit_codes;
  // A transaction that failed at its very end may be there after a crash, until another is written.
  bool failed = false;
  bool sure = true;
  const auto any_id = [&]() -> std::int64_t {
    if (accepted.empty()) return 1;
    return *std::next(accepted.begin(), *rc::gen::inRange<std::ptrdiff_t>(0, std::ssize(accepted)));
  };
  const auto crash = [&] {
    if (failed || bench.engine->trouble()) sure = false;
    bench.mend();
    bench.crash();
  };
  const int steps = *rc::gen::inRange(10, 60);
  for (int i = 0; i < steps; ++i) {
    const std::string id = std::to_string(any_id());
    const Caller user{Uid(1000)};
    switch (*rc::gen::inRange(0, 12)) {
      case 0:
      case 1:
      case 2: {
        auto spec = bench.spec(*rc::gen::element<std::string>("", "gpu:1", "gpu:3", "mps:30"));
        if (*rc::gen::inRange(0, 5) == 0) spec.array = "1-3%2";
        const auto answer = bench.engine->submit(user, spec);
        if (!answer) {
          RC_ASSERT(answer.error().status == 503);
          break;
        }
        const auto job = answer->job_id;
        bench.engine->after_commit([&, job] { accepted.insert(job); },
                                   [&, job] { refused.insert(job); });
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
        if (*rc::gen::arbitrary<bool>()) (void)bench.engine->release(user, id);
        break;
      case 8:
        if (*rc::gen::inRange(0, 4) == 0) crash();
        break;
      case 9:
        bench.writes = *rc::gen::inRange(0, 12);
        break;
      case 10:
        if (*rc::gen::arbitrary<bool>()) {
          bench.reads = *rc::gen::inRange(0, 6);
        } else {
          bench.syncs = 0;
        }
        break;
      default:
        bench.mend();
    }
    if (*rc::gen::arbitrary<bool>()) bench.settle();
    failed |= bench.engine->trouble().has_value();
    RC_ASSERT(bench.engine->trouble() ||
              bench.engine->ledger().size() == bench.engine->running().size());
  }
  bench.mend();
  bench.settle();
  bench.settle();
  // No process without its job.
  for (const auto& [key, run] : bench.executor.runs) {
    if (run.over) continue;
    const auto info = bench.engine->show({Uid(0)}, std::to_string(key.first));
    RC_ASSERT(info.has_value());
    RC_ASSERT(core::is_active(*core::parse_job_state(info->state)));
    RC_ASSERT(info->restarts == key.second);
  }
  if (*rc::gen::arbitrary<bool>()) crash();
  for (int round = 0; round < 400 && bench.engine->live() > 0; ++round) {
    bench.settle();
    for (const std::int64_t id : accepted) {
      (void)bench.engine->release({Uid(0)}, std::to_string(id));
    }
    for (auto& [key, run] : bench.executor.runs) {
      if (run.over) continue;
      exit_codes[key.first] = run.cancelled ? -1 : 0;
      bench.executor.end(key.first, 0);
    }
  }
  RC_ASSERT(bench.engine->live() == 0U);
  RC_ASSERT(bench.engine->ledger().size() == 0U);
  for (const std::int64_t id : accepted) {
    const auto info = bench.engine->show({Uid(0)}, std::to_string(id));
    RC_ASSERT(info.has_value());
    RC_ASSERT(core::is_final(*core::parse_job_state(info->state)));
  }
  for (const std::int64_t id : refused) {
    RC_ASSERT(!sure || !bench.engine->show({Uid(0)}, std::to_string(id)));
  }
  const auto record = bench.engine->accounting({Uid(0)}, {});
  for (const auto& job : record->jobs) {
    if (job.state != "COMPLETED" && job.state != "FAILED") continue;
    RC_ASSERT(exit_codes.contains(job.id));
    RC_ASSERT(job.exit_code == exit_codes[job.id]);
  }
}

}  // namespace
}  // namespace aliquot::engine
