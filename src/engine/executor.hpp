// What the engine needs of the machine to run jobs. It says what shall happen and hears later what
// has happened: no call but leftovers() waits for the machine. StepdExecutor does it with
// aliquot-stepd and cgroups, FakeExecutor (fake_executor.hpp) is for tests.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "api/inspection.hpp"
#include "api/types.hpp"
#include "base/ids.hpp"
#include "base/result.hpp"
#include "base/time.hpp"
#include "engine/job.hpp"
#include "node/launch.hpp"
#include "node/run_name.hpp"

namespace aliquot::engine {

struct StartOrder {
  Job job;
  Payload payload = {};  // of a batch job
  Pid client = {};       // of an interactive one: runs the processes, and goes into its fence
};

struct StepOrder {
  Job job;
  std::int64_t step = 0;
  api::StepSpec step_spec;
  Pid caller;
  Uid caller_uid;
  std::optional<std::vector<HeldGpu>> gpus = {};  // some of the job's; absent: all of them
};

// A run that the machine knows of, by its control group or its folder.
struct Leftover {
  node::Run run;
  Uid uid = Uid(0);       // where the machine knows whose it is
  std::string mark = {};  // and how its processes are marked
};

using Environment = std::vector<std::string>;  // K=V

// What somebody is told of a job (engine/notices.hpp): a mail, or an event for the site's command.
struct Notice {
  std::string program = {};  // by its full path
  std::string event = {};    // `END`; empty: a mail
  std::string as_user = {};  // whom the program runs as; empty: the owner
  std::string subject = {};
  std::vector<std::string> addresses = {};
  Uid owner = Uid(0);
  api::JobInfo job = {};
};

// Who hears of it. The attempt tells a run from the one before a requeue.
class ExecutorEvents {
 public:
  ExecutorEvents() = default;
  ExecutorEvents(const ExecutorEvents&) = delete;
  ExecutorEvents& operator=(const ExecutorEvents&) = delete;
  virtual ~ExecutorEvents() = default;

  // The fence of an interactive job is there, with its client inside; what the client must add to
  // its environment.
  virtual void on_admitted(JobId job, std::int64_t attempt, const Environment& added) = 0;
  // The same for a step, or why it cannot be.
  virtual void on_step_admitted(JobId job, std::int64_t attempt, std::int64_t step,
                                const Result<Environment>& added) = 0;
  // Of a step that was adopted: nobody is left of it.
  virtual void on_step_gone(JobId job, std::int64_t attempt, std::int64_t step) = 0;
  // No process of the job is left, nor will be.
  virtual void on_ended(const node::ExitRecord& record) = 0;
  // Nothing of it ever ran; why is for people, empty after a crash of the daemon.
  virtual void on_never_started(JobId job, std::int64_t attempt, const std::string& why) = 0;
  // Nor did it, for want of something that may come back, room on the disk.
  virtual void on_postponed(JobId job, std::int64_t attempt, const std::string& why) = 0;
  // How it is held to what it was granted, once that is known.
  virtual void on_enforced(JobId job, std::int64_t attempt, const std::string& words) = 0;
  // It is to end, and some of it does not: who, for people.
  virtual void on_stuck(JobId job, std::int64_t attempt, const std::string& who) = 0;
  // It ran, and how it ended nobody knows. Nothing of it is left.
  virtual void on_lost(JobId job, std::int64_t attempt) = 0;
};

class Executor {
 public:
  Executor() = default;
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;
  virtual ~Executor() = default;

  // A job that is already on record as running. on_enforced() follows where there is something to
  // say of it, then of a batch job its end, of an interactive one on_admitted(); on_never_started()
  // or on_postponed() instead where it cannot be.
  virtual void start(StartOrder order) = 0;
  // on_step_admitted() follows.
  virtual void start_step(StepOrder order) = 0;
  // A job on record as running when the daemon came up: an event follows, now or at its end.
  virtual void adopt(const Job& job) = 0;
  virtual void command(JobId job, const node::Command& command) = 0;

  // The client of an interactive job that was started before the daemon was.
  virtual void attach(const Job& job, Pid client) = 0;
  // A step that was begun before the daemon was: on_step_gone() follows.
  virtual void adopt_step(const Job& job, std::int64_t step) = 0;
  virtual void signal_allocation(const Job& job, int number) = 0;
  // The processes of one step, of a job of any kind.
  virtual void signal_step(const Job& job, std::int64_t step, int number) = 0;
  virtual void freeze_allocation(const Job& job, bool frozen) = 0;
  // Asks its processes to end, kills what is left after patience; on_ended follows.
  virtual void end_allocation(const Job& job, Millis patience) = 0;

  // The processes of its steps, and what was measured in it: to `tell`, later and in the loop. Of a
  // batch job the script's are those of no step. Where nothing runs there are none.
  using TellProcesses = std::function<void(const api::RunningProcesses&)>;
  virtual void list_processes(const Job& /*job*/, const std::vector<std::int64_t>& /*steps*/,
                              const TellProcesses& tell) {
    tell({});
  }

  virtual void tell(const Notice& /*notice*/) {}
  [[nodiscard]] virtual bool has_program(const std::string& path) const { return !path.empty(); }

  // A step of the run is over: its fence may go, once nobody is inside.
  virtual void forget_step(const Job& job, std::int64_t step) = 0;

  // Every run of which something is left, on record or not. Asked before anything else.
  virtual Result<std::vector<Leftover>> leftovers() = 0;

  // That run is over and on record: its files may go.
  virtual void forget(const node::Run& run, Uid user) = 0;

  // For people: ClusterInfo::cgroup.
  [[nodiscard]] virtual std::string fence() const = 0;
};

}  // namespace aliquot::engine
