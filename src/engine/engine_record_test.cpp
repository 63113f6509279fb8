// What is kept of jobs that are over, how much of it is told at once, and what bounds it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sqlite3.h>

#include <map>
#include <set>

#include "api/json.hpp"
#include "engine/engine_fixture.hpp"
#include "engine/job_info.hpp"

namespace aliquot::engine {
namespace {

class EngineRecordTest : public testing::Test, public EngineFixture {
 protected:
  const Caller user{Uid(1000)};

  // Its options take 50 kB on record.
  api::JobSpec wordy() const {
    auto wanted = spec();
    wanted.hold = true;
    const std::string path = "/" + std::string(4'000, 'a');
    wanted.work_dir = wanted.command = path;
    wanted.std_out = wanted.std_err = wanted.std_in = path;
    wanted.comment = wanted.wckey = wanted.licenses = std::string(1'000, 'c');
    return wanted;
  }
  void over(const api::JobSpec& wanted, int times) {
    for (int i = 0; i < times; ++i) {
      const auto answer = engine->queue().submit(user, wanted);
      ASSERT_TRUE(answer) << answer.error().message;
      ASSERT_TRUE(engine->runs().cancel(user, std::to_string(answer->value()), {}));
    }
    settle();
  }
  // The monitor's sample, with which the record is tidied.
  void minutes_pass(int count) {
    for (int i = 0; i < count; ++i) {
      clock.advance(minutes(1) + seconds(1));
      engine->observe(std::vector<node::GpuView>{});
      settle();
    }
  }
  // One number from the database, as another process reads it.
  std::int64_t number(const std::string& sql) {
    sqlite3* db = nullptr;
    EXPECT_EQ(sqlite3_open(database().c_str(), &db), SQLITE_OK);
    std::int64_t value = -1;
    sqlite3_exec(
        db, sql.c_str(),
        [](void* to, int, char** columns, char**) {
          *static_cast<std::int64_t*>(to) = columns[0] == nullptr ? 0 : std::atoll(columns[0]);
          return 0;
        },
        &value, nullptr);
    sqlite3_close(db);
    return value;
  }
  api::JobList listed(const Views::ListQuery& wanted) { return list(user, wanted).value(); }
};

TEST_F(EngineRecordTest, WhatIsOverCountsUntilItIsOutOfSight) {
  settings.limits.stored_per_user = mib(1);
  (void)engine->reload(settings);
  int taken = 0;
  while (taken < 1'000 && refusal(wordy()) == "accepted") {
    ASSERT_TRUE(engine->runs().cancel(user, "last", {}));
    ++taken;
  }
  EXPECT_GT(taken, 5);
  EXPECT_LT(taken, 50) << "a MiB has no room for more";
  EXPECT_EQ(refusal(wordy()), "ESLURM_ACCOUNTING_POLICY");
  EXPECT_EQ(refusal(spec(), Uid(1001)), "accepted") << "each has a MiB of their own";
  auto array = wordy();
  array.array = "1-100";
  EXPECT_EQ(refusal(array, Uid(1001)), "ESLURM_ACCOUNTING_POLICY") << "it would be a hundred";
  minutes_pass(7);
  EXPECT_EQ(refusal(wordy()), "accepted");
}

// Once it is back in the queue it is not among what is over.
TEST_F(EngineRecordTest, WhatComesBackIsCountedOnce) {
  const auto id = submit(spec("gpu:1"));
  const auto other = submit(spec("gpu:1"));
  end(id);
  end(other);
  EXPECT_EQ(engine->views().figures().all.jobs, 2);
  ASSERT_TRUE(engine->runs().requeue({Uid(1000)}, std::to_string(id), true));
  settle();
  EXPECT_EQ(engine->views().figures().all.jobs, 2);
  EXPECT_EQ(engine->views().figures().all.states["COMPLETED"], 1);
  const auto over = engine->views().picture().over;
  ASSERT_EQ(over.size(), 1U);
  EXPECT_EQ(over[0].id, other);
}

// Without accounts it is whatever a user writes: no series for each.
TEST_F(EngineRecordTest, AnAccountThatNobodyKeepsHasNoFigures) {
  for (const char* label : {"x", "y", "z"}) {
    auto wanted = spec("gpu:1");
    wanted.account = label;
    const auto id = submit(wanted);
    submit(wanted);
    clock.advance(seconds(60));
    end(id);
  }
  const auto held = engine->views().figures().gpu_seconds;
  ASSERT_EQ(held.size(), 1U);
  EXPECT_EQ(held.begin()->first, (std::pair<std::string, std::string>("u1000", "")));
}

// Of the history too, which is recorded every ten minutes by itself.
TEST_F(EngineRecordTest, WhatWasSeenIsKeptWhenTheDaemonStops) {
  submit(spec("gpu:1"));
  std::vector<node::GpuView> views(4);
  for (std::size_t i = 0; i < 4; ++i) views[i].sample.id = GpuId("GPU-" + std::to_string(i));
  for (int i = 0; i < 3; ++i) {
    engine->observe(views);
    settle();
    if (i < 2) clock.advance(seconds(60));
  }
  ASSERT_EQ(engine->views().history().today().at("u1000"), 120'000);
  engine->views().keep_history();
  engine->settle();
  crash();
  EXPECT_EQ(engine->views().history().today().at("u1000"), 120'000);
}

// Whoever is not there has no part: nor has root, in whose name the page is drawn.
TEST_F(EngineRecordTest, ThePageSharesAmongThoseWhoAreThere) {
  submit(spec("gpu:1"));
  const auto shares = engine->views().picture().shares.value().users;
  ASSERT_EQ(shares.size(), 1U);
  EXPECT_EQ(shares[0].user, "u1000");
  EXPECT_EQ(shares[0].norm_shares, 1'000'000);
}

TEST_F(EngineRecordTest, AnUpdateThatMakesItLongerCounts) {
  auto wanted = spec();
  wanted.hold = true;
  const auto id = submit(wanted);
  const auto before = number("SELECT size FROM payloads");
  ASSERT_TRUE(
      update(user, std::to_string(id), "{\"work_dir\":\"/" + std::string(4'000, 'w') + "\"}"));
  settle();
  EXPECT_GT(number("SELECT size FROM payloads"), before + 4'000);
}

TEST_F(EngineRecordTest, WhatItAskedForIsDroppedWithItsScript) {
  over(wordy(), 3);
  const auto before = number("SELECT sum(length(spec)) FROM jobs");
  ASSERT_GT(before, 3 * 20'000);
  minutes_pass(7);
  EXPECT_EQ(number("SELECT count(*) FROM payloads"), 0);
  EXPECT_EQ(number("SELECT sum(length(spec)) FROM jobs"), 3 * 2);
  EXPECT_EQ(job(1).state, "CANCELLED");
  EXPECT_EQ(job(1).work_dir.size(), 4'001U) << "what is shown of it stays";
  const auto back = engine->runs().requeue(user, "1", true);
  ASSERT_FALSE(back);
  EXPECT_EQ(code_of(back.error()), "ESLURM_ALREADY_DONE");
}

TEST_F(EngineRecordTest, OfTooManyTheOldestGo) {
  settings.limits.records_per_user = 10;
  (void)engine->reload(settings);
  over(spec(), 15);
  const auto theirs = submit(spec(), Uid(1001));
  end(theirs);
  minutes_pass(2);
  EXPECT_EQ(job(1).state, "CANCELLED") << "in squeue's sight nothing goes";
  minutes_pass(7);
  EXPECT_EQ(number("SELECT count(*) FROM jobs WHERE uid = 1000"), 10);
  EXPECT_EQ(job(5).state, "");
  EXPECT_EQ(job(6).state, "CANCELLED");
  EXPECT_EQ(state(theirs), "COMPLETED");
  EXPECT_EQ(number("SELECT count(*) FROM jobs WHERE uid = 1001"), 1);
}

TEST_F(EngineRecordTest, OfTooManyAnArrayGoesAsAWhole) {
  settings.limits.records_per_user = 10;
  (void)engine->reload(settings);
  auto array = spec();
  array.array = "1-8%1";
  const auto id = submit(array);
  while (engine->ledger().size() == 1) end(engine->active().at(0)->id.value());
  ASSERT_EQ(number(fmt::format("SELECT count(*) FROM jobs WHERE array = {}", id)), 8);
  over(spec(), 5);
  minutes_pass(9);
  EXPECT_EQ(number("SELECT count(*) FROM jobs"), 5);
  EXPECT_EQ(number(fmt::format("SELECT count(*) FROM jobs WHERE array = {}", id)), 0);
}

TEST_F(EngineRecordTest, ALongRecordIsToldInPages) {
  over(wordy(), 120);  // 3 MB
  const auto waiting = submit(wordy());
  std::set<std::int64_t> seen;
  AccountingQuery query;
  int pages = 0;
  for (bool more = true; more; ++pages) {
    const auto page = engine->views().accounting(user, query);
    ASSERT_TRUE(page);
    EXPECT_LT(api::to_json(*page).size(), 1'200'000U);
    for (const auto& one : page->jobs) EXPECT_TRUE(seen.insert(one.id).second);
    more = page->next.has_value();
    query.after = page->next.value_or(0);
  }
  EXPECT_EQ(seen.size(), 121U);
  EXPECT_GE(pages, 3);
  EXPECT_EQ(engine->views().accounting(user, {.after = INT64_MAX})->jobs.size(), 0U);

  seen.clear();
  Views::ListQuery wanted;
  for (bool more = true; more;) {
    const auto page = listed(wanted);
    for (const auto& one : page.jobs) {
      EXPECT_TRUE(seen.insert(one.id).second || one.id == waiting) << "the queue is there twice";
    }
    more = page.next.has_value();
    wanted.after = page.next.value_or(0);
  }
  EXPECT_EQ(seen.size(), 121U);
  const auto live = listed({.live = true});
  ASSERT_EQ(live.jobs.size(), 1U) << "and squeue asks for no more than that";
  EXPECT_EQ(live.jobs[0].id, waiting);
}

TEST_F(EngineRecordTest, WhatComesBackBetweenTwoPagesIsOnTheLast) {
  over(wordy(), 120);
  auto page = listed({});
  ASSERT_TRUE(page.next);
  ASSERT_TRUE(engine->runs().requeue(user, "120", true));
  settle();
  while (page.next) page = listed({.after = *page.next});
  ASSERT_FALSE(page.jobs.empty());
  EXPECT_EQ(page.jobs.back().id, 120);
  EXPECT_EQ(page.jobs.back().state, "PENDING");
}

TEST_F(EngineRecordTest, PagesOfOneUserGoOnBehindThoseOfOthers) {
  over(wordy(), 60);
  const auto theirs = submit(spec(), Uid(1001));
  end(theirs);
  std::vector<std::int64_t> seen;
  Views::ListQuery wanted{.user = "u1001"};
  for (bool more = true; more;) {
    const auto page = listed(wanted);
    for (const auto& one : page.jobs) seen.push_back(one.id);
    more = page.next.has_value();
    wanted.after = page.next.value_or(0);
  }
  EXPECT_EQ(seen, std::vector<std::int64_t>{theirs});
}

TEST_F(EngineRecordTest, WhoHasFarTooManyIsCountedOnceAndKeepsWhatMayStay) {
  settings.limits.records_per_user = 10;
  (void)engine->reload(settings);
  over(spec(), 1'100);
  clock.advance(minutes(10));
  for (int i = 0; i < 6; ++i) {
    clock.advance(seconds(2));
    engine->observe(std::vector<node::GpuView>{});
    settle();
  }
  EXPECT_EQ(number("SELECT count(*) FROM jobs"), 10);
}

TEST_F(EngineRecordTest, NumbersWithNoJobAreNotGoneOver) {
  submit(spec());
  engine.reset();
  sqlite3* db = nullptr;
  ASSERT_EQ(sqlite3_open(database().c_str(), &db), SQLITE_OK);
  sqlite3_exec(db, "INSERT OR REPLACE INTO notes VALUES('last id', '9000')", nullptr, nullptr,
               nullptr);
  sqlite3_close(db);
  open();
  const auto last = submit(spec());
  ASSERT_EQ(last, 9'001);
  AccountingQuery query;
  std::vector<std::int64_t> seen;
  int pages = 0;
  for (bool more = true; more; ++pages) {
    const auto page = engine->views().accounting(user, query);
    ASSERT_TRUE(page);
    for (const auto& one : page->jobs) seen.push_back(one.id);
    more = page->next.has_value();
    query.after = page->next.value_or(0);
  }
  EXPECT_EQ(seen, (std::vector<std::int64_t>{1, last}));
  EXPECT_EQ(pages, 2);
}

TEST_F(EngineRecordTest, AJobHasOnlySoManySteps) {
  settings.limits.steps = 3;
  (void)engine->reload(settings);
  const auto id = std::to_string(submit(spec()));
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(begin_step(user, id, {}));
    ASSERT_TRUE(engine->clients().end_step(user, id, i, {}));
  }
  const auto refused = begin_step(user, id, {});
  ASSERT_FALSE(refused);
  EXPECT_EQ(code_of(refused.error()), "ESLURM_STEP_LIMIT");
  settle();
  crash();
  EXPECT_FALSE(begin_step(user, id, {})) << "nor has a daemon that comes back forgotten";
  // A step that is over is not one that never was.
  EXPECT_EQ(code_of(engine->clients().cancel_step(user, id, "2", {}).error()),
            "ESLURM_ALREADY_DONE");
  EXPECT_EQ(engine->clients().cancel_step(user, id, "7", {}).error().message,
            "job 1 has no step 7");
}

TEST_F(EngineRecordTest, AnElementThatIsSingledOutKeepsTheThrottle) {
  auto array = spec();
  array.array = "1-6%1";
  const auto id = std::to_string(submit(array));
  const auto running = [&] { return engine->ledger().size(); };
  ASSERT_EQ(running(), 1U);
  ASSERT_TRUE(engine->queue().hold(user, id + "_3"));
  ASSERT_TRUE(engine->queue().release(user, id + "_3"));
  settle();
  EXPECT_EQ(running(), 1U);
  EXPECT_EQ(job(id + "_3").reason, "JobArrayTaskLimit");
  ASSERT_TRUE(update(user, id + "_5", R"({"nice":5})"));
  settle();
  EXPECT_EQ(running(), 1U);
  const auto why = engine->views().why(user, id + "_5");
  ASSERT_TRUE(why);
  EXPECT_EQ(why->sentences,
            std::vector<std::string>{"As many of its array run as may run at once."});
  ASSERT_TRUE(engine->runs().requeue(user, id + "_1", false));
  end(job(id + "_1").id);
  EXPECT_EQ(running(), 1U);
  ASSERT_TRUE(update(user, id, R"({"array_throttle":3})"));
  settle();
  EXPECT_EQ(running(), 3U) << "for all of them";
  crash();
  settle();
  EXPECT_EQ(running(), 3U);
  for (int i = 0; i < 20; ++i) {
    for (const auto& [key, run] : std::map(executor.runs)) end(key.first);
  }
  EXPECT_EQ(engine->live(), 0U) << "each has its turn";
}

TEST_F(EngineRecordTest, TheRoomOfAThrottleIsTakenInTheQueuesOrder) {
  auto array = spec();
  array.array = "1-6%1";
  const auto id = std::to_string(submit(array));
  ASSERT_TRUE(update(user, id + "_4", R"({"nice":5})"));
  ASSERT_TRUE(engine->queue().hold(user, id + "_6"));
  ASSERT_TRUE(engine->queue().release(user, id + "_6"));
  settle();
  std::vector<std::int64_t> order;
  while (engine->ledger().size() == 1) {
    const api::JobInfo running = to_info(*engine->active().at(0));
    order.push_back(running.array_task_id.value_or(0));
    end(running.id);
  }
  EXPECT_EQ(order, (std::vector<std::int64_t>{1, 6, 2, 3, 5, 4}));
}

TEST_F(EngineRecordTest, AnArrayOfTheVersionBeforeKeepsItsThrottle) {
  auto array = spec();
  array.array = "1-6%1";
  const auto id = std::to_string(submit(array));
  engine.reset();
  number("UPDATE jobs SET info = json_remove(info, '$.array_throttle') WHERE over = 0");
  open();
  settle();
  ASSERT_TRUE(engine->queue().hold(user, id + "_3"));
  ASSERT_TRUE(engine->queue().release(user, id + "_3"));
  settle();
  EXPECT_EQ(engine->ledger().size(), 1U);
}

TEST_F(EngineRecordTest, WhyAJobWaitsIsWhatSqueueSays) {
  auto held = spec();
  held.hold = true;
  const auto id = submit(held);
  EXPECT_EQ(engine->views().why(user, std::to_string(id))->sentences,
            std::vector<std::string>{"Held: 'scontrol release 1'."});
  auto waits = spec();
  waits.dependency = "afterok:1";
  const auto next = submit(waits);
  EXPECT_EQ(engine->views().why(user, std::to_string(next))->sentences,
            std::vector<std::string>{"It waits for afterok:1(unfulfilled)."});
}

}  // namespace
}  // namespace aliquot::engine
