// The embedded queue itself: what users ask for, what runs, and what is on record, kept in step. It
// decides with core/, remembers with Store, acts through Executor, and has no threads, sockets or
// timers of its own: whoever drives it (daemon.hpp, tests) calls in with what has happened and
// calls settle() afterwards, and again at next_due().
//
// The order that makes a crash harmless: change in memory and in the transaction, commit, and only
// then act on the machine and answer. All three happen in settle(). Where the record cannot be
// written, memory goes back to what is committed (engine_undo): who asked is told to try again,
// and what has happened on the machine is applied again later.
//
// One file for each concern: engine_submit (checks), engine_queue (who starts), engine_run (start,
// end), engine_steps (what clients run), engine_recover (restart), engine_undo (a record that
// cannot be written), engine_find (whom a text names), engine_control (cancel, hold, …),
// engine_update, engine_view (what is shown to whom).
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <tl/expected.hpp>
#include <unordered_map>
#include <utility>
#include <vector>

#include "api/json.hpp"
#include "api/types.hpp"
#include "base/clock.hpp"
#include "core/enforcement.hpp"
#include "core/ledger.hpp"
#include "core/policy.hpp"
#include "core/schedule.hpp"
#include "engine/executor.hpp"
#include "engine/job.hpp"
#include "engine/settings.hpp"
#include "engine/store.hpp"
#include "gpu/devices.hpp"
#include "node/enforcer.hpp"
#include "node/monitor.hpp"

namespace aliquot::engine {

// Who asks, from the kernel.
struct Caller {
  Uid uid;
  node::Pid pid = {};
};

// A refusal as the API says it.
struct Refused {
  int status = 400;
  api::ErrorInfo error;
};
template <class T>
using Answer = tl::expected<T, Refused>;

tl::unexpected<Refused> refuse(int status, std::string code, std::string message);

// Whether a text of one user may be shown to the others: short, one line, and nothing that steers a
// terminal.
Answer<void> check_shown(std::string_view text);

// The machine as it was found at the start.
struct Machine {
  std::string name;
  std::string os;
  std::int64_t cpus = 1;
  Bytes memory;
  WallTime boot = {};
  std::string boot_id = {};  // of this run of the machine, as the kernel names it
  std::vector<gpu::Device> gpus = {};
};

// Users' names, from the machine's database; a fake for tests.
class Users {
 public:
  Users() = default;
  Users(const Users&) = delete;
  Users& operator=(const Users&) = delete;
  virtual ~Users() = default;
  struct User {
    std::string name;
    std::string group;
    std::uint32_t gid = 0;
  };
  // not_found for a uid that no user has.
  virtual Result<User> find(Uid uid) = 0;
};

// The record cannot be read or written now; nothing has changed.
tl::unexpected<Refused> try_again(const Error& error);

// Why a job waits that would give its user more than jobs.gpus_per_user.
inline constexpr std::string_view kUserGpuLimit = "QOSMaxGRESPerUser";

// What a job has on record besides script, environment and arguments.
Bytes record_size(const Job& job);

// How soon a record that could not be written is tried again, if nobody asks before.
inline constexpr Millis kRecordPause = seconds(1);

// How soon a start is tried again for which there was no room on the disk.
inline constexpr Millis kLaunchPause = seconds(10);

// How long what a gone client left behind may take to end.
inline constexpr Millis kGonePatience = seconds(2);
// A client that the daemon was away from has so long to come back.
inline constexpr Millis kReattach = seconds(60);

// Under which the store remembers that the machine is drained: "MILLISECONDS UID REASON".
inline constexpr std::string_view kDrainNote = "drained";

class Engine final : public ExecutorEvents {
 public:
  struct Parts {
    Settings settings;
    Machine machine;
    Clock& clock;
    Executor& executor;
    Users& users;
    Store store;
    Uid owner;  // whom the daemon runs as; root serves everybody
    bool simulated = false;
    std::vector<core::Backend> backends = {};
  };
  // Reads the record and takes up what runs.
  static Result<std::unique_ptr<Engine>> create(Parts parts);

  // Nobody but the owner and root, unless root is the owner.
  [[nodiscard]] Answer<void> admit(const Caller& caller) const;

  using Granted = std::function<void(Answer<api::Allocation>)>;
  using Ended = std::function<void(Answer<api::JobInfo>)>;

  // --- engine_submit
  Answer<api::Submitted> submit(const Caller& caller, api::JobSpec spec);
  // Answers when it runs; the id is for hang_up().
  Answer<JobId> allocate(const Caller& caller, api::JobSpec spec, Granted granted);
  // When it could start, without submitting: sbatch --test-only.
  Answer<api::JobInfo> test(const Caller& caller, api::JobSpec spec);

  // --- engine_control
  Answer<void> cancel(const Caller& caller, const std::string& id, const api::CancelSpec& spec);
  Answer<void> hold(const Caller& caller, const std::string& id);
  Answer<void> release(const Caller& caller, const std::string& id);
  Answer<void> requeue(const Caller& caller, const std::string& id, bool held);
  Answer<void> suspend(const Caller& caller, const std::string& id);
  Answer<void> resume(const Caller& caller, const std::string& id);
  // Before the other waiting jobs of their owner: those are lowered, nobody is raised. `7,8`.
  Answer<void> top(const Caller& caller, const std::string& ids);
  Answer<void> drain(const Caller& caller, const std::string& reason);
  Answer<void> undrain(const Caller& caller);

  // --- engine_update
  // `changes` is JSON: an object of JobSpec's fields.
  Answer<void> update(const Caller& caller, const std::string& id, const std::string& changes);

  // --- engine_steps
  Answer<api::Allocation> begin_step(const Caller& caller, const std::string& id,
                                     const api::StepSpec& spec);
  Answer<void> end_step(const Caller& caller, const std::string& id, std::int64_t step,
                        const api::StepEnd& end);
  // How a client's own allocation ended: it has.
  Answer<void> end_allocation(const Caller& caller, const std::string& id, const api::StepEnd& end);
  // A client that lost the daemon takes its allocation up again.
  Answer<JobId> attach(const Caller& caller, const std::string& id);
  // The connection that a job or a step belongs to has ended.
  void hang_up(JobId job);
  void hang_up_step(JobId job, std::int64_t attempt, std::int64_t step);
  // One of a job's steps: its number, or `batch`.
  Answer<void> cancel_step(const Caller& caller, const std::string& id, const std::string& step,
                           const api::CancelSpec& spec);

  // --- engine_run
  void on_ended(const node::ExitRecord& record) override;
  void on_never_started(JobId job, std::int64_t attempt, const std::string& why) override;
  void on_postponed(JobId job, std::int64_t attempt, const std::string& why) override;
  void on_lost(JobId job, std::int64_t attempt) override;
  void on_enforced(JobId job, std::int64_t attempt, const std::string& words) override;
  void on_stuck(JobId job, std::int64_t attempt, const std::string& who) override;

  // --- engine_view
  struct ListQuery {
    std::string id = {};     // a job, or all of an array
    std::string user = {};   // by name
    bool brief = false;      // as api::JobListWriter says
    bool live = false;       // without what is over
    std::int64_t after = 0;  // JobList::next of the list before
  };
  // Everything in the queue or lately over, as JSON (api::JobList): the queue may be long, and no
  // copy of it is made. What is over comes in pages, with the queue on the first and, since what is
  // over may come back meanwhile, on the last.
  Answer<std::string> list(const Caller& caller, const ListQuery& wanted);
  Answer<api::JobInfo> show(const Caller& caller, const std::string& id);
  Answer<std::string> script(const Caller& caller, const std::string& id);
  // Who waits for the end of a job, of an array, or of one of its elements.
  struct WaiterId {
    JobId job;
    std::uint64_t number = 0;
  };
  // Nothing where it is answered at once.
  std::optional<WaiterId> wait(const Caller& caller, const std::string& id, Ended ended);
  // Nobody is there any more to be told.
  void stop_waiting(const WaiterId& waiter);
  Answer<api::WhyInfo> why(const Caller& caller, const std::string& id);
  // In pages, with the steps.
  Answer<api::JobList> accounting(const Caller& caller, AccountingQuery query);
  [[nodiscard]] api::ClusterInfo cluster_info() const;

  // --- the monitor's
  void observe(std::vector<node::GpuView> views);
  void observe_failure();
  [[nodiscard]] std::vector<node::RunningJob> running() const;
  // What runs, as it was started.
  [[nodiscard]] std::vector<api::JobInfo> active() const;
  // Shown by `aliquot why` and status, and kept with the job.
  void report(const std::vector<node::Escape>& escapes);

  // --- the driver's
  // Starts what can start, commits, then acts and answers.
  void settle();
  // Runs after the next commit: answers. `otherwise` runs where there is none.
  void after_commit(std::function<void()> action, std::function<void()> otherwise = {});
  // Why the record could not be written or read when it was last tried.
  [[nodiscard]] const std::optional<Error>& trouble() const { return trouble_; }
  // Something asked for since the last commit could not be read: its answer is worth nothing.
  [[nodiscard]] const std::optional<Error>& unread() const { return unread_; }
  // When time alone may change something.
  [[nodiscard]] std::optional<WallTime> next_due() const;
  // Takes over what can change while it runs.
  Reloaded reload(const Settings& next);
  [[nodiscard]] const Settings& settings() const { return settings_; }
  [[nodiscard]] std::size_t live() const { return jobs_.size(); }
  [[nodiscard]] const core::Ledger& ledger() const { return ledger_; }

 private:
  Engine(Parts parts, core::Ledger ledger, std::unique_ptr<core::Policy> policy);

  // engine_submit
  // Of a job that is there and shall become this: whose it is stays.
  Answer<Job> check(const Caller& caller, api::JobSpec spec, const Job* changed = nullptr);
  Answer<void> read_spec(Job& job) const;  // fills in what is derived from job.spec
  Answer<void> check_dependencies(const Job& job);
  Answer<void> check_queue(const Caller& caller, const Job& job, std::int64_t more);
  std::unordered_map<std::uint32_t, std::int64_t>& counts();
  Job& add(Job job);
  [[nodiscard]] const Partition* find_partition(const std::string& name) const;

  // engine_queue
  void schedule();
  bool prepare_entries(std::vector<core::QueueEntry>& queue);
  void judge_dependencies(Job& job);
  core::DependencyState judge_task(const Job& job, std::int64_t task);
  std::optional<core::DependencyFacts> facts(JobId job, std::optional<std::int64_t> task);
  std::int64_t earliest(const Job& job);
  std::optional<std::string_view> not_yet(const Job& job) const;
  void wait_for(Job& job, std::string_view reason);
  [[nodiscard]] Compute wanted_gpus(const Job& job) const;
  [[nodiscard]] std::vector<core::RunningEntry> running_entries() const;
  [[nodiscard]] Millis ran(const Job& job) const;
  [[nodiscard]] std::optional<Millis> time_left(const Job& job) const;
  // Of a batch job that runs: until it is not left to its stepd any more to keep the time limit.
  [[nodiscard]] std::optional<Millis> patience_left(const Job& job) const;

  // engine_recover
  Result<void> recover();
  Result<void> read_drained();
  void end_unknown(const std::vector<Leftover>& left, const Store::Live& live);
  Result<void> take_up(Job loaded);
  Result<void> hold_again(const Job& job);
  void take_up_processes(const Job& job);

  // engine_run
  void start(Job& job, core::Placement placement);
  void ended(const node::ExitRecord& record);
  void never_started(JobId job, std::int64_t attempt, const std::string& why);
  void postponed(JobId job, std::int64_t attempt, const std::string& why);
  void lost(JobId job, std::int64_t attempt);
  void finish(Job& job, core::JobState state, std::string reason);
  void back_to_queue(Job& job, bool held, bool count);
  void release_grant(Job& job);
  void tell_waiters(JobId waited, const api::JobInfo& last);
  void enforce_times();
  void end_processes(Job& job, Ending ending);
  Job& split(Job& array, std::int64_t task);
  void resolve_paths(Job& job) const;
  void remember_use(Job& job, const node::ExitRecord& record);

  // Which of its job's GPUs a step gets; nothing where it did not ask.
  using StepGpus = std::optional<std::vector<api::GpuHold>>;
  Answer<StepGpus> choose_gpus(const Job& job, const api::StepSpec& spec) const;
  void forget_step(JobId id, std::int64_t attempt, std::int64_t number);
  void end_step_record(api::StepInfo& step, const api::StepEnd& end) const;
  void hung_up(JobId job);
  void hung_up_step(JobId job, std::int64_t attempt, std::int64_t step);

  // engine_control
  struct Drained {
    std::string reason;
    std::uint32_t uid = 0;
    std::int64_t since_ms = 0;
  };
  void set_drained(std::optional<Drained> drained);
  void cancel_one(Job& job, const Caller& caller);
  void hold_one(Job& job, Hold hold);
  Answer<void> requeue_over(const Caller& caller, const std::string& id, bool held);
  void act_frozen(const Job& job);

  // engine_update
  Answer<Job> check_update(const Caller& caller, const Job& job, const std::string& changes);
  void apply_update(Job& job, const Job& checked);
  [[nodiscard]] bool waits_for_itself(const Job& job) const;
  void act_limit(const Job& job);

  // engine_find
  // Slurm answers a stranger's cancel and a stranger's update with different errors.
  static constexpr std::string_view kNotYours = "ESLURM_USER_ID_MISSING";
  // The live jobs of that name, all of them the caller's to command; at least one. `denied` is the
  // error for those that are not.
  Answer<std::vector<Job*>> find_owned(const Caller& caller, const std::string& id,
                                       std::string_view denied = "ESLURM_ACCESS_DENIED");
  // A job that there is or was.
  struct Named {
    JobId head;    // the job, or the array
    JobId record;  // which has it on record: of an element that waits, its array
    std::optional<std::int64_t> task;
  };
  // `7`, `7_3` or `last`.
  Answer<Named> parse_id(const Caller& caller, const std::string& id);
  Result<std::optional<JobId>> find_task(JobId array, std::int64_t task);
  [[nodiscard]] bool is_admin(const Caller& caller) const;
  [[nodiscard]] bool owns(const Caller& caller, const api::JobInfo& job) const;

  // engine_view
  void redact(const Caller& caller, api::JobInfo& info) const;
  [[nodiscard]] std::string wait_sentence(const Job& job) const;

  void tidy_record();

  // engine_undo
  // What happened outside, applied by the next settle(), and again until it is on record.
  void happened(std::function<void()> event);
  void give_up(const Error& why);
  Result<void> restore();

  void set_state(Job& job, core::JobState state);
  void save(const Job& job);
  void save_step(const api::StepInfo& step);
  void note_times(const Job& job);
  Job* find(JobId id);
  // The record fails us: nothing of this transaction will be committed.
  void require(const Result<void>& result);
  // What cannot be read is taken for empty until then.
  template <class T>
  T require_value(Result<T> result) {
    if (result) return std::move(*result);
    require(tl::make_unexpected(result.error()));
    return T();
  }
  static void must(const Result<void>& result);  // else memory disagrees with itself: terminates

  Settings settings_;
  Machine machine_;
  Clock& clock_;
  Executor& executor_;
  Users& users_;
  Store store_;
  Uid owner_;
  bool simulated_;
  std::vector<core::Backend> backends_;
  core::Ledger ledger_;
  std::unique_ptr<core::Policy> policy_;

  std::map<JobId, Job> jobs_;  // what waits or runs
  // What is left of runs that are not on record as such, and whose it is, while it is ended:
  // nothing starts meanwhile.
  struct Unknown {
    Uid uid;
    std::string stuck = {};  // who of it does not die
    MonoTime told = {};      // of that, in the log
  };
  std::map<node::Run, Unknown> unknown_;
  // Of them those that time alone may change, and others; so that a long queue is not searched.
  mutable std::set<JobId> timed_;
  // How many there are of each user, elements of arrays counted; absent: to be counted anew.
  std::optional<std::unordered_map<std::uint32_t, std::int64_t>> counts_;
  std::int64_t last_id_ = 0;
  bool schedule_needed_ = true;
  MonoTime schedule_after_;  // a long queue is not gone through all the time
  bool dependencies_changed_ = true;
  // Of what others wait for, as on record: by job or array, and by element.
  std::unordered_map<JobId,
                     std::map<std::optional<std::int64_t>, std::optional<core::DependencyFacts>>>
      facts_;
  // For singletons: the first waiting or running job of a user and name, in this pass.
  std::optional<std::map<std::pair<std::uint32_t, std::string>, std::int64_t>> earliest_;
  std::optional<Drained> drained_;
  WallTime started_;
  std::vector<std::function<void()>> actions_;

  // Of the transaction that is open: whatever in memory may be ahead of the record.
  std::vector<std::function<void()>> events_;    // applied, or to be applied
  std::vector<std::function<void()>> refusals_;  // instead of actions_
  std::set<JobId> touched_;
  std::optional<Error> unread_;
  bool ahead_ = false;  // memory has yet to be brought back
  std::optional<Error> trouble_;
  std::optional<WallTime> try_again_at_;

  struct Client {  // of an interactive job
    Granted granted = {};
    node::Pid pid = {};
    bool attached = false;
    std::optional<api::StepEnd> end = {};
    std::optional<MonoTime> reattach_by = {};
    std::optional<MonoTime> start_by = {};  // srun -I
  };
  std::unordered_map<JobId, Client> clients_;
  std::unordered_map<JobId, std::map<std::int64_t, api::StepInfo>> steps_;  // that run
  std::unordered_map<JobId, std::int64_t> next_step_;
  struct Waiter {
    std::optional<std::int64_t> task;
    Ended ended;
  };
  std::unordered_map<JobId, std::map<std::uint64_t, Waiter>> waiting_;  // by what they named
  std::uint64_t last_waiter_ = 0;
  std::vector<node::GpuView> views_;
  bool views_stale_ = false;
  struct GpuUse {  // what a running job used of its GPUs so far
    std::int64_t samples = 0;
    std::int64_t utilisation = 0;
    std::int64_t memory_peak = 0;
  };
  std::unordered_map<JobId, GpuUse> gpu_use_;
  WallTime payloads_dropped_;
  WallTime crowded_counted_;
  std::vector<std::pair<Uid, std::int64_t>> crowded_;  // who has too many records, and how many
};

}  // namespace aliquot::engine
