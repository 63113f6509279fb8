// The executor's interactive half on fakes: what may block does not keep the loop waiting, and what
// is asked for a job is done in order.
#include "engine/stepd_executor.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <chrono>
#include <fstream>
#include <future>

#include "gpu/fake_mps.hpp"
#include "node/fake_cgroups.hpp"
#include "node/testing.hpp"

namespace aliquot::engine {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::StartsWith;

constexpr const char* kGpu = "GPU-8dc2d1ae-6db1-128c-2e3f-24a79133e365";

// An MPS daemon that comes up when it is let.
class SlowMps final : public gpu::MpsControl {
 public:
  explicit SlowMps(std::shared_future<void> let) : let_(std::move(let)) {}
  Result<void> start(const std::filesystem::path& folder, const GpuId& gpu, bool all) override {
    let_.wait();
    return real_.start(folder, gpu, all);
  }
  bool alive(const std::filesystem::path& folder) override { return real_.alive(folder); }
  Result<void> limit(const std::filesystem::path& folder, Bytes each) override {
    return real_.limit(folder, each);
  }
  Result<void> start_server(const std::filesystem::path& folder) override {
    return real_.start_server(folder);
  }
  [[nodiscard]] gpu::MpsPipe pipe(const std::filesystem::path& folder) const override {
    return real_.pipe(folder);
  }
  void stop(const std::filesystem::path& folder) override { real_.stop(folder); }

 private:
  std::shared_future<void> let_;
  gpu::FakeMps real_;
};

// What the engine hears, as text.
class Heard final : public ExecutorEvents {
 public:
  void on_admitted(JobId job, std::int64_t attempt, const Environment& added) override {
    all.push_back(fmt::format("{}.{} admitted", job, attempt));
    environment = added;
  }
  void on_step_admitted(JobId job, std::int64_t, std::int64_t step,
                        const Result<Environment>& added) override {
    all.push_back(
        fmt::format("{} step {}: {}", job, step, added ? "admitted" : added.error().message));
  }
  void on_step_gone(JobId job, std::int64_t, std::int64_t step) override {
    all.push_back(fmt::format("{} step {} gone", job, step));
  }
  void on_ended(const node::ExitRecord& record) override {
    all.push_back(fmt::format("{}.{} ended{}", record.job_id, record.attempt,
                              record.reason == node::EndReason::oom ? ", out of memory" : ""));
  }
  void on_never_started(JobId job, std::int64_t attempt, const std::string& why) override {
    all.push_back(fmt::format("{}.{} never started: {}", job, attempt, why));
  }
  void on_postponed(JobId job, std::int64_t, const std::string& why) override {
    all.push_back(fmt::format("{} postponed: {}", job, why));
  }
  void on_enforced(JobId, std::int64_t, const std::string&) override {}
  void on_stuck(JobId job, std::int64_t, const std::string& who) override {
    all.push_back(fmt::format("{} stuck: {}", job, who));
  }
  void on_lost(JobId job, std::int64_t) override { all.push_back(fmt::format("{} lost", job)); }

  std::vector<std::string> all;
  Environment environment;
};

class StepdExecutorTest : public testing::Test {
 protected:
  StepdExecutorTest() {
    const auto library = folder_.path() / "libaliquot.so";
    std::ofstream(library) << "";
    node::EnforcerOptions options{.run = folder_.path() / "run",
                                  .library = library,
                                  .facts = {.driver_version = "550"},
                                  .mps = std::make_unique<SlowMps>(let_.get_future().share())};
    enforcer_ = std::move(node::Enforcer::create(std::move(options)).value());
    std::filesystem::create_directories(folder_.path() / "jobs");
    executor_.emplace(context_, cgroups_, *enforcer_,
                      StepdOptions{.jobs = folder_.path() / "jobs",
                                   .stepd = "/bin/false",
                                   .commands = {},
                                   .socket = {},
                                   .cluster = "aliquot",
                                   .node = "host",
                                   .kill_wait = seconds(1)});
    executor_->listen(heard_, [] {});
    client_ = ::fork();
    if (client_ == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      ::pause();
      ::_exit(0);
    }
  }
  ~StepdExecutorTest() override {
    let();
    executor_.reset();
    if (client_ > 0) end_client();
  }

  // What signal it got first.
  int end_client() {
    int status = 0;
    ::kill(client_, SIGKILL);
    ::waitpid(std::exchange(client_, -1), &status, 0);
    return WTERMSIG(status);
  }

  void let() {
    if (!std::exchange(is_let_, true)) let_.set_value();
  }
  // The loop, until so many events have come.
  void run(std::size_t events) {
    const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (heard_.all.size() < events && std::chrono::steady_clock::now() < until) {
      context_.restart();
      context_.run_for(std::chrono::milliseconds(5));
    }
  }
  static Job job(bool share) {
    Job job{.id = JobId(7)};
    job.spec.batch = false;
    job.owner = {"me", Uid(::geteuid()), "us", Gid(::getegid())};
    job.state = core::JobState::running;
    job.cpus = kOneCpu;
    job.mark = "7:mark";
    if (share) job.gpus = {{{GpuId(kGpu), {gib(8), Compute(2'500)}, false}, 0, "h200"}};
    return job;
  }

  test::Folder folder_;
  std::promise<void> let_;
  bool is_let_ = false;
  boost::asio::io_context context_{1};
  node::FakeCgroups cgroups_;
  std::unique_ptr<node::Enforcer> enforcer_;
  Heard heard_;
  std::optional<StepdExecutor> executor_;
  pid_t client_ = -1;
};

TEST_F(StepdExecutorTest, AnMpsServerThatTakesItsTimeKeepsNobodyWaiting) {
  executor_->start({.job = job(true), .client = Pid(client_)});
  executor_->start_step({.job = job(true),
                         .step = 0,
                         .step_spec = {},
                         .caller = Pid(client_),
                         .caller_uid = Uid(::geteuid())});
  bool loop_runs = false;
  boost::asio::post(context_, [&] { loop_runs = true; });
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (!loop_runs && std::chrono::steady_clock::now() < until) {
    context_.restart();
    context_.run_one_for(std::chrono::milliseconds(20));
  }
  EXPECT_TRUE(loop_runs);
  EXPECT_TRUE(heard_.all.empty()) << "its limits come first";
  let();
  run(2);
  EXPECT_THAT(heard_.all, ElementsAre("7.0 admitted", "7 step 0: admitted"));
  EXPECT_THAT(heard_.environment, Contains(StartsWith("CUDA_MPS_PIPE_DIRECTORY=")));
  EXPECT_THAT(cgroups_.groups[{{JobId(7)}}].processes, ElementsAre(Pid(client_)));
}

TEST_F(StepdExecutorTest, AClientThatIsSomebodyElsesIsNotLetIn) {
  let();
  auto stranger = job(false);
  stranger.owner.uid = Uid(::geteuid() + 1);
  executor_->start({.job = stranger, .client = Pid(client_)});
  run(1);
  ASSERT_EQ(heard_.all.size(), 1U);
  EXPECT_THAT(heard_.all[0], StartsWith("7.0 never started: process"));
  EXPECT_THAT((cgroups_.groups[{{JobId(7)}}].processes), testing::IsEmpty());
}

TEST_F(StepdExecutorTest, WhatIsEndedBeforeItWasAdmittedEndsAfterwards) {
  executor_->start({.job = job(true), .client = Pid(client_)});
  executor_->end_allocation(job(true), Millis(0));
  // A slow machine proves less with this; it cannot fail of it.
  context_.run_for(std::chrono::milliseconds(20));
  EXPECT_TRUE(heard_.all.empty());
  let();
  run(2);
  EXPECT_THAT(heard_.all, ElementsAre("7.0 admitted", "7.0 ended"));
}

// After a restart: the one before has let the client in.
TEST_F(StepdExecutorTest, AClientThatComesBackIsNotAskedToEnd) {
  let();
  cgroups_.groups[{{JobId(7)}}].processes = {Pid(client_)};
  executor_->attach(job(false), Pid(client_));
  executor_->end_allocation(job(false), Millis(0));
  run(1);
  EXPECT_THAT(heard_.all, ElementsAre("7.0 ended"));
  EXPECT_EQ(end_client(), SIGKILL);
}

// Of a batch job its stepd says so.
TEST_F(StepdExecutorTest, WhoWasKilledForMemoryIsSaidToBe) {
  let();
  cgroups_.groups[{{JobId(7)}}].usage.oom_kills = 1;
  executor_->attach(job(false), Pid(client_));
  executor_->end_allocation(job(false), Millis(0));
  run(1);
  EXPECT_THAT(heard_.all, ElementsAre("7.0 ended, out of memory"));
}

TEST_F(StepdExecutorTest, AStepFromBeforeIsWatchedAndItsClientSpared) {
  let();
  cgroups_.groups[{{JobId(7)}}];
  auto& step = cgroups_.groups[{{JobId(7)}, 3}];
  step.processes = {Pid(client_)};
  executor_->adopt_step(job(false), 3);
  context_.run_for(std::chrono::milliseconds(50));
  executor_->signal_step(job(false), 3, SIGTERM);
  context_.run_for(std::chrono::milliseconds(50));
  EXPECT_TRUE(heard_.all.empty());
  EXPECT_EQ(end_client(), SIGKILL);
  run(1);
  EXPECT_THAT(heard_.all, ElementsAre("7 step 3 gone"));
}

TEST_F(StepdExecutorTest, WhoIsNoClientIsAskedToEnd) {
  let();
  cgroups_.groups[{{JobId(7)}}].processes = {Pid(client_)};
  executor_->attach(job(false), Pid(::getpid()));
  executor_->end_allocation(job(false), Millis(0));
  run(1);
  EXPECT_EQ(end_client(), SIGTERM);
}

// Its stepd has looked for the last time: whoever was let in since ends before the job is over.
TEST_F(StepdExecutorTest, NobodyIsLeftWhenTheEndIsTold) {
  let();
  auto batch = job(false);
  batch.spec.batch = true;
  const auto folder = folder_.path() / "jobs" / node::run_name(batch.run());
  std::filesystem::create_directories(folder);
  node::ExitRecord record;
  record.job_id = 7;
  std::ofstream(folder / "stepd.pid") << "1 1 of-another-boot\n";
  std::ofstream(folder / "exit.json") << node::to_json(record);
  ASSERT_TRUE(cgroups_.create({batch.run()}, {}));
  ASSERT_TRUE(cgroups_.add({batch.run()}, Pid(client_)));
  executor_->adopt(batch);
  run(1);
  EXPECT_THAT(heard_.all, ElementsAre("7.0 ended"));
  EXPECT_THAT((cgroups_.groups[{batch.run()}].processes), testing::IsEmpty());
}

TEST_F(StepdExecutorTest, WhatCannotBeLaunchedSaysWhy) {
  let();
  auto batch = job(false);
  batch.spec.batch = true;
  batch.spec.work_dir = "/";
  executor_->start({.job = batch, .payload = {"#!/bin/sh\n", {}, {}}});
  run(1);
  ASSERT_EQ(heard_.all.size(), 1U);
  EXPECT_THAT(heard_.all[0], StartsWith("7.0 never started: "));
}

}  // namespace
}  // namespace aliquot::engine
