#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sqlite3.h>

#include "engine/engine_fixture.hpp"

namespace aliquot::engine {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class EngineLimitsTest : public testing::Test, public EngineFixture {
 protected:
  api::JobSpec held() const {
    auto wanted = spec();
    wanted.hold = true;
    return wanted;
  }
  void reload() { (void)engine->reload(settings); }
};

TEST_F(EngineLimitsTest, TheQueueIsLimitedForAllAndForEach) {
  settings.limits.job_count = 6;
  reload();
  for (int i = 0; i < 3; ++i) submit(held());
  EXPECT_EQ(refusal(held()), "ESLURM_ACCOUNTING_POLICY");  // half of it
  auto array = held();
  array.array = "1-4";
  EXPECT_EQ(refusal(array, Uid(1001)), "ESLURM_ACCOUNTING_POLICY");
  array.array = "1-3";
  EXPECT_EQ(refusal(array, Uid(1001)), "accepted");
  EXPECT_EQ(refusal(held(), Uid(1002)), "EAGAIN");
  EXPECT_EQ(refusal(held(), Uid(0)), "EAGAIN");
  EXPECT_EQ(status_of(engine->clients().allocate({Uid(1002)}, spec(), [](auto) {}).error()), 503);
  ASSERT_TRUE(engine->runs().cancel({Uid(1000)}, "1", {}));
  settle();
  EXPECT_EQ(refusal(held(), Uid(0)), "accepted");
}

TEST_F(EngineLimitsTest, WhatComesBackCountsToo) {
  settings.limits.jobs_per_user = 2;
  reload();
  const auto over = submit(spec());
  end(over);
  for (int i = 0; i < 2; ++i) submit(held());
  const auto refused = engine->runs().requeue({Uid(1000)}, std::to_string(over), true);
  ASSERT_FALSE(refused);
  EXPECT_EQ(code_of(refused.error()), "ESLURM_ACCOUNTING_POLICY");
  EXPECT_TRUE(engine->runs().requeue({Uid(0)}, std::to_string(over), true));
}

TEST_F(EngineLimitsTest, SizesAreLimited) {
  settings.limits.script = kib(10);
  settings.limits.environment = kib(20);
  settings.limits.dependencies = 2;
  settings.limits.array_size = 5;
  reload();
  auto wanted = held();
  wanted.script += std::string(10'000, '#');
  EXPECT_EQ(refusal(wanted), "accepted");
  wanted.script += std::string(1'000, '#');
  EXPECT_EQ(refusal(wanted), "ESLURM_INVALID_JOB_TEXT");
  wanted = held();
  wanted.environment = {"A=" + std::string(10'000, 'x')};
  wanted.arguments = {std::string(10'000, 'x')};
  EXPECT_EQ(refusal(wanted), "accepted");
  wanted.arguments.emplace_back(1'000, 'x');
  EXPECT_EQ(refusal(wanted), "ESLURM_INVALID_JOB_TEXT");
  wanted = held();
  wanted.dependency = "afterany:1:2";
  EXPECT_EQ(refusal(wanted), "accepted");
  wanted.dependency = "afterany:1:2:1";
  EXPECT_EQ(refusal(wanted), "ESLURM_DEPENDENCY");
  wanted = held();
  wanted.array = "0-4";
  EXPECT_EQ(refusal(wanted), "accepted");
  wanted.array = "5";
  EXPECT_EQ(refusal(wanted), "ESLURM_INVALID_ARRAY");
  wanted = held();
  wanted.gpus_per_task = std::string(70'000, ' ');
  EXPECT_EQ(refusal(wanted), "ESLURM_PATHNAME_TOO_LONG");
}

TEST_F(EngineLimitsTest, WhatIsStoredForAUserIsLimitedUntilItIsDropped) {
  settings.limits.stored_per_user = kib(100);
  reload();
  auto large = held();
  large.script += std::string(60'000, '#');
  const auto id = submit(large);
  EXPECT_EQ(refusal(large), "ESLURM_ACCOUNTING_POLICY");
  EXPECT_EQ(refusal(large, Uid(1001)), "accepted");
  // Cancelled jobs can be requeued for a while: they count until then.
  ASSERT_TRUE(engine->runs().cancel({Uid(1000)}, std::to_string(id), {}));
  settle();
  EXPECT_EQ(refusal(large), "ESLURM_ACCOUNTING_POLICY");
  clock.advance(settings.min_job_age + minutes(2));
  engine->observe(std::vector<node::GpuView>{});
  settle();
  EXPECT_EQ(refusal(large), "accepted");
}

TEST_F(EngineLimitsTest, ArgumentsWaitInTheRecord) {
  auto wanted = held();
  wanted.arguments = {"a", "", "b c"};
  const auto id = submit(wanted);
  // An update changes neither them nor what is kept in memory.
  ASSERT_TRUE(update({Uid(1000)}, std::to_string(id), R"({"arguments":["x"]})"));
  settle();
  crash();
  ASSERT_TRUE(engine->queue().release({Uid(1000)}, std::to_string(id)));
  settle();
  EXPECT_THAT(executor.runs.begin()->second.order.job.spec.arguments, ElementsAre("a", "", "b c"));
}

// A thousand jobs with a megabyte each are in the database, and not in the daemon.
TEST_F(EngineLimitsTest, NothingLargeIsKeptInMemory) {
  auto wanted = held();
  wanted.environment = {"A=b"};
  wanted.arguments = {"a"};
  const auto id = submit(wanted);
  ASSERT_TRUE(engine->queue().release({Uid(1000)}, std::to_string(id)));
  settle();
  const StartOrder& order = executor.runs.begin()->second.order;
  EXPECT_EQ(order.job.spec.script, "");
  EXPECT_THAT(order.job.spec.environment, ElementsAre());
  EXPECT_EQ(order.payload.script, wanted.script);
  EXPECT_THAT(order.payload.environment, ElementsAre("A=b"));
}

TEST_F(EngineLimitsTest, OldJobsArePurgedWhereItIsWanted) {
  const auto old = submit(spec());
  auto array = spec();
  array.array = "1-2";
  const auto elements = submit(array);
  end(old);
  end(elements + 1);
  auto next = held();
  next.dependency = fmt::format("afternotok:{}", old);
  const auto dependent = submit(next);
  clock.advance(days(400));
  engine->observe(std::vector<node::GpuView>{});
  settle();
  EXPECT_EQ(state(old), "COMPLETED");  // never, unless it is said
  settings.purge_after = days(365);
  reload();
  clock.advance(minutes(2));
  engine->observe(std::vector<node::GpuView>{});
  settle();
  EXPECT_EQ(state(old), "COMPLETED");           // somebody waits for it
  EXPECT_EQ(state(elements + 1), "COMPLETED");  // some of its array runs
  ASSERT_TRUE(engine->runs().cancel({Uid(1000)}, std::to_string(dependent), {}));
  end(elements);
  clock.advance(minutes(2));
  engine->observe(std::vector<node::GpuView>{});
  settle();
  EXPECT_EQ(state(old), "");
  EXPECT_EQ(state(elements + 1), "COMPLETED");  // its last one has only just ended
  clock.advance(days(366));
  engine->observe(std::vector<node::GpuView>{});
  settle();
  EXPECT_EQ(state(elements + 1), "");
  crash();
  EXPECT_GT(submit(spec()), dependent);  // no number twice
}

TEST_F(EngineLimitsTest, AStartForWhichThereWasNoRoomIsTriedAgain) {
  const auto id = submit(spec("gpu:4"));
  executor.runs.clear();
  engine->runs().on_postponed(JobId(id), 0, "No space left on device");
  settle();
  EXPECT_EQ(state(id), "PENDING");
  EXPECT_EQ(job(id).reason, "BeginTime");
  EXPECT_THAT(job(id).reason_detail, HasSubstr("No space left"));
  EXPECT_EQ(engine->ledger().size(), 0U);
  EXPECT_EQ(engine->next_due(), clock.wall() + kLaunchPause);
  clock.advance(kLaunchPause);
  settle();
  EXPECT_EQ(state(id), "RUNNING");
  EXPECT_EQ(job(id).restarts, 0);
}

TEST(StoreSchema, TheFirstIsBroughtToTheSecond) {
  std::string pattern = testing::TempDir() + "aliquot-store-XXXXXX";
  const std::string folder = ::mkdtemp(pattern.data());
  const std::string path = folder + "/state.db";
  { ASSERT_TRUE(Store::open(path)); }
  sqlite3* db = nullptr;
  ASSERT_EQ(sqlite3_open(path.c_str(), &db), SQLITE_OK);
  const char* back = R"(
    DROP INDEX payloads_uid;
    ALTER TABLE payloads DROP COLUMN size;
    ALTER TABLE payloads DROP COLUMN uid;
    ALTER TABLE payloads DROP COLUMN arguments;
    INSERT INTO payloads VALUES(7, '#!/bin/sh', x'413D3100');
    PRAGMA user_version = 1;)";
  ASSERT_EQ(sqlite3_exec(db, back, nullptr, nullptr, nullptr), SQLITE_OK) << sqlite3_errmsg(db);
  sqlite3_close(db);
  auto store = Store::open(path);
  ASSERT_TRUE(store) << store.error().message;
  const auto payload = store->payload(7);
  ASSERT_TRUE(payload) << payload.error().message;
  EXPECT_EQ(payload->script, "#!/bin/sh");
  EXPECT_THAT(payload->environment, ElementsAre("A=1"));
  EXPECT_TRUE(payload->arguments.empty());
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace aliquot::engine
