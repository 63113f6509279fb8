// Who starts: readiness of each waiting job, one decision of core/schedule, its starts and reasons.
#include <algorithm>
#include <set>

#include "engine/engine.hpp"

namespace aliquot::engine {
namespace {

// How much longer than the job's own grace its stepd may take to end it.
constexpr Millis kStepdGrace = seconds(30);

// Of one array in one decision; the next follows at once if some of them started.
constexpr std::size_t kTasksPerPass = 256;

// aftercorr: each element waits for its own.
bool by_element(const Job& job) {
  return job.is_array() && std::ranges::any_of(job.dependencies.all, [](const auto& one) {
           return one.kind == core::Dependency::Kind::after_corr;
         });
}

// How many of its array may run at once; 0: all.
std::int64_t throttle(const Job& job) {
  return job.is_array() ? job.waiting.limit : job.info.array_throttle;
}

// jobs.gpus_per_user: what a user's running jobs hold, and what is about to start.
class UserLimit final : public core::Rules {
 public:
  explicit UserLimit(Compute most) : most_(most) {}

  void add(JobId job, std::uint32_t uid, Compute wanted) { wanted_[job] = {uid, wanted}; }
  void hold(std::uint32_t uid, Compute amount) { held_[uid] += amount; }

  [[nodiscard]] std::optional<std::string_view> hold_back(const core::QueueEntry& entry) override {
    const auto& [uid, amount] = wanted_.at(entry.job);
    if (amount == Compute(0) || held_[uid] + amount <= most_) return std::nullopt;
    return kUserGpuLimit;
  }
  void started(const core::QueueEntry& entry) override {
    const auto& [uid, amount] = wanted_.at(entry.job);
    held_[uid] += amount;
  }

 private:
  Compute most_;
  std::unordered_map<JobId, std::pair<std::uint32_t, Compute>> wanted_;
  std::unordered_map<std::uint32_t, Compute> held_;
};

}  // namespace

// In GPUs: a share is the part of one that its compute is.
Compute Engine::wanted_gpus(const Job& job) const {
  const core::Node& node = ledger_.cluster().node(0);
  if (!job.request.gpus || node.gpus.empty()) return Compute(0);
  const auto each = core::portion_on(job.request.gpus->what, node, node.gpus.front());
  const Compute one = std::holds_alternative<core::WholeGpu>(job.request.gpus->what) || !each
                          ? kWholeGpu
                          : each->compute;
  return one * job.request.gpus->count;
}

// The wall clock may be set while it runs: that gives no job more time, and none less.
Millis Engine::ran(const Job& job) const {
  if (job.state == core::JobState::suspended) return job.run_time.before;
  return job.run_time.before + (clock_.mono() - job.run_time.since);
}

std::optional<Millis> Engine::time_left(const Job& job) const {
  if (!job.info.time_limit_ms) return std::nullopt;
  return std::max(Millis(*job.info.time_limit_ms) - ran(job), Millis(0));
}

std::optional<Millis> Engine::patience_left(const Job& job) const {
  if (!job.spec.batch || job.state != core::JobState::running || !job.info.time_limit_ms) {
    return std::nullopt;
  }
  const Millis due = std::max(Millis(*job.info.time_limit_ms), job.limited_at);
  return due + settings_.kill_wait + kStepdGrace - ran(job);
}

std::vector<core::RunningEntry> Engine::running_entries() const {
  std::vector<core::RunningEntry> running;
  for (const JobId id : ledger_.jobs()) {
    running.push_back({*ledger_.find(id), time_left(jobs_.at(id))});
  }
  return running;
}

std::optional<core::DependencyFacts> Engine::facts(JobId job, std::optional<std::int64_t> task) {
  auto& known = facts_[job];
  if (const auto found = known.find(task); found != known.end()) return found->second;
  auto facts = require_value(store_.facts(job, task));
  if (!unread_) known[task] = facts;
  return facts;
}

std::int64_t Engine::earliest(const Job& job) {
  if (!earliest_) {
    earliest_.emplace();
    for (const auto& [id, other] : jobs_) {
      const auto order = static_cast<std::int64_t>(other.order());
      const auto [first, added] = earliest_->try_emplace({other.info.uid, other.info.name}, order);
      if (!added) first->second = std::min(first->second, order);
    }
  }
  return earliest_->at({job.info.uid, job.info.name});
}

core::DependencyState Engine::judge_task(const Job& job, std::int64_t task) {
  return core::evaluate(
      job.dependencies,
      [&](const core::Dependency& one) -> std::optional<core::DependencyFacts> {
        if (one.kind == core::Dependency::Kind::singleton) {
          return core::DependencyFacts{.ended =
                                           earliest(job) == static_cast<std::int64_t>(job.order())};
        }
        auto element = one.task;
        if (one.kind == core::Dependency::Kind::after_corr && task >= 0) element = task;
        return facts(one.job, element);
      },
      clock_.wall());
}

void Engine::judge_dependencies(Job& job) {
  if (job.dependencies.empty()) return;
  job.dependency_state =
      judge_task(job, job.is_array() ? job.waiting.tasks[0] : job.info.array_task_id.value_or(-1));
  if (by_element(job)) {
    // The array is as far as its furthest element.
    for (const std::int64_t task : job.waiting.tasks) {
      auto state = judge_task(job, task);
      if (state.verdict >= job.dependency_state.verdict) continue;
      job.dependency_state = std::move(state);
      if (job.dependency_state.verdict == core::DependencyVerdict::fulfilled) break;
    }
  }
  job.info.dependency = core::describe(job.dependency_state);
  job.dependency_state.left = {};  // it is long, and the text says the same
}

// What keeps a job from being looked at, before any question of room.
std::optional<std::string_view> Engine::not_yet(const Job& job) const {
  namespace reason = core::reason;
  const WallTime now = clock_.wall();
  if (job.hold == Hold::admin) return reason::kHeldAdmin;
  if (job.hold == Hold::user) return reason::kHeldUser;
  if (!job.unfit.empty()) return reason::kBadConstraints;
  if (job.dependency_state.verdict == core::DependencyVerdict::never)
    return reason::kDependencyNever;
  if (job.dependency_state.verdict == core::DependencyVerdict::waiting) return reason::kDependency;
  if (job.spec.begin_ms.value_or(0) > now.ms() || job.not_before > now) return reason::kBeginTime;
  const Partition* partition = find_partition(job.info.partition);
  if (partition == nullptr || !partition->up) return "PartitionDown";
  if (!partition->max_time.unlimited() &&
      (!job.info.time_limit_ms || *job.info.time_limit_ms > partition->max_time.length->value())) {
    return reason::kTimeLimit;
  }
  if (drained_) return reason::kNotAvailable;
  return std::nullopt;
}

void Engine::wait_for(Job& job, std::string_view reason) {
  if (job.info.reason != reason) job.info.reason = reason;
}

// False when nobody could start.
bool Engine::prepare_entries(std::vector<core::QueueEntry>& queue) {
  std::unordered_map<std::int64_t, std::int64_t> running_tasks;
  for (const auto& [id, job] : jobs_) {
    if (core::is_active(job.state) && job.info.array_job_id)
      ++running_tasks[*job.info.array_job_id];
  }
  const auto add = [&](Job& job) {
    core::QueueEntry entry{
        .job = job.id(), .priority = job.info.priority, .order = job.order(), .shape = job.shape};
    if (job.info.time_limit_ms) entry.time_limit = Millis(*job.info.time_limit_ms);
    // Of an array, those that run and those that are about to, singled out or not.
    std::int64_t* taken = nullptr;
    std::size_t room = kTasksPerPass;
    if (throttle(job) > 0) {
      taken = &running_tasks[job.info.array_job_id.value_or(job.info.id)];
      const std::int64_t left = throttle(job) - *taken;
      room = left > 0 ? std::min(room, static_cast<std::size_t>(left)) : 0;
      if (room == 0) wait_for(job, core::reason::kTaskLimit);
    }
    if (!job.is_array()) {
      if (room == 0) return;
      if (taken != nullptr) ++*taken;
      queue.push_back(entry);
      return;
    }
    const bool each = by_element(job);
    for (const std::int64_t task : job.waiting.tasks) {
      if (room == 0) break;
      if (each && judge_task(job, task).verdict != core::DependencyVerdict::fulfilled) continue;
      entry.task = task;
      queue.push_back(entry);
      --room;
      if (taken != nullptr) ++*taken;
    }
  };
  std::vector<Job*> throttled;
  for (auto& [id, job] : jobs_) {
    if (job.state != core::JobState::pending) continue;
    if (const auto why = not_yet(job)) {
      wait_for(job, *why);
      job.info.start_ms.reset();
    } else if (throttle(job) > 0) {
      throttled.push_back(&job);
    } else {
      add(job);
    }
  }
  // The room that an array's throttle leaves is taken in the queue's order, and of equals those
  // that were singled out have waited longer than what is left of their array.
  std::ranges::stable_sort(throttled, [](const Job* a, const Job* b) {
    if (a->info.priority != b->info.priority) return a->info.priority > b->info.priority;
    return !a->is_array() && b->is_array();
  });
  for (Job* job : throttled) add(*job);
  return !queue.empty();
}

void Engine::schedule() {
  schedule_needed_ = false;
  earliest_.reset();
  const WallTime now = clock_.wall();
  std::vector<JobId> hopeless;
  std::vector<JobId> late;
  for (auto& [id, job] : jobs_) {
    if (job.state != core::JobState::pending) continue;
    if (!job.dependencies.empty() &&
        (dependencies_changed_ ||
         (job.dependency_state.next && *job.dependency_state.next <= now))) {
      judge_dependencies(job);
      if (job.dependency_state.verdict == core::DependencyVerdict::never &&
          job.spec.kill_on_invalid_dependency) {
        hopeless.push_back(id);
      }
    }
    if (job.info.deadline_ms && *job.info.deadline_ms <= now.ms()) late.push_back(id);
  }
  dependencies_changed_ = false;
  for (const JobId id : hopeless) {
    finish(jobs_.at(id), core::JobState::cancelled, std::string(core::reason::kDependencyNever));
  }
  for (const JobId id : late) {
    if (Job* job = find(id)) finish(*job, core::JobState::deadline, "Deadline");
  }

  if (!unknown_.empty()) return;
  std::vector<core::QueueEntry> queue;
  if (!prepare_entries(queue)) return;
  const auto running = running_entries();
  std::optional<UserLimit> limit;
  if (settings_.gpus_per_user) {
    limit.emplace(kWholeGpu * *settings_.gpus_per_user);
    for (const JobId id : ledger_.jobs()) {
      const Job& holder = jobs_.at(id);
      limit->hold(holder.info.uid, wanted_gpus(holder));
    }
    for (const core::QueueEntry& entry : queue) {
      const Job& waiter = jobs_.at(entry.job);
      limit->add(entry.job, waiter.info.uid, wanted_gpus(waiter));
    }
  }
  const core::Decision decision =
      core::schedule(ledger_.cluster(), queue, running, *policy_, limit ? &*limit : nullptr);

  std::set<JobId> told;
  for (const core::Wait& wait : decision.waits) {
    const core::QueueEntry& entry = queue[wait.entry];
    // Of an array the first element speaks.
    if (!told.insert(entry.job).second) continue;
    Job& job = jobs_.at(entry.job);
    wait_for(job, wait.reason);
    job.info.start_ms.reset();
    if (wait.start_in) job.info.start_ms = (now + *wait.start_in).ms();
  }
  for (const core::Start& start : decision.starts) {
    const core::QueueEntry& entry = queue[start.entry];
    Job& waiting = jobs_.at(entry.job);
    Job& job = entry.task >= 0 ? split(waiting, entry.task) : waiting;
    // The rest of the array was not asked, or waits for another reason now.
    if (waiting.is_array()) schedule_needed_ = true;
    this->start(job, start.placement);
  }
}

}  // namespace aliquot::engine
