// What clients run themselves: interactive jobs, which live with their connection, and steps.
#pragma once

#include <compare>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "api/types.hpp"
#include "engine/admission.hpp"
#include "engine/executor.hpp"
#include "engine/lookup.hpp"
#include "engine/state.hpp"

namespace aliquot::engine {

class Queue;
class Runs;

// A client that the daemon was away from has so long to come back.
inline constexpr Millis kReattach = seconds(60);

struct StepId {
  JobId job;
  std::int64_t attempt = 0;
  std::int64_t step = 0;
  friend auto operator<=>(const StepId&, const StepId&) = default;
};

class Clients {
 public:
  Clients(State& state, Queue& queue, Runs& runs)
      : state_(state), queue_(queue), runs_(runs), names_(state), admission_(state) {}

  using Granted = std::function<void(Answer<api::Allocation>)>;
  // Answers when it runs; the id is for hang_up().
  Answer<JobId> allocate(const Caller& caller, api::JobSpec spec, Granted granted);
  // Answers when its processes can run; the id is for hang_up_step().
  Answer<StepId> begin_step(const Caller& caller, const std::string& id, const api::StepSpec& spec,
                            Granted granted);
  Answer<void> end_step(const Caller& caller, const std::string& id, std::int64_t step,
                        const api::StepEnd& end);
  // One of a job's steps: its number, or `batch`.
  Answer<void> cancel_step(const Caller& caller, const std::string& id, const std::string& step,
                           const api::CancelSpec& spec);
  // How a client's own allocation ended: it has.
  Answer<void> end_allocation(const Caller& caller, const std::string& id, const api::StepEnd& end);
  // A client that lost the daemon takes its allocation up again.
  Answer<JobId> attach(const Caller& caller, const std::string& id);
  // The connection that a job or a step belongs to has ended.
  void hang_up(JobId job);
  void hang_up_step(const StepId& step);

  // --- told by Runs
  // Its client, to be let in; nothing: it has gone.
  [[nodiscard]] std::optional<Pid> client_of(JobId job) const;
  [[nodiscard]] bool is_attached(JobId job) const;
  void admitted(JobId id, std::int64_t attempt, const Environment& added);
  void step_admitted(const StepId& step, const Result<Environment>& added);
  // How an interactive job ended: what its client said, or else the worst of its steps.
  [[nodiscard]] std::optional<ExitStatus> exit_of(const Job& job) const;
  // Whether its client said that the kernel ended it for want of memory.
  [[nodiscard]] bool ran_out_of_memory(JobId job) const;
  // Whoever waits for a start that does not come, once that is on record.
  void refuse_client(JobId id, Refused refused);
  void resumed(JobId job);
  void requeued(JobId job);
  void over(JobId job);

  // --- after a start of the daemon, and after a transaction that failed
  // The steps that run, from the record.
  Result<void> take_up(const Job& job);
  // Its client has a while to come back.
  void expect_back(const Job& job);
  void roll_back(JobId job);
  void roll_back_done(JobId job);

  void enforce_times();
  // When time alone may change something.
  [[nodiscard]] std::optional<WallTime> due(const Job& job) const;
  // Those that run, and those that are about to.
  [[nodiscard]] std::vector<const api::StepInfo*> open_steps(JobId job) const;
  // Those that run.
  void add_steps(JobId job, std::vector<api::StepInfo>& to) const;

 private:
  // Which of its job's GPUs a step gets; nothing where it did not ask.
  using StepGpus = std::optional<std::vector<HeldGpu>>;
  Answer<StepGpus> choose_gpus(const Job& job, const api::StepSpec& spec) const;
  void forget_step(const StepId& step);
  void end_step_record(api::StepInfo& step, const api::StepEnd& end, Ending ending) const;
  void cancel_record(api::StepInfo& step, Ending ending);
  void tell_client(JobId job, Pid client);
  void hung_up(JobId job);
  void hung_up_step(const StepId& step);
  void refuse_step(const StepId& step, const Refused& refused);
  void refuse_steps(JobId job);

  State& state_;
  Queue& queue_;
  Runs& runs_;
  Lookup names_;
  Admission admission_;
  struct Client {  // of an interactive job
    Granted granted = {};
    Pid pid = {};
    bool attached = false;
    std::optional<api::StepEnd> end = {};
    std::optional<MonoTime> reattach_by = {};
    std::optional<MonoTime> start_by = {};  // srun -I
  };
  std::unordered_map<JobId, Client> clients_;
  std::unordered_map<JobId, std::map<std::int64_t, api::StepInfo>> steps_;  // that run
  std::unordered_map<JobId, std::int64_t> next_step_;
  // Steps that the machine has yet to admit: not on record, and nobody has been answered.
  struct NewStep {
    api::StepInfo info;
    Granted granted;
    bool cancelled = false;  // before it was let in
  };
  std::map<StepId, NewStep> new_steps_;
};

}  // namespace aliquot::engine
