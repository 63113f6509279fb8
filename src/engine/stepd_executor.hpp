// Executor on the real machine: a folder, a control group and an aliquot-stepd for each batch job,
// a control group for each interactive one. Everything that may block runs on workers: what is done
// for a job in a lane of its own, one thing after the other; ends are seen by pidfd on the loop.
// What concerns interactive jobs and steps is in stepd_allocations.cpp.
//
// Events come on the loop's thread, to the sink given by listen(), each followed by a call of
// `settled`, so that what they changed is committed.
#pragma once

#include <boost/asio/posix/stream_descriptor.hpp>
#include <cstdint>
#include <deque>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "engine/executor.hpp"
#include "engine/messenger.hpp"
#include "gpu/devices.hpp"
#include "node/cgroup.hpp"
#include "node/enforcer.hpp"
#include "node/environment.hpp"
#include "node/job_directory.hpp"
#include "node/job_processes.hpp"
#include "node/lanes.hpp"
#include "node/resource_limits.hpp"
#include "node/worker.hpp"

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
  std::vector<node::ResourceLimit> limits = {};  // of jobs whose submitter's are not known
  std::int64_t processes = 0;                    // and threads of one job, at most; 0: no limit
  bool enforce_cpus = true;  // not where there are more on paper than in the machine
};

class StepdExecutor final : public Executor {
 public:
  StepdExecutor(boost::asio::io_context& context, node::Cgroups& cgroups, node::Enforcer& enforcer,
                StepdOptions options);
  ~StepdExecutor() override;

  void listen(ExecutorEvents& events, std::function<void()> settled);

  void start(StartOrder order) override;
  void start_step(StepOrder order) override;
  void adopt(const Job& job) override;
  void command(JobId job, const node::Command& command) override;
  void attach(const Job& job, Pid client) override;
  void adopt_step(const Job& job, std::int64_t step) override;
  void signal_step(const Job& job, std::int64_t step, int number) override;
  void signal_allocation(const Job& job, int number) override;
  void freeze_allocation(const Job& job, bool frozen) override;
  void end_allocation(const Job& job, Millis patience) override;
  Result<std::vector<Leftover>> leftovers() override;
  void list_processes(const Job& job, const std::vector<std::int64_t>& steps,
                      const TellProcesses& tell) override;
  void tell(const Notice& notice) override { messenger_.post(notice); }
  [[nodiscard]] bool has_program(const std::string& path) const override;
  void forget_step(const Job& job, std::int64_t step) override;
  void forget(const node::Run& run, Uid user) override;
  [[nodiscard]] std::string fence() const override { return cgroups_.capabilities(); }

 private:
  // A run of a batch job and its stepd.
  struct Watch {
    node::Run run;
    Uid user;
    std::string mark;
    std::deque<node::Command> waiting = {};  // until it has arrived
    bool running = false;
    bool sending = false;
    bool ending = false;  // it was told to
    int pressed = 0;      // how often it was found late after it had been told to end
    std::optional<boost::asio::posix::stream_descriptor> stepd = {};  // its pidfd
  };

  // On a worker.
  Result<sys::ProcessRef> launch(const StartOrder& order);
  Result<Environment> admit(const StartOrder& order);
  Result<Environment> admit_step(const StepOrder& order);
  [[nodiscard]] node::GpuNames gpu_names(const node::Enforcer::Enforced& enforced) const;
  void tell_enforced(const node::Run& run, const std::string& words);
  void add_measured(node::ExitRecord& record);

  // On the loop.
  Watch* watched(const node::Run& run);
  void send_next(const node::Run& run);
  void bury_lost(const node::Run& run, Uid user, const std::string& mark);
  void deliver(std::function<void(ExecutorEvents&)> event);
  void started(const node::Run& run, const sys::ProcessRef& stepd);
  // Finds out what became of a run: after its stepd has ended, and after the daemon was away.
  void look(const node::Run& run);
  void found(const node::Run& run, node::JobDirectory::Status status);
  void on_loop(std::function<void()> task);
  void later(Millis wait, std::function<void()> task);
  // Until nothing is left of it, then the event. MPS is told once: what hangs would hang again.
  void bury(const node::Run& run, Uid user, const std::string& mark, std::function<void()> then,
            bool again = false);
  void press(const node::Run& run);
  // On a worker. Says who of it does not die, and to whom it is told.
  void tell_stuck(const node::Run& run, const node::JobProcesses& all);
  void sweep(const node::Group& group, Uid user, Millis wait);
  enum class Awaited : std::uint8_t { all, clients };
  void await_end(const node::Run& run, Uid user, const std::string& mark, MonoTime until,
                 Awaited awaited);
  // `info` is the job's; both are referred to.
  [[nodiscard]] node::JobContext context_of(const Job& job, const api::JobInfo& info,
                                            const node::Enforcer::Enforced& enforced) const;
  [[nodiscard]] node::Limits limits_of(const Job& job, const std::vector<HeldGpu>& gpus) const;
  [[nodiscard]] node::JobDirectory folder(const node::Run& run) const {
    return {options_.jobs, run};
  }
  // On a worker.
  [[nodiscard]] node::JobProcesses processes(const node::Group& group, const std::string& mark);
  std::set<sys::ProcessRef> clients_of(const node::Run& run);  // that are alive
  void remember_client(const node::Run& run, const sys::ProcessRef& client);
  Result<void> take_in(const node::Group& group, Pid client, Uid user);
  void watch_step(const node::Group& group, Uid user, const std::string& mark);
  // What concerns one job, in order; nobody waits for another's.
  void post(const node::Run& run, Uid user, std::function<void()> task,
            node::Lanes::Pace pace = node::Lanes::Pace::usual);

  boost::asio::io_context& context_;
  node::Cgroups& cgroups_;
  node::Enforcer& enforcer_;
  StepdOptions options_;
  ExecutorEvents* events_ = nullptr;
  std::function<void()> settled_;
  std::map<JobId, std::unique_ptr<Watch>> watches_;
  std::mutex clients_mutex_;
  std::map<node::Run, std::set<sys::ProcessRef>> clients_;  // srun and salloc, in its groups
  std::set<node::Run> ending_;                              // interactive ones
  // Expires with us: tasks that come back to the loop later look at it first.
  std::shared_ptr<int> alive_ = std::make_shared<int>(0);
  // Last, so that they are ended before anything they use goes.
  node::Worker commands_{"aq-commands"};  // to the stepds: no user can make it slow
  node::Worker looks_{"aq-looks"};        // into the folders of jobs, nor this
  node::Lanes lanes_{"aq-job"};
  Messenger messenger_;
};

}  // namespace aliquot::engine
