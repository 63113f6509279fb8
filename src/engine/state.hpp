// What the rooms of the engine share: the jobs that wait or run, the ledger, the record, and the
// transaction that is open. It decides nothing; Engine::settle() ends the transaction.
//
// The order that makes a crash harmless: change in memory and in the transaction, commit, and only
// then act on the machine and answer.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "api/accounts.hpp"
#include "base/clock.hpp"
#include "core/fair_share.hpp"
#include "core/ledger.hpp"
#include "core/policy.hpp"
#include "engine/executor.hpp"
#include "engine/job.hpp"
#include "engine/job_tally.hpp"
#include "engine/refused.hpp"
#include "engine/settings.hpp"
#include "engine/statistics.hpp"
#include "engine/store.hpp"
#include "gpu/devices.hpp"

namespace aliquot::engine {

// Who asks, from the kernel.
struct Caller {
  Uid uid;
  Pid pid = {};
};

// The machine as it was found at the start.
struct Machine {
  std::string name;
  std::string os;
  std::int64_t cpus = 1;
  Bytes memory;
  WallTime boot = {};
  std::string boot_id = {};  // of this run of the machine, as the kernel names it
  std::vector<gpu::Device> gpus = {};
  // Those of this number, as nvidia-smi counts: a GPU, or all its slices.
  [[nodiscard]] std::vector<core::GpuIndex> devices_of(std::int64_t index) const;
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
    std::vector<std::string> groups = {};  // by name, that of `gid` too
  };
  // What is known, at once: the database may be somewhere else, and slow. not_found for a uid that
  // no user has, unavailable for one that was not asked for yet.
  virtual Result<User> find(Uid uid) = 0;
  // Calls `then`, in the loop, once the database was asked for who is not known: the first step of
  // a request that makes a job of the user's.
  virtual void learn(Uid uid, std::function<void()> then) = 0;
  // By name; by number where that is not known.
  std::string name(Uid uid);
};

// What an engine is made of.
struct Parts {
  Settings settings;
  Machine machine;
  Clock& clock;
  Executor& executor;
  Users& users;
  Store store;
  Uid owner;  // whom the daemon runs as; root serves everybody
  // For tests: hears of every change of a job's state, before it is made.
  std::function<void(const Job& job, core::JobState next)> witness = {};
};

// Out of service by hand: why, by whom, since when.
struct Drained {
  std::string reason;
  Uid uid;
  WallTime since;
};

// What keeps jobs from one GPU.
struct GpuOutage {
  std::optional<Drained> drain = {};
  core::Health seen = core::Health::ok;  // by the monitor
  std::string trouble = {};
  WallTime since = {};
};

// A right to act as its user, for who knows the text.
struct Token {
  std::string text;
  Uid uid;
  WallTime until;
};

struct State : Parts {
  core::Ledger ledger;
  std::unique_ptr<core::Policy> policy;

  // What users have had, without what runs.
  core::UsageBook usage = core::UsageBook(settings.priority.half_life);
  std::map<JobId, Job> jobs = {};  // what waits or runs
  // Of them those that time alone may change, and others; so that a long queue is not searched.
  std::set<JobId> timed = {};
  // How many there are of each user, elements of arrays counted; absent: to be counted anew.
  std::optional<std::unordered_map<Uid, std::int64_t>> counts = {};
  api::AccountBook book = {};  // what sacctmgr keeps
  std::map<core::GpuIndex, GpuOutage> gpu_service = {};
  std::vector<api::ReservationInfo> reservations = {};
  std::vector<Token> tokens = {};
  std::unique_ptr<JobTally> tally = std::make_unique<JobTally>();
  std::int64_t last_id = 0;
  Statistics statistics = {};
  // News for the queue.
  bool schedule_needed = true;
  bool dependencies_changed = true;

  // The transaction that is open: whatever in memory may be ahead of the record.
  std::vector<std::function<void()>> actions = {};   // after the commit
  std::vector<std::function<void()>> refusals = {};  // instead of them
  std::vector<std::function<void()>> events = {};    // applied, or to be applied
  std::set<JobId> touched = {};
  std::optional<Error> unread = {};   // nothing of it will be committed
  std::optional<Error> trouble = {};  // why the last one could not be written or read
  bool ahead = false;                 // memory has yet to be brought back to the record

  // Nobody but the owner and root, unless root is the owner.
  [[nodiscard]] Answer<void> admit(const Caller& caller) const;
  [[nodiscard]] bool is_admin(const Caller& caller) const;
  [[nodiscard]] bool owns(const Caller& caller, Uid job_owner) const;

  Job* find(JobId id);
  // The run of a job that goes on: not one before a requeue.
  Job* find_active(JobId id, std::int64_t attempt);
  // One element leaves its array, as a job of its own. The last one takes the array's id.
  Job& split(Job& array, std::int64_t task);
  // The files of a batch job, with the patterns in their names filled in.
  void resolve_paths(Job& job) const;
  [[nodiscard]] Millis ran(const Job& job) const;
  [[nodiscard]] std::optional<Millis> time_left(const Job& job) const;
  // Of what others wait for, as on record; kept until it changes.
  std::optional<core::DependencyFacts> facts(JobId job, std::optional<std::int64_t> task);

  void set_state(Job& job, core::JobState next);
  // A change that cannot be written spoils the transaction, which the commit will say.
  void save(const Job& job);
  void save_step(const api::StepInfo& step);
  void note_times(const Job& job);

  void act(std::function<void()> action) { actions.push_back(std::move(action)); }
  // `otherwise` runs where there is no commit.
  void after_commit(std::function<void()> action, std::function<void()> otherwise = {});
  // What happened outside, applied by the next settle(), and again until it is on record.
  void happened(std::function<void()> event) { events.push_back(std::move(event)); }

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

  // By job or array, and by element.
  std::unordered_map<JobId,
                     std::map<std::optional<std::int64_t>, std::optional<core::DependencyFacts>>>
      known_facts = {};
};

}  // namespace aliquot::engine
