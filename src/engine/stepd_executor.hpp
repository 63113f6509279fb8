// Executor on the real machine: a folder, a control group and an aliquot-stepd for each batch job,
// a control group for each interactive one. Everything that may block runs on workers; ends are
// seen by pidfd on the loop.
//
// Events come on the loop's thread, to the sink given by listen(), each followed by a call of
// `settled`, so that what they changed is committed.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/executor.hpp"
#include "gpu/devices.hpp"
#include "node/cgroup.hpp"
#include "node/enforcer.hpp"
#include "node/job_directory.hpp"
#include "node/worker.hpp"

namespace boost::asio {
class io_context;
}

namespace aliquot::engine {

struct StepdOptions {
  std::filesystem::path jobs;   // <state>/jobs
  std::filesystem::path stepd;  // the program
  std::string commands;         // the folder of sbatch, srun, …, for the jobs
  std::string socket;           // ours, for the same
  std::string cluster;
  std::string node;
  Millis kill_wait;
  std::optional<gpu::StandIn> standin = {};
  std::vector<gpu::Device> gpus = {};
  bool enforce_cpus = true;  // not where there are more on paper than in the machine
};

class StepdExecutor final : public Executor {
 public:
  StepdExecutor(boost::asio::io_context& context, node::Cgroups& cgroups, node::Enforcer& enforcer,
                StepdOptions options);
  ~StepdExecutor() override;

  void listen(ExecutorEvents& events, std::function<void()> settled);

  void start(StartOrder order) override;
  void adopt(const Job& job) override;
  void command(JobId job, const node::Command& command) override;
  Result<std::vector<std::string>> admit(const StartOrder& order, node::Pid caller) override;
  Result<std::vector<std::string>> admit_step(const StepOrder& order) override;
  void signal_step(const Job& job, std::int64_t step, int number) override;
  void signal_allocation(const Job& job, int number) override;
  void freeze_allocation(const Job& job, bool frozen) override;
  void end_allocation(const Job& job, Millis patience) override;
  void forget(JobId job) override;
  [[nodiscard]] std::string fence() const override { return cgroups_.capabilities(); }

 private:
  struct Watch;

  // On a worker.
  Result<node::ProcessRef> launch(const StartOrder& order);
  void bury(JobId job, const std::string& mark);
  void tell_enforced(const api::JobInfo& job, const std::string& words);

  // On the loop.
  void deliver(std::function<void(ExecutorEvents&)> event);
  void started(JobId job, std::int64_t attempt, const node::ProcessRef& stepd,
               const std::string& mark);
  void look(JobId job, std::int64_t attempt, const std::string& mark);
  void on_loop(std::function<void()> task);
  void add_measured(node::ExitRecord& record);
  void let_go(JobId job, std::int64_t attempt);
  [[nodiscard]] node::Limits limits_of(const api::JobInfo& job) const;
  [[nodiscard]] node::JobDirectory folder(JobId job) const { return {options_.jobs, job}; }

  boost::asio::io_context& context_;
  node::Cgroups& cgroups_;
  node::Enforcer& enforcer_;
  StepdOptions options_;
  ExecutorEvents* events_ = nullptr;
  std::function<void()> settled_;
  std::map<JobId, std::unique_ptr<Watch>> watches_;
  // Expires with us: tasks that come back to the loop later look at it first.
  std::shared_ptr<int> alive_ = std::make_shared<int>(0);
  // Last, so that they are joined before anything they use goes.
  std::atomic<bool> stopping_ = false;
  std::map<JobId, std::unique_ptr<node::Worker>> enders_;
  // A start is mostly waiting for a new process: several go on side by side.
  std::array<node::Worker, 4> launchers_{node::Worker("aq-launch-0"), node::Worker("aq-launch-1"),
                                         node::Worker("aq-launch-2"), node::Worker("aq-launch-3")};
  std::size_t next_launcher_ = 0;
  node::Worker logins_{"aq-login"};  // profiles of users may take seconds
  node::Worker keeper_{"aq-keep"};   // commands, removal, killing
};

}  // namespace aliquot::engine
