// Who waits and who starts: what is submitted, changed, held and let go, and one decision of
// core/schedule after the other. Runs starts what it chooses.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "api/types.hpp"
#include "core/preempt.hpp"
#include "core/schedule.hpp"
#include "engine/accounts.hpp"
#include "engine/admission.hpp"
#include "engine/gpu_service.hpp"
#include "engine/lookup.hpp"
#include "engine/reservations.hpp"
#include "engine/state.hpp"

namespace aliquot::engine {

class Forecast;
class Runs;

class Queue {
 public:
  Queue(State& state, Runs& runs, Forecast& forecast)
      : state_(state),
        runs_(runs),
        forecast_(forecast),
        names_(state),
        admission_(state),
        accounts_(state),
        gpu_service_(state),
        reservations_(state) {}

  Answer<JobId> submit(const Caller& caller, api::JobSpec spec);
  // When it could start, if that is known, without submitting: sbatch --test-only.
  // Where the queue is long the answer comes later.
  using Tested = std::function<void(Answer<api::JobInfo>)>;
  // Then it has a number, for Forecast::drop().
  std::optional<std::uint64_t> test(const Caller& caller, api::JobSpec spec, const Tested& tested);
  // Changes what was asked for; an error says why it cannot be read.
  using Edit = std::function<Result<void>(api::JobSpec&)>;
  Answer<void> update(const Caller& caller, const std::string& id, const Edit& edit);
  // as_user: the owner may let it go, whoever holds it.
  Answer<void> hold(const Caller& caller, const std::string& id, bool as_user = false);
  Answer<void> release(const Caller& caller, const std::string& id);
  // Before the other waiting jobs of their owner: those are lowered, nobody is raised. `7,8`.
  Answer<void> top(const Caller& caller, const std::string& ids);
  // The machine starts no more jobs, until it is resumed.
  Answer<void> drain(const Caller& caller, const std::string& reason);
  Answer<void> undrain(const Caller& caller);
  // The same for some of its GPUs. What is down is drained, and what runs on it is ended.
  Answer<void> drain_gpus(const Caller& caller, const api::DrainSpec& spec);
  Answer<void> undrain_gpus(const Caller& caller, const std::vector<std::int64_t>& gpus);

  [[nodiscard]] Accounts& accounts() { return accounts_; }
  [[nodiscard]] GpuService& gpu_service() { return gpu_service_; }
  [[nodiscard]] Reservations& reservations() { return reservations_; }
  [[nodiscard]] const Reservations& reservations() const { return reservations_; }

  // A job that was checked, with a number of its own from now on.
  Job& add(Job job);
  // What an administrator holds only an administrator lets go: a user's hold on top changes
  // nothing.
  void hold_one(Job& job, Hold hold);
  // What keeps a job from being looked at, before any question of room.
  [[nodiscard]] std::optional<Reason> not_yet(const Job& job) const;
  // How long a running job will still hold what it holds, as far as that is known.
  [[nodiscard]] std::optional<Millis> left_of(const Job& job) const;
  // Which limit keeps a job that could be looked at, in sentences; nothing where none does.
  [[nodiscard]] std::vector<std::string> limit_sentences(const Job& job) const;

  [[nodiscard]] const std::optional<Drained>& drained() const { return drained_; }
  Result<void> read_drained();

  // How often it was gone through: what was foretold before is out of date.
  [[nodiscard]] std::uint64_t passes() const { return passes_; }
  // What runs must be found out about before anything starts.
  [[nodiscard]] bool held_up() const;
  // Its places in the queue: one for each partition that takes it.
  [[nodiscard]] std::vector<core::QueueEntry> entries_of(const Job& job) const;
  // Who is before a job that could start if there were room.
  struct Before {
    std::int64_t count = 0;
    const Job* first = nullptr;     // of them
    const Job* reserved = nullptr;  // for whom what is free is kept, and from when on it has it
    std::optional<Millis> reserved_in = {};
    std::optional<Millis> shorter = {};  // with this limit it could start now
  };
  std::optional<Before> before(const Job& job);

  // Starts what can start, where something has changed; false: not now, a long queue is not gone
  // through all the time.
  bool schedule_if_due();
  [[nodiscard]] MonoTime next_pass() const { return schedule_after_; }
  // When time alone may change something for a job that waits.
  [[nodiscard]] std::optional<WallTime> due(const Job& job) const;

 private:
  void schedule();
  void weigh_jobs();
  void evict_for(const std::vector<core::QueueEntry>& queue, const core::Decision& decision);
  // The job in this partition, in line with the others.
  [[nodiscard]] core::QueueEntry entry_in(const Job& job, const Partition& partition) const;
  bool prepare_entries(std::vector<core::QueueEntry>& queue);
  void add_open(const Job& job, std::vector<core::QueueEntry>& queue, std::int64_t task = -1) const;
  // What keeps a job that may start from this partition.
  [[nodiscard]] std::optional<Reason> barred(const Job& job, const Partition& partition) const;
  void judge_dependencies(Job& job);
  core::DependencyState judge_task(const Job& job, std::int64_t task);
  JobId earliest(const Job& job);
  [[nodiscard]] std::vector<core::RunningEntry> running_entries() const;
  void set_drained(std::optional<Drained> drained);
  Answer<Job> check_update(const Caller& caller, const Job& job, const Edit& edit);
  void apply_update(Job& job, const Job& checked);
  [[nodiscard]] bool waits_for_itself(const Job& job) const;

  State& state_;
  Runs& runs_;
  Forecast& forecast_;
  Lookup names_;
  Admission admission_;
  Accounts accounts_;
  GpuService gpu_service_;
  Reservations reservations_;
  std::optional<Drained> drained_;
  std::uint64_t passes_ = 0;
  MonoTime schedule_after_;
  // For singletons: the first waiting or running job of a user and name, in this pass.
  std::optional<std::map<std::pair<Uid, std::string>, JobId>> earliest_;
};

}  // namespace aliquot::engine
