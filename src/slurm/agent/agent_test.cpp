#include "slurm/agent/agent.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>

#include "gpu/fake_devices.hpp"
#include "gpu/fake_mps.hpp"
#include "node/testing.hpp"
#include "slurm/fake_client.hpp"
#include "slurm/plugins/drain.h"

namespace aliquot::slurm {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::Not;

// A process to stand for slurmstepd.
class Stepd {
 public:
  Stepd() : pid_(::fork()) {
    if (pid_ == 0) {
      ::pause();
      ::_exit(0);
    }
  }
  ~Stepd() { end(); }
  void end() {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
    pid_ = -1;
  }
  [[nodiscard]] node::Pid pid() const { return node::Pid(pid_); }
  [[nodiscard]] bool lives() const {
    const auto process = node::read_process(pid());
    return process && node::is_alive(process->ref);
  }
  // What was killed takes a moment to go.
  [[nodiscard]] bool dies() const {
    for (int i = 0; i < 5'000 && lives(); ++i) ::usleep(1'000);
    return !lives();
  }

 private:
  pid_t pid_;
};

class AgentTest : public testing::Test {
 protected:
  AgentTest() {
    fs::create_directories(run());
    std::ofstream(library()) << "";
    slurm_.known_jobs.push_back(job(7));
    start();
  }

  [[nodiscard]] fs::path run() const { return fs::path(folder_.path()) / "run"; }
  [[nodiscard]] fs::path library() const { return fs::path(folder_.path()) / "libaliquot.so"; }

  static SlurmJob job(std::int64_t id) {
    SlurmJob job;
    job.id = id;
    job.uid = ::getuid();
    job.gid = ::getgid();
    job.state = "RUNNING";
    job.admin_comment = "aliquot: --gpu-mem=8G";
    job.details = {{"n1", "shard:a100:8(IDX:1)"}};
    return job;
  }
  StepFacts step(std::int64_t id = 7) const {
    return {.job = id, .uid = ::getuid(), .gid = ::getgid(), .job_gpus = {1}, .shards = 8};
  }

  // Also what happens after kill -9: nothing of the old one is told that it ends.
  void start() {
    agent_.reset();
    enforcer_.reset();
    gpus_ = {};
    for (int i = 0; i < 4; ++i) {
      gpus_.push_back(
          {.gpu = {.id = GpuId(fmt::format("GPU-00000000-0000-0000-0000-00000000000{}", i)),
                   .model = "a100",
                   .memory = gib(80)},
           .index = i,
           .capability = 8});
    }
    auto made = node::Enforcer::create({.run = run(),
                                        .library = library(),
                                        .facts = {.driver_version = "550", .no_mps = "none here"},
                                        .mps = nullptr,
                                        .clock = &clock_});
    ASSERT_TRUE(made) << made.error().message;
    enforcer_ = std::move(*made);
    auto agent = Agent::create({.run = run(),
                                .node = {"n1", gpus_, ShareSettings{}},
                                .slurm = slurm_,
                                .enforcer = *enforcer_,
                                .clock = clock_,
                                .by_mark = by_mark_});
    ASSERT_TRUE(agent) << agent.error().message;
    agent_ = std::move(*agent);
  }
  void pass(Millis time) {
    clock_.advance(time);
    agent_->look_after();
  }
  [[nodiscard]] bool held(std::int64_t id = 7) const {
    return fs::exists(run() / "grants" / std::to_string(id));
  }

  node::testing::TemporaryFolder folder_;
  FakeSlurm slurm_;
  ManualClock clock_;
  bool by_mark_ = false;
  std::vector<gpu::Device> gpus_;
  std::unique_ptr<node::Enforcer> enforcer_;
  std::unique_ptr<Agent> agent_;
};

TEST_F(AgentTest, AStepGetsTheViewOfItsJobsGpu) {
  Stepd stepd;
  const auto lines = agent_->grant(step(), stepd.pid());
  ASSERT_TRUE(lines) << lines.error().message;
  EXPECT_THAT(*lines,
              HasSubstr("set CUDA_VISIBLE_DEVICES=GPU-00000000-0000-0000-0000-000000000001"));
  EXPECT_THAT(*lines, HasSubstr("prepend LD_PRELOAD=" + library().string()));
  EXPECT_THAT(*lines, HasSubstr("set ALIQUOT_GRANT="));
  EXPECT_TRUE(held());
  // The next step asks nobody.
  const int asked = slurm_.questions;
  Stepd second;
  EXPECT_EQ(agent_->grant(step(), second.pid()).value(), *lines);
  EXPECT_EQ(slurm_.questions, asked);
}

TEST_F(AgentTest, SomebodyElsesJobIsRefused) {
  Stepd stepd;
  StepFacts other = step();
  other.uid = 4242;
  EXPECT_FALSE(agent_->grant(other, stepd.pid()));
  EXPECT_FALSE(held());
  ASSERT_TRUE(agent_->grant(step(), stepd.pid()));
  EXPECT_FALSE(agent_->grant(other, stepd.pid()));
}

TEST_F(AgentTest, AJobSlurmDoesNotKnowIsRefused) {
  Stepd stepd;
  EXPECT_FALSE(agent_->grant(step(8), stepd.pid()));
}

TEST_F(AgentTest, ReleasesWhenSlurmSaysItIsOver) {
  Stepd stepd;
  ASSERT_TRUE(agent_->grant(step(), stepd.pid()));
  pass(seconds(100));
  EXPECT_TRUE(held());
  stepd.end();
  pass(seconds(1));
  pass(seconds(1));
  EXPECT_TRUE(held()) << "salloc without a step still holds its share";
  slurm_.known_jobs[0].state = "COMPLETED";
  pass(seconds(31));
  EXPECT_FALSE(held());
  EXPECT_EQ(agent_->jobs(), 0U);
}

TEST_F(AgentTest, AJobThatSlurmForgotIsOver) {
  Stepd stepd;
  ASSERT_TRUE(agent_->grant(step(), stepd.pid()));
  stepd.end();
  slurm_.known_jobs.clear();
  pass(seconds(1));
  pass(seconds(1));
  EXPECT_FALSE(held());
}

TEST_F(AgentTest, KeepsEverythingWhileSlurmctldIsAway) {
  Stepd stepd;
  ASSERT_TRUE(agent_->grant(step(), stepd.pid()));
  stepd.end();
  slurm_.away = true;
  for (int i = 0; i < 10; ++i) pass(seconds(60));
  EXPECT_TRUE(held());
  // And starts what slurmstepd vouches for.
  Stepd other;
  EXPECT_TRUE(agent_->grant(step(9), other.pid()));
}

TEST_F(AgentTest, TakesEverythingUpAgainAfterItsEnd) {
  Stepd stepd;
  const auto lines = agent_->grant(step(), stepd.pid());
  ASSERT_TRUE(lines);
  start();
  EXPECT_EQ(agent_->jobs(), 1U);
  EXPECT_TRUE(held());
  EXPECT_EQ(agent_->grant(step(), stepd.pid()).value(), *lines);
  stepd.end();
  slurm_.known_jobs[0].state = "COMPLETED";
  pass(seconds(1));
  pass(seconds(1));
  EXPECT_FALSE(held());
}

TEST_F(AgentTest, WhatEndedWhileItWasAwayIsCleanedUp) {
  {
    Stepd stepd;
    ASSERT_TRUE(agent_->grant(step(), stepd.pid()));
  }
  slurm_.known_jobs.clear();
  start();
  pass(seconds(1));
  pass(seconds(1));
  EXPECT_FALSE(held());
  EXPECT_TRUE(fs::is_empty(run() / "jobs"));
}

TEST_F(AgentTest, ARequeuedJobIsHeldAnew) {
  Stepd stepd;
  ASSERT_TRUE(agent_->grant(step(), stepd.pid()));
  slurm_.known_jobs[0].restarts = 1;
  slurm_.known_jobs[0].details = {{"n1", "shard:a100:8(IDX:3)"}};
  StepFacts again = step();
  again.restarts = 1;
  again.job_gpus = {3};
  Stepd next;
  const auto lines = agent_->grant(again, next.pid());
  ASSERT_TRUE(lines);
  EXPECT_THAT(*lines, HasSubstr("-000000000003"));
}

TEST_F(AgentTest, DamagedNotesDoNotStopIt) {
  std::ofstream(run() / "jobs" / "12") << "half";
  std::ofstream(run() / "jobs" / "rubbish") << "{}";
  start();
  EXPECT_EQ(agent_->jobs(), 0U);
  EXPECT_TRUE(fs::is_empty(run() / "jobs"));
}

TEST_F(AgentTest, WholeGpusAreLeftToSlurm) {
  slurm_.known_jobs[0].details = {{"n1", "gpu:a100:2(IDX:0-1)"}};
  slurm_.known_jobs[0].admin_comment = "aliquot: gpu:2";
  StepFacts one = step();
  one.job_gpus = {0, 1};
  one.step_gpus = {1};
  one.shards = 0;
  Stepd stepd;
  const auto lines = agent_->grant(one, stepd.pid());
  ASSERT_TRUE(lines);
  EXPECT_THAT(*lines, Not(HasSubstr("CUDA_VISIBLE_DEVICES")));
  EXPECT_THAT(*lines, Not(HasSubstr("LD_PRELOAD")));
}

// Slurm's gres/mps plugin wipes it away.
TEST_F(AgentTest, AWholeGpuThatIsBookedAsShardsIsTold) {
  const std::int64_t all = shards_of(gib(80), ShareSettings{}.unit);
  slurm_.known_jobs[0].details = {{"n1", fmt::format("shard:a100:{}(IDX:1)", all)}};
  slurm_.known_jobs[0].admin_comment = "aliquot: gpu:1";
  StepFacts one = step();
  one.job_gpus = {1};
  one.shards = all;
  Stepd stepd;
  const auto lines = agent_->grant(one, stepd.pid());
  ASSERT_TRUE(lines);
  EXPECT_THAT(*lines, HasSubstr("set CUDA_VISIBLE_DEVICES=GPU-"));
  EXPECT_THAT(*lines, Not(HasSubstr("LD_PRELOAD")));
  one.visible = "0";
  EXPECT_THAT(*agent_->grant(one, stepd.pid()), Not(HasSubstr("CUDA_VISIBLE_DEVICES")));
}

// A process of the test's own stands for one that the job has on its GPU.
std::vector<node::GpuView> view_of(const gpu::Device& device, node::Pid pid, std::int64_t job,
                                   Bytes memory) {
  node::GpuView view;
  view.sample.id = device.gpu.id;
  node::GpuProcess process;
  process.pid = pid.value();
  process.command = "python";
  process.memory = memory;
  process.holder = holder_of(JobId(job));
  view.processes.push_back(std::move(process));
  return {view};
}

TEST_F(AgentTest, AJobThatNeverAskedIsHeldToItsShare) {
  Stepd process;
  agent_->observe(view_of(gpus_[1], process.pid(), 7, gib(60)));
  EXPECT_TRUE(held());
  EXPECT_EQ(agent_->jobs(), 1U);
  // Everybody can see it, and its words are as they were.
  EXPECT_EQ(slurm_.known_jobs[0].admin_comment, "aliquot: --gpu-mem=8G; escape on n1");
  EXPECT_EQ(asked_words(slurm_.known_jobs[0].admin_comment), "--gpu-mem=8G");
  agent_->observe(view_of(gpus_[1], process.pid(), 7, gib(60)));
  EXPECT_EQ(slurm_.known_jobs[0].admin_comment, "aliquot: --gpu-mem=8G; escape on n1");
  // One that asks after all has what it would have had.
  Stepd stepd;
  EXPECT_THAT(agent_->grant(step(), stepd.pid()).value(), HasSubstr("set ALIQUOT_GRANT="));
  stepd.end();
  slurm_.known_jobs[0].state = "COMPLETED";
  pass(seconds(1));
  pass(seconds(31));
  EXPECT_FALSE(held());
}

TEST_F(AgentTest, AnEscapeWhileSlurmctldIsAwayIsNotedWhenItIsBack) {
  Stepd stepd;
  ASSERT_TRUE(agent_->grant(step(), stepd.pid()));
  slurm_.away = true;
  Stepd process;
  const auto views = view_of(gpus_[1], process.pid(), 7, gib(60));
  agent_->observe(views);
  agent_->observe(views);
  const int asked = slurm_.questions;
  for (int i = 0; i < 10; ++i) pass(seconds(1));
  EXPECT_LE(slurm_.questions, asked + 1) << "it may take its time to say nothing";
  slurm_.away = false;
  for (int i = 0; i < 11; ++i) pass(seconds(1));
  EXPECT_EQ(slurm_.known_jobs[0].admin_comment, "aliquot: --gpu-mem=8G; escape on n1");
}

// To read what it was started with may take for ever.
TEST_F(AgentTest, WhereSlurmMakesGroupsNobodysEnvironmentIsRead) {
  Stepd stepd;
  ASSERT_TRUE(agent_->grant(step(), stepd.pid()));
  const std::string mark = agent_->running().at(0).mark;
  const pid_t marked = ::fork();
  if (marked == 0) {
    ::execl("/usr/bin/env", "env", "-i", (std::string(node::kMarkVariable) + "=" + mark).c_str(),
            "/bin/sleep", "600", nullptr);
    ::_exit(127);
  }
  while (node::environment_of(node::Pid(marked), node::kMarkVariable) != mark) ::usleep(1'000);
  gpu::FakeDevices devices(gpu::fake_gpus(1, "a100", gib(80)));
  devices.samples()[0].processes = {{.pid = marked, .memory = gib(1)}};
  const auto holder = [&] {
    return agent_->look_at(devices, agent_->running())->at(0).processes.at(0).holder;
  };
  EXPECT_EQ(holder(), std::nullopt);
  by_mark_ = true;
  start();
  EXPECT_EQ(holder(), HolderId("7"));
  ::kill(marked, SIGKILL);
  ::waitpid(marked, nullptr, 0);
}

// Nobody gave it the library: it cannot help being without.
TEST_F(AgentTest, WhatWasThereBeforeItsJobAskedIsNotJudgedForItsTime) {
  slurm_.known_jobs.push_back(job(8));
  Stepd neighbour;
  ASSERT_TRUE(agent_->grant(step(8), neighbour.pid()));
  Stepd process;
  auto views = view_of(gpus_[1], process.pid(), 7, mib(500));
  agent_->observe(views);
  Stepd stepd;
  ::testing::internal::CaptureStdout();
  EXPECT_THAT(agent_->grant(step(), stepd.pid()).value(), HasSubstr("prepend LD_PRELOAD="));
  EXPECT_THAT(::testing::internal::GetCapturedStdout(),
              testing::AllOf(HasSubstr("job 7 was only watched"), Not(HasSubstr("is over"))));
  const auto ends_beside = [&] {
    Stepd beside;
    views[0].processes.push_back(view_of(gpus_[1], beside.pid(), 8, mib(500))[0].processes[0]);
    for (std::int64_t i = 0; i < 2 * (core::kStrangerTime / core::kWatchInterval); ++i) {
      clock_.advance(core::kWatchInterval);
      agent_->observe(views);
    }
    views[0].processes.pop_back();
    return beside.dies();
  };
  EXPECT_TRUE(ends_beside()) << "it was told and got around it";
  EXPECT_TRUE(process.lives());
  start();
  EXPECT_TRUE(ends_beside());
  EXPECT_TRUE(process.lives()) << "also after a restart";
}

TEST_F(AgentTest, WhatHoldsNoShareIsNobodysToJudge) {
  Stepd process;
  slurm_.known_jobs[0].details = {{"n1", "gpu:a100:1(IDX:1)"}};
  agent_->observe(view_of(gpus_[1], process.pid(), 7, gib(60)));
  // Over, or of another cluster: a process that is on its way out is no escape.
  slurm_.known_jobs.push_back(job(8));
  slurm_.known_jobs[1].state = "COMPLETING";
  agent_->observe(view_of(gpus_[1], process.pid(), 8, gib(60)));
  agent_->observe(view_of(gpus_[1], process.pid(), 9, gib(60)));
  EXPECT_EQ(agent_->jobs(), 0U);
  EXPECT_EQ(slurm_.known_jobs[0].admin_comment, "aliquot: --gpu-mem=8G");
}

TEST_F(AgentTest, AStrangerIsAskedForOnceInAWhile) {
  Stepd process;
  slurm_.known_jobs[0].details = {{"n1", "gpu:a100:1(IDX:1)"}};
  const auto views = view_of(gpus_[1], process.pid(), 7, gib(60));
  for (int i = 0; i < 5; ++i) agent_->observe(views);
  EXPECT_EQ(slurm_.questions, 1);
  slurm_.away = true;
  clock_.advance(seconds(11));
  for (int i = 0; i < 5; ++i) agent_->observe(views);
  EXPECT_EQ(slurm_.questions, 2);
}

// What it sent away would come back to it at once.
TEST_F(AgentTest, ANodeThatCannotHoldSharesIsNotOpenedAgainAtOnce) {
  slurm_.known_nodes = {{.name = "n1", .state = "IDLE+DRAIN", .reason = ALIQUOT_DRAIN_UNFIT}};
  slurm_.known_jobs[0].details = {{"n1", "shard:a100:8(IDX:9)"}};
  Stepd stepd;
  ASSERT_FALSE(agent_->grant(step(), stepd.pid()));
  for (int i = 0; i < 50; ++i) pass(seconds(1));
  EXPECT_EQ(slurm_.known_nodes[0].state, "IDLE+DRAIN");
  for (int i = 0; i < 80; ++i) pass(seconds(1));
  EXPECT_EQ(slurm_.known_nodes[0].state, "IDLE");
}

TEST_F(AgentTest, TheNodesFaultIsNotTheJobs) {
  slurm_.known_jobs[0].details = {{"n1", "shard:a100:8(IDX:9)"}};
  Stepd stepd;
  const auto lines = agent_->grant(step(), stepd.pid());
  ASSERT_FALSE(lines);
  EXPECT_TRUE(is_nodes_fault(lines.error()));
  EXPECT_FALSE(is_nodes_fault(agent_->grant(step(8), stepd.pid()).error()));
  // Whatever the error's own name is.
  slurm_.known_jobs[0] = job(7);
  fs::remove(run() / "jobs");
  EXPECT_TRUE(is_nodes_fault(agent_->grant(step(), stepd.pid()).error()));
  EXPECT_FALSE(held());
}

}  // namespace
}  // namespace aliquot::slurm
