#include "engine/store.hpp"

#include <gtest/gtest.h>
#include <sqlite3.h>
#include <unistd.h>

#include <filesystem>

#include "api/json.hpp"
#include "engine/job_info.hpp"

namespace aliquot::engine {
namespace {

// Rows as the version wrote them whose engine kept a JobInfo for each job.
constexpr const char* kRunning =
    R"({"id":1,"array_pending":"","array_count":0,"array_min":0,"array_max":0,"array_step":1,)"
    R"("array_throttle":0,"name":"j.sh","user":"ann","uid":1000,"group":"users","gid":100,)"
    R"("account":"ann","partition":"main","qos":"normal","comment":"hello","state":"RUNNING",)"
    R"("reason":"None","reason_detail":"","priority":10000,"nice":0,"dependency":"",)"
    R"("requeue":true,"restarts":0,"batch":true,"exit_code":0,"exit_signal":0,)"
    R"("derived_exit_code":0,"derived_exit_signal":0,"submit_ms":1794970389805,)"
    R"("eligible_ms":1794970389805,"start_ms":1794970389894,"end_ms":1794970689894,)"
    R"("time_limit_ms":300000,"suspended_total_ms":0,"ntasks":1,"ntasks_per_node":0,)"
    R"("cpus_per_task":1,"cpus":1,"memory":0,"gres":"mps:25","constraint":"","node":"vm",)"
    R"("gpus":[{"index":0,"uuid":"GPU-8dc2d1ae","model":"h200","memory":37527470080,)"
    R"("compute":2500,"whole":false,"node":""}],)"
    R"("enforcement":"mps(user)+library+leases+watchdog","command":"/home/ann/j.sh",)"
    R"("work_dir":"/home/ann","std_out":"/home/ann/slurm-1.out",)"
    R"("std_err":"/home/ann/slurm-1.out","std_in":"/dev/null","submit_host":"vm","steps":[],)"
    R"("user_cpu_ms":0,"system_cpu_ms":0,"max_rss":0,"gpu_ms":0,"gpu_memory_peak":0,)"
    R"("gpu_utilisation":0})";
constexpr const char* kRunningSpec =
    R"({"name":"j.sh","partition":"","account":"","qos":"","comment":"hello","batch":true,)"
    R"("script":"","arguments":[],"command":"/home/ann/j.sh","work_dir":"/home/ann",)"
    R"("environment":[],"umask":18,"propagate":["CPU","NOFILE"],)"
    R"("limits":[{"resource":0},{"resource":3,"soft":8388608}],"submit_host":"vm",)"
    R"("time_limit_ms":300000,"hold":false,"requeue":true,"nice":0,"nodes":1,"gres":"mps:25"})";
constexpr const char* kArray =
    R"({"id":2,"array_job_id":2,"array_pending":"1,3,5%2","array_count":3,"array_min":1,)"
    R"("array_max":5,"array_step":2,"array_throttle":2,"name":"j.sh","user":"ann","uid":1000,)"
    R"("group":"users","gid":100,"account":"ann","partition":"main","qos":"normal",)"
    R"("comment":"","state":"PENDING","reason":"Dependency","reason_detail":"",)"
    R"("priority":9995,"nice":5,"dependency":"afterany:1","requeue":true,)"
    R"("restarts":0,"batch":true,"exit_code":0,"exit_signal":0,"derived_exit_code":0,)"
    R"("derived_exit_signal":0,"submit_ms":1794970390233,"eligible_ms":1794970390233,)"
    R"("suspended_total_ms":0,"ntasks":2,"ntasks_per_node":0,"cpus_per_task":1,"cpus":2,)"
    R"("memory":0,"gres":"gpu:4","constraint":"","node":"","gpus":[],"enforcement":"",)"
    R"("command":"/home/ann/j.sh","work_dir":"/home/ann",)"
    R"("std_out":"/home/ann/slurm-2_4294967294.out",)"
    R"("std_err":"/home/ann/slurm-2_4294967294.out","std_in":"/dev/null","submit_host":"vm",)"
    R"("steps":[],"user_cpu_ms":0,"system_cpu_ms":0,"max_rss":0,"gpu_ms":0,)"
    R"("gpu_memory_peak":0,"gpu_utilisation":0})";
constexpr const char* kArraySpec =
    R"({"name":"j.sh","comment":"","batch":true,"command":"/home/ann/j.sh",)"
    R"("work_dir":"/home/ann","submit_host":"vm","nice":5,"dependency":"afterany:1",)"
    R"("array":"1-6:2%2","nodes":1,"ntasks":2,"gres":"gpu:4"})";

// A row of a version before has not all fields that there are now; what they say is in its
// specification.
std::string with_new_fields(const char* row) {
  auto info = api::from_json<api::JobInfo>(row);
  EXPECT_TRUE(info) << info.error().message;
  if (!info) return "";
  info->min_memory = info->memory;
  info->usual_limit = !info->time_limit_ms;
  return api::to_json(*info);
}

class StoreTest : public testing::Test {
 protected:
  StoreTest() {
    std::string pattern = testing::TempDir() + "aliquot-store-XXXXXX";
    folder_ = ::mkdtemp(pattern.data());
    open();
  }
  ~StoreTest() override { std::filesystem::remove_all(folder_); }
  void open() {
    store_.reset();
    auto opened = Store::open(path());
    ASSERT_TRUE(opened) << opened.error().message;
    store_.emplace(std::move(*opened));
  }
  [[nodiscard]] std::string path() const { return folder_ + "/state.db"; }
  // As another program writes it.
  void execute(const std::string& sql) {
    sqlite3* db = nullptr;
    ASSERT_EQ(sqlite3_open(path().c_str(), &db), SQLITE_OK);
    char* error = nullptr;
    EXPECT_EQ(sqlite3_exec(db, sql.c_str(), nullptr, nullptr, &error), SQLITE_OK) << error;
    sqlite3_free(error);
    sqlite3_close(db);
  }
  static Job job(std::int64_t id, core::JobState state = core::JobState::pending) {
    Job job{.id = JobId(id)};
    job.payload = id;
    job.spec.name = "job";
    job.owner = {"ann", Uid(1000), "users", Gid(100)};
    job.submitted = WallTime(1'000 + id);
    job.state = state;
    if (core::is_final(state)) job.end = WallTime(2'000 + id);
    return job;
  }
  void save(const Job& one) {
    ASSERT_TRUE(store_->save(one));
    ASSERT_TRUE(store_->commit());
  }

  std::string folder_;
  std::optional<Store> store_;
};

TEST_F(StoreTest, ReadsTheRowsOfVersionsBefore) {
  execute(
      fmt::format("INSERT INTO jobs VALUES(1,NULL,NULL,1000,'j.sh','RUNNING',0,0,1794970389805,"
                  "1794970389894,NULL,0,0,'1:e62e',1,'{}','{}')",
                  kRunning, kRunningSpec));
  execute(
      fmt::format("INSERT INTO jobs VALUES(2,2,NULL,1000,'j.sh','PENDING',0,0,1794970390233,"
                  "NULL,NULL,1,0,'',2,'{}','{}')",
                  kArray, kArraySpec));
  execute("INSERT INTO runs VALUES(1,'boot',2610899,5)");
  const auto live = store_->load_live();
  ASSERT_TRUE(live) << live.error().message;
  ASSERT_EQ(live->unreadable.size(), 0U);
  ASSERT_EQ(live->jobs.size(), 2U);

  const Job& running = live->jobs[0];
  EXPECT_EQ(running.state, core::JobState::running);
  EXPECT_EQ(running.mark, "1:e62e");
  EXPECT_EQ(running.run_time.boot, "boot");
  EXPECT_EQ(running.run_time.before, Millis(5));
  EXPECT_EQ(running.time_limit, minutes(5));
  EXPECT_EQ(running.start, WallTime(1'794'970'389'894));
  ASSERT_EQ(running.gpus.size(), 1U);
  EXPECT_EQ(running.gpus[0].granted.portion.compute, Compute(2'500));
  EXPECT_EQ(api::to_json(to_info(running)), with_new_fields(kRunning));

  const Job& array = live->jobs[1];
  EXPECT_EQ(array.hold, Hold::user);
  EXPECT_EQ(array.reason, Reason::dependency);
  EXPECT_EQ(array.waiting.tasks, (std::vector<std::int64_t>{1, 3, 5}));
  EXPECT_EQ(array.throttle, 2);
  EXPECT_EQ(api::to_json(to_info(array)), with_new_fields(kArray));
}

TEST_F(StoreTest, KeepsWhatWasCommittedAndNothingElse) {
  save(job(1));
  ASSERT_TRUE(store_->save(job(2)));
  EXPECT_TRUE(store_->dirty());
  store_->rollback();
  EXPECT_FALSE(store_->dirty());
  open();
  EXPECT_TRUE(store_->load(JobId(1)));
  EXPECT_EQ(store_->load(JobId(2)).error().code, Error::Code::not_found);
  EXPECT_EQ(store_->last_id().value(), 1);
}

TEST_F(StoreTest, SetsAsideWhatItCannotRead) {
  save(job(1));
  save(job(2, core::JobState::running));
  execute("UPDATE jobs SET info = 'nonsense' WHERE id = 2");
  const auto live = store_->load_live();
  ASSERT_TRUE(live);
  EXPECT_EQ(live->jobs.size(), 1U);
  ASSERT_EQ(live->unreadable.size(), 1U);
  EXPECT_EQ(live->unreadable[0].id, JobId(2));
  EXPECT_TRUE(live->unreadable[0].active);
  ASSERT_TRUE(store_->commit());
  EXPECT_FALSE(store_->load(JobId(2)));
  EXPECT_EQ(store_->last_id().value(), 2) << "its number is not given again";
}

TEST_F(StoreTest, FindsJobsByWhatIsAskedFor) {
  save(job(1, core::JobState::completed));
  save(job(2));
  auto other = job(3, core::JobState::failed);
  other.owner.uid = Uid(1001);
  other.spec.name = "other";
  save(other);
  const auto ids = [&](const AccountingQuery& query) {
    std::vector<std::int64_t> found;
    const auto page = store_->query(query).value();
    for (const auto& one : page.jobs) found.push_back(one.id);
    return found;
  };
  using Ids = std::vector<std::int64_t>;
  EXPECT_EQ(ids({}), (Ids{1, 2, 3}));
  EXPECT_EQ(ids({.uid = Uid(1001)}), (Ids{3}));
  EXPECT_EQ(ids({.name = "job"}), (Ids{1, 2}));
  EXPECT_EQ(ids({.only_over = true}), (Ids{1, 3}));
  EXPECT_EQ(ids({.start = WallTime(2'002)}), (Ids{2, 3})) << "what has not ended counts";
  EXPECT_EQ(ids({.end = WallTime(1'001)}), (Ids{1}));
  EXPECT_EQ(ids({.after = 2}), (Ids{3}));
  EXPECT_EQ(store_->info(JobId(3)).value().state, "FAILED");
  EXPECT_EQ(store_->last_of(Uid(1000)).value(), JobId(2));
}

TEST_F(StoreTest, KnowsWhatOthersWaitFor) {
  auto element = job(4, core::JobState::completed);
  element.array = JobId(3);
  element.task = 7;
  element.start = WallTime(1'500);
  save(element);
  auto rest = job(3);
  rest.array = JobId(3);
  rest.set_waiting({{8, 9}, 0});
  save(rest);
  EXPECT_TRUE(store_->facts(JobId(3), 7).value()->ok);
  EXPECT_FALSE(store_->facts(JobId(3), 8).value()->ended);
  EXPECT_FALSE(store_->facts(JobId(3), std::nullopt).value()->ended);
  EXPECT_FALSE(store_->facts(JobId(5), std::nullopt).value());
  EXPECT_EQ(store_->find_task(3, 7).value(), JobId(4));
}

TEST_F(StoreTest, DropsScriptsAndOldJobs) {
  save(job(1, core::JobState::completed));
  ASSERT_TRUE(
      store_->save_payload(1, Uid(1000), {"#!/bin/sh\n", {"A=1", "B="}, {"x y"}}, Bytes(5)));
  EXPECT_EQ(store_->payload(1).value().environment, (std::vector<std::string>{"A=1", "B="}));
  EXPECT_EQ(store_->payload(1).value().arguments, (std::vector<std::string>{"x y"}));
  EXPECT_GT(store_->stored_for(Uid(1000)).value(), Bytes(15));
  EXPECT_EQ(store_->drop_payloads(WallTime(2'000), 10).value(), 0) << "it ended later";
  EXPECT_EQ(store_->drop_payloads(WallTime(3'000), 10).value(), 1);
  EXPECT_EQ(store_->payload(1).error().code, Error::Code::not_found);
  EXPECT_EQ(store_->crowded(0).value().size(), 1U);
  const auto needed = [](JobId) { return true; };
  EXPECT_EQ(store_->purge(WallTime(3'000), 10, needed).value(), 0);
  EXPECT_EQ(store_->purge(WallTime(3'000), 10, [](JobId) { return false; }).value(), 1);
  EXPECT_EQ(store_->last_id().value(), 1);
}

TEST_F(StoreTest, RefusesADatabaseOfANewerVersion) {
  store_.reset();
  execute("PRAGMA user_version = 99");
  EXPECT_EQ(Store::open(path()).error().code, Error::Code::unsupported);
}

}  // namespace
}  // namespace aliquot::engine
