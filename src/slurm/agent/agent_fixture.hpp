// For tests of the agent: one with four GPUs on a Slurm that is a few values, and processes that
// stand for slurmstepd.
#pragma once

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>

#include "gpu/fake_devices.hpp"
#include "gpu/fake_mps.hpp"
#include "node/testing.hpp"
#include "slurm/agent/agent.hpp"
#include "slurm/fake_client.hpp"

namespace aliquot::slurm {

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
  [[nodiscard]] Pid pid() const { return Pid(pid_); }
  [[nodiscard]] bool lives() const {
    const auto process = sys::read_process(pid());
    return process && sys::is_alive(process->ref);
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
    std::filesystem::create_directories(run());
    std::ofstream(library()) << "";
    slurm_.known_jobs.push_back(job(7));
    start();
  }

  [[nodiscard]] std::filesystem::path run() const {
    return std::filesystem::path(folder_.path()) / "run";
  }
  [[nodiscard]] std::filesystem::path library() const {
    return std::filesystem::path(folder_.path()) / "libaliquot.so";
  }

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
    return {.job = id, .uid = ::getuid(), .gid = ::getgid(), .step_gpus = {1}, .shards = 8};
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
                   .memory = gib(120)},
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
                                .enforcer = *enforcer_,
                                .clock = clock_,
                                .by_mark = by_mark_});
    ASSERT_TRUE(agent) << agent.error().message;
    agent_ = std::move(*agent);
    node_ = {"n1", gpus_, ShareSettings{}};
    liaison_.emplace(slurm_, node_, clock_);
  }
  // As the daemon does it, without its threads.
  Result<std::string> grant(const StepFacts& step, Pid stepd) {
    Agent::Word word;
    if (agent_->wants_word(step)) word = liaison_->job(JobId(step.job));
    auto lines = agent_->grant(step, stepd, word);
    if (word) agent_->heard(JobId(step.job), *word);
    if (!lines && is_nodes_fault(lines.error()) && !agent_->closed()) liaison_->trouble();
    return lines;
  }
  void tell() {
    liaison_->tell(agent_->news());
    while (liaison_->note_use()) {
    }
  }
  void leave(const StepFacts& step, Pid stepd) {
    agent_->leave(step, stepd);
    tell();
  }
  void ask() {
    for (const JobId id : agent_->questions()) agent_->heard(id, liaison_->job(id));
    tell();
  }
  void pass(Millis time) {
    clock_.advance(time);
    agent_->look_after();
    ask();
  }
  void observe(const std::vector<node::GpuView>& views) {
    agent_->observe(views);
    ask();
  }
  [[nodiscard]] bool held(std::int64_t id = 7) const {
    return std::filesystem::exists(run() / "grants" / std::to_string(id));
  }

  test::Folder folder_;
  FakeSlurm slurm_;
  ManualClock clock_;
  bool by_mark_ = false;
  std::vector<gpu::Device> gpus_;
  std::unique_ptr<node::Enforcer> enforcer_;
  std::unique_ptr<Agent> agent_;
  NodeGpus node_;
  std::optional<Liaison> liaison_;
};

// A process of the test's own stands for one that the job has on its GPU.
inline std::vector<node::GpuView> view_of(const gpu::Device& device, Pid pid, std::int64_t job,
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

}  // namespace aliquot::slurm
