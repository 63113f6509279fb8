// Attempts to run jobs: how they start, what becomes of them, how they end, and what is taken up
// when the daemon comes back. Executor's events come here.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "api/types.hpp"
#include "core/placement.hpp"
#include "engine/admission.hpp"
#include "engine/executor.hpp"
#include "engine/lookup.hpp"
#include "engine/notices.hpp"
#include "engine/state.hpp"
#include "node/enforcer.hpp"
#include "node/monitor.hpp"

namespace aliquot::engine {

class Clients;
class Queue;
class Views;

// How soon a start is tried again for which there was no room on the disk.
inline constexpr Millis kLaunchPause = seconds(10);

// How long what a gone client left behind may take to end.
inline constexpr Millis kGonePatience = seconds(2);

class Runs final : public ExecutorEvents {
 public:
  Runs(State& state, Queue& queue, Clients& clients, Views& views)
      : state_(state),
        queue_(queue),
        clients_(clients),
        views_(views),
        names_(state),
        admission_(state),
        notices_(state) {}

  // --- what users do to their jobs
  Answer<void> cancel(const Caller& caller, const std::string& id, const api::CancelSpec& spec);
  Answer<void> requeue(const Caller& caller, const std::string& id, bool held);
  Answer<void> suspend(const Caller& caller, const std::string& id);
  Answer<void> resume(const Caller& caller, const std::string& id);
  // Of a job of theirs that runs, told later.
  Answer<void> list_processes(const Caller& caller, const std::string& id,
                              const Executor::TellProcesses& tell);

  // --- what the other rooms decide
  void start(Job& job, core::Placement placement);
  // The job is over: on record, and no longer in memory.
  void finish(JobId id, core::JobState state, Reason reason);
  // `patience`: from SIGTERM to SIGKILL, where that is less than the kill wait.
  void end_processes(Job& job, Ending ending, std::optional<Millis> patience = std::nullopt);
  // The job makes room for that one: it is told, has its grace time, and is ended then.
  void evict(Job& job, JobId by);
  // The GPU under it is taken away: it starts elsewhere, or has failed.
  void take_down(Job& job, const std::string& reason);
  // How that is done to this job, and whether at all.
  [[nodiscard]] PreemptMode preempt_mode(const Job& job) const;
  // Before a suspended job becomes anything else: the time that it stood still is none of its own.
  void count_suspension(Job& job);
  // A batch job's stepd hears of its time limit.
  void act_limit(const Job& job);

  // --- Executor's
  void on_admitted(JobId job, std::int64_t attempt, const Environment& added) override;
  void on_step_admitted(JobId job, std::int64_t attempt, std::int64_t step,
                        const Result<Environment>& added) override;
  void on_ended(const node::ExitRecord& record) override;
  void on_never_started(JobId job, std::int64_t attempt, const std::string& why) override;
  void on_postponed(JobId job, std::int64_t attempt, const std::string& why) override;
  void on_lost(JobId job, std::int64_t attempt) override;
  void on_enforced(JobId job, std::int64_t attempt, const std::string& words) override;
  void on_step_gone(JobId job, std::int64_t attempt, std::int64_t step) override;
  void on_stuck(JobId job, std::int64_t attempt, const std::string& who) override;

  [[nodiscard]] Notices& notices() { return notices_; }

  // --- the monitor's
  void observe(const std::vector<node::GpuView>& views);
  [[nodiscard]] std::vector<node::RunningJob> running() const;
  // Shown by `aliquot why` and status, and kept with the job.
  void report(const std::vector<node::Escape>& escapes);

  // --- Engine's
  // Reads the record and takes up what runs.
  Result<void> recover();
  // A job of the record into memory, with what it holds and the steps that run.
  Result<void> take_up(Job loaded);
  // Ends batch jobs whose stepd did not.
  void enforce_times();
  [[nodiscard]] std::optional<WallTime> due(const Job& job) const;

  // Why nothing starts, where something runs that is not on record.
  [[nodiscard]] std::optional<std::string> held_up() const;

 private:
  void ended(const node::ExitRecord& record);
  void never_started(JobId job, std::int64_t attempt, const std::string& why);
  void postponed(JobId job, std::int64_t attempt, const std::string& why);
  void lost(JobId job, std::int64_t attempt);
  void keep_run(const Job& job);
  void back_to_queue(Job& job, bool held, bool count);
  void release_grant(Job& job);
  void remember_use(Job& job, const node::ExitRecord& record);
  // What becomes of a job that is ended for others' sake, whatever it says itself.
  struct Outcome {
    core::JobState state;
    Reason reason;
  };
  static std::optional<Outcome> outcome_of(Ending ending);
  void end_evicted();
  [[nodiscard]] Ending ending_of_evicted(const Job& job) const;
  void cancel_one(Job& job, const Caller& caller);
  Answer<void> requeue_over(const Caller& caller, const std::string& id, bool held);
  void act_frozen(const Job& job);
  void end_unknown(const std::vector<Leftover>& left, const Store::Live& live);
  Result<void> hold_again(const Job& job);
  void take_up_processes(const Job& job);
  // Of a batch job that runs: until it is not left to its stepd any more to keep the time limit.
  [[nodiscard]] std::optional<Millis> patience_left(const Job& job) const;

  State& state_;
  Queue& queue_;
  Clients& clients_;
  Views& views_;
  Lookup names_;
  Admission admission_;
  Notices notices_;
  // What is left of runs that are not on record as such, and whose it is, while it is ended:
  // nothing starts meanwhile.
  struct Unknown {
    Uid uid;
    std::string stuck = {};  // who of it does not die
    MonoTime told = {};      // of that, in the log
  };
  std::map<node::Run, Unknown> unknown_;
  struct GpuUse {  // what a running job used of its GPUs so far
    std::int64_t samples = 0;
    std::int64_t utilisation = 0;
    Bytes memory_peak = Bytes(0);
  };
  std::unordered_map<JobId, GpuUse> gpu_use_;
};

}  // namespace aliquot::engine
