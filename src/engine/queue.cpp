#include "engine/queue.hpp"

#include <algorithm>
#include <chrono>
#include <set>

#include "base/text.hpp"
#include "engine/fair_share.hpp"
#include "engine/forecast.hpp"
#include "engine/job_info.hpp"
#include "engine/quotas.hpp"
#include "engine/runs.hpp"

namespace aliquot::engine {
namespace {

// Of a pass over a queue so long that it takes this: the next one comes after so many times that,
// and meanwhile requests are answered.
constexpr Millis kLongPass(5);
constexpr std::int64_t kPassShare = 4;

// Under which the store remembers that the machine is drained: "MILLISECONDS UID REASON".
constexpr const char* kDrainNote = "drained";

// Of one array in one decision; the next follows at once if some of them started.
constexpr std::size_t kTasksPerPass = 256;

// aftercorr: each element waits for its own.
bool by_element(const Job& job) {
  return job.is_array() && std::ranges::any_of(job.dependencies.all, [](const auto& one) {
           return one.kind == core::Dependency::Kind::after_corr;
         });
}

// Whether the start of another one may be all that it waits for.
bool waits_for_start(const Job& job) {
  return job.dependency_state.verdict == core::DependencyVerdict::waiting &&
         std::ranges::any_of(job.dependencies.all, [](const core::Dependency& one) {
           return one.kind == core::Dependency::Kind::after;
         });
}

// How many of its array may run at once; 0: all.
std::int64_t throttle(const Job& job) { return job.is_array() ? job.waiting.limit : job.throttle; }

}  // namespace

Answer<JobId> Queue::submit(const Caller& caller, api::JobSpec spec) {
  spec.batch = true;
  Job job = TRY(admission_.check(caller, std::move(spec)));
  TRY(admission_.check_queue(caller, job, elements(job)));
  return add(std::move(job)).id;
}

Job& Queue::add(Job job) {
  job.id = JobId(++state_.last_id);
  job.payload = job.id.value();
  if (job.is_array()) {
    const auto& tasks = job.waiting.tasks;
    job.array = job.id;
    job.throttle = job.waiting.limit;
    job.extent = {.count = std::ssize(tasks),
                  .first = tasks.front(),
                  .last = tasks.back(),
                  .step = tasks.size() > 1 ? tasks[1] - tasks[0] : 1};
  }
  Payload payload{std::exchange(job.spec.script, {}), std::exchange(job.spec.environment, {}),
                  std::exchange(job.spec.arguments, {})};
  state_.require(state_.store.save_payload(job.payload, job.owner.uid, payload,
                                           record_size(job) * elements(job)));
  state_.resolve_paths(job);
  const JobId id = job.id;
  Job& added = state_.jobs.emplace(id, std::move(job)).first->second;
  if (state_.counts) (*state_.counts)[added.owner.uid] += elements(added);
  state_.save(added);
  state_.act([this, jobs = elements(added)] {
    state_.tally->figures.submitted += static_cast<std::uint64_t>(jobs);
  });
  state_.dependencies_changed = state_.dependencies_changed || !added.dependencies.empty();
  state_.schedule_needed = true;
  return added;
}

std::optional<std::uint64_t> Queue::test(const Caller& caller, api::JobSpec spec,
                                         const Tested& tested) {
  auto checked = admission_.check(caller, std::move(spec));
  if (!checked) {
    tested(tl::make_unexpected(checked.error()));
    return std::nullopt;
  }
  Job job = std::move(*checked);
  job.id = JobId(state_.last_id + 1);
  job.node = state_.machine.name;
  const auto question =
      forecast_.ask(caller.uid, job, [job, tested](std::optional<WallTime> start) mutable {
        job.start = start;
        tested(to_info(job));
      });
  if (question) return *question;
  tested(tl::make_unexpected(question.error()));
  return std::nullopt;
}

void Queue::hold_one(Job& job, Hold hold) {
  if (job.hold != Hold::admin) job.hold = hold;
  if (const auto why = not_yet(job)) job.reason = *why;
  job.start.reset();
  state_.save(job);
}

Answer<void> Queue::hold(const Caller& caller, const std::string& id, bool as_user) {
  auto found = TRY(names_.find_owned(caller, id, Why::not_yours));
  const auto waits = [](const Job* job) { return job->state == core::JobState::pending; };
  if (std::ranges::none_of(found.jobs, waits)) {
    return refuse(Why::not_pending, "the job is running");
  }
  names_.single_out(found);
  for (Job* job : found.jobs) {
    if (!waits(job)) continue;
    const bool admin = state_.is_admin(caller);
    if (admin && as_user) job->hold = Hold::user;
    hold_one(*job, admin && !as_user ? Hold::admin : Hold::user);
  }
  state_.schedule_needed = true;
  return {};
}

Answer<void> Queue::release(const Caller& caller, const std::string& id) {
  auto found = TRY(names_.find_owned(caller, id, Why::not_yours));
  const auto held = [](const Job* job) { return job->hold != Hold::none; };
  if (!state_.is_admin(caller) &&
      std::ranges::any_of(found.jobs, [](const Job* job) { return job->hold == Hold::admin; })) {
    return refuse(Why::access_denied, "an administrator holds the job");
  }
  if (std::ranges::none_of(found.jobs, held)) return {};
  names_.single_out(found);
  for (Job* job : found.jobs) {
    if (!held(job)) continue;
    job->hold = Hold::none;
    if (job->spec.priority == 0) job->spec.priority.reset();
    job->reason = Reason::none;
    state_.save(*job);
  }
  state_.schedule_needed = true;
  return {};
}

Answer<void> Queue::top(const Caller& caller, const std::string& ids) {
  std::vector<Lookup::Found> named;
  for (const std::string_view id : split(ids, ',')) {
    named.push_back(TRY(names_.find_owned(caller, std::string(id))));
    for (const Job* job : named.back().jobs) {
      if (job->state != core::JobState::pending) {
        return refuse(Why::not_pending, "the job is running");
      }
      if (job->owner.uid != named.front().jobs.front()->owner.uid) {
        return refuse(Why::access_denied, "these are jobs of several users");
      }
    }
  }
  weigh_jobs();
  std::vector<Job*> chosen;
  for (Lookup::Found& found : named) {
    names_.single_out(found);
    chosen.insert(chosen.end(), found.jobs.begin(), found.jobs.end());
  }
  const auto lower = [&](Job& job, std::int64_t most) {
    most = std::max<std::int64_t>(most, 1);
    if (job.priority <= most) return;
    if (job.spec.priority) {
      job.spec.priority = most;
    } else {
      job.spec.nice += job.priority - most;
    }
    job.priority = most;
    state_.save(job);
  };
  for (std::size_t i = 1; i < chosen.size(); ++i) {
    lower(*chosen[i], chosen[i - 1]->priority - 1);
  }
  const Job& last = *chosen.back();
  for (auto& [id, job] : state_.jobs) {
    if (job.state != core::JobState::pending || job.owner.uid != last.owner.uid ||
        job.partition != last.partition || std::ranges::find(chosen, &job) != chosen.end()) {
      continue;
    }
    lower(job, last.priority - 1);
  }
  state_.schedule_needed = true;
  return {};
}

void Queue::set_drained(std::optional<Drained> drained) {
  drained_ = std::move(drained);
  std::optional<std::string> note;
  if (drained_) note = fmt::format("{} {} {}", drained_->since, drained_->uid, drained_->reason);
  state_.require(state_.store.save_note(kDrainNote, note));
  state_.schedule_needed = true;
}

Answer<void> Queue::drain(const Caller& caller, const std::string& reason) {
  if (!state_.is_admin(caller)) return refuse(Why::access_denied, "only root may do this");
  TRY(check_shown(reason));
  set_drained(Drained{reason, caller.uid, state_.clock.wall()});
  return {};
}

Answer<void> Queue::undrain(const Caller& caller) {
  if (!state_.is_admin(caller)) return refuse(Why::access_denied, "only root may do this");
  set_drained(std::nullopt);
  return {};
}

Result<void> Queue::read_drained() {
  drained_.reset();
  const auto note = TRY(state_.store.note(kDrainNote));
  if (!note) return {};
  const auto words = aliquot::split(*note, ' ');
  Drained drained;
  if (words.size() >= 3) {
    drained.since = WallTime(parse_digits(words[0]).value_or(0));
    drained.uid = Uid(static_cast<std::uint32_t>(parse_digits(words[1]).value_or(0)));
    drained.reason = note->substr(words[0].size() + words[1].size() + 2);
  }
  drained_ = std::move(drained);
  return {};
}

std::vector<core::RunningEntry> Queue::running_entries() const {
  std::vector<core::RunningEntry> running;
  for (const JobId id : state_.ledger.jobs()) {
    running.push_back({*state_.ledger.find(id), left_of(state_.jobs.at(id))});
  }
  return running;
}

std::optional<Millis> Queue::left_of(const Job& job) const {
  if (job.state == core::JobState::completing) return Millis(0);  // as good as over
  if (job.evicted) return std::max(*job.evicted - state_.clock.mono(), Millis(0));
  return state_.time_left(job);
}

JobId Queue::earliest(const Job& job) {
  if (!earliest_) {
    earliest_.emplace();
    for (const auto& [id, other] : state_.jobs) {
      const auto [first, added] =
          earliest_->try_emplace({other.owner.uid, other.spec.name}, other.order());
      if (!added) first->second = std::min(first->second, other.order());
    }
  }
  return earliest_->at({job.owner.uid, job.spec.name});
}

core::DependencyState Queue::judge_task(const Job& job, std::int64_t task) {
  return core::evaluate(
      job.dependencies,
      [&](const core::Dependency& one) -> std::optional<core::DependencyFacts> {
        if (one.kind == core::Dependency::Kind::singleton) {
          return core::DependencyFacts{.ended = earliest(job) == job.order()};
        }
        auto element = one.task;
        if (one.kind == core::Dependency::Kind::after_corr && task >= 0) element = task;
        auto facts = state_.facts(one.job, element);
        // It has no such element, or none at all: then it is waited for as a whole.
        if (!facts && element != one.task) facts = state_.facts(one.job, one.task);
        return facts;
      },
      state_.clock.wall());
}

void Queue::judge_dependencies(Job& job) {
  if (job.dependencies.empty()) return;
  job.dependency_state =
      judge_task(job, job.is_array() ? job.waiting.tasks[0] : job.task.value_or(-1));
  if (by_element(job)) {
    // The array is as far as its furthest element.
    for (const std::int64_t task : job.waiting.tasks) {
      auto state = judge_task(job, task);
      if (state.verdict >= job.dependency_state.verdict) continue;
      job.dependency_state = std::move(state);
      if (job.dependency_state.verdict == core::DependencyVerdict::fulfilled) break;
    }
  }
  job.dependency_text = core::describe(job.dependency_state);
  job.dependency_state.left = {};  // it is long, and the text says the same
}

std::optional<Reason> Queue::not_yet(const Job& job) const {
  const WallTime now = state_.clock.wall();
  if (job.hold == Hold::admin) return Reason::held_admin;
  if (job.hold == Hold::user) return Reason::held_user;
  if (!job.unfit.empty()) return Reason::bad_constraints;
  if (const auto gone = accounts_.barred(job)) return gone;
  if (reservations_.not_yet(job)) return Reason::reservation;
  if (job.dependency_state.verdict == core::DependencyVerdict::never)
    return Reason::dependency_never;
  if (job.dependency_state.verdict == core::DependencyVerdict::waiting) return Reason::dependency;
  if (job.spec.begin_ms.value_or(0) > now.ms() || job.not_before > now) return Reason::begin_time;
  // Of several partitions one that takes it is enough.
  std::optional<Reason> why;
  for (const Partition* partition : admission_.find_partitions(job.partition)) {
    const auto bar = barred(job, *partition);
    if (!bar) return drained_ ? std::optional(Reason::not_available) : std::nullopt;
    if (!why) why = bar;
  }
  return why.value_or(Reason::partition_down);
}

std::optional<Reason> Queue::barred(const Job& job, const Partition& partition) const {
  if (!partition.up) return Reason::partition_down;
  const auto limit = admission_.time_limit_in(partition, job);
  if (!partition.max_time.unlimited() && (!limit || *limit > *partition.max_time.length)) {
    return Reason::partition_time_limit;
  }
  return std::nullopt;
}

core::QueueEntry Queue::entry_in(const Job& job, const Partition& partition) const {
  core::QueueEntry entry{.job = job.id,
                         .tier = partition.tier,
                         .priority = job.priority,
                         .order = static_cast<std::uint64_t>(job.order().value()),
                         .shape = job.shape,
                         .time_limit = admission_.time_limit_in(partition, job)};
  if (const auto left = reservations_.left(job); left && !job.spec.time_limit_ms) {
    entry.time_limit = std::min(entry.time_limit.value_or(*left), *left);
  }
  entry.shape.devices =
      admission_.devices_of(partition) & reservations_.devices_for(job, entry.time_limit);
  entry.partition = static_cast<std::uint32_t>(&partition - state_.settings.partitions.data());
  return entry;
}

bool Queue::held_up() const { return runs_.held_up().has_value(); }

std::vector<core::QueueEntry> Queue::entries_of(const Job& job) const {
  std::vector<core::QueueEntry> entries;
  add_open(job, entries);
  return entries;
}

void Queue::add_open(const Job& job, std::vector<core::QueueEntry>& queue,
                     std::int64_t task) const {
  for (const Partition* partition : admission_.find_partitions(job.partition)) {
    if (barred(job, *partition)) continue;
    queue.push_back(entry_in(job, *partition));
    queue.back().task = task;
  }
}

// What each waiting job's priority is now: everybody's usage and age have changed since.
void Queue::weigh_jobs() {
  const Sharers sharers(state_);
  for (auto& [id, job] : state_.jobs) {
    if (job.state == core::JobState::pending) job.priority = sharers.priority(job);
  }
}

// False when nobody could start.
bool Queue::prepare_entries(std::vector<core::QueueEntry>& queue) {
  std::unordered_map<JobId, std::int64_t> running_tasks;
  for (const auto& [id, job] : state_.jobs) {
    if (core::is_active(job.state) && job.array) ++running_tasks[*job.array];
  }
  const auto add = [&](Job& job) {
    // Of an array, those that run and those that are about to, singled out or not.
    std::int64_t* taken = nullptr;
    std::size_t room = kTasksPerPass;
    if (throttle(job) > 0) {
      taken = &running_tasks[job.order()];
      const std::int64_t left = throttle(job) - *taken;
      room = left > 0 ? std::min(room, static_cast<std::size_t>(left)) : 0;
      if (room == 0) job.reason = Reason::task_limit;
    }
    if (!job.is_array()) {
      if (room == 0) return;
      if (taken != nullptr) ++*taken;
      return add_open(job, queue);
    }
    const bool each = by_element(job);
    for (const std::int64_t task : job.waiting.tasks) {
      if (room == 0) break;
      if (each && judge_task(job, task).verdict != core::DependencyVerdict::fulfilled) continue;
      add_open(job, queue, task);
      --room;
      if (taken != nullptr) ++*taken;
    }
  };
  std::vector<Job*> throttled;
  for (auto& [id, job] : state_.jobs) {
    if (job.state != core::JobState::pending) continue;
    if (const auto why = not_yet(job)) {
      job.reason = *why;
      if (*why != Reason::dependency && *why != Reason::begin_time) job.start.reset();
    } else if (throttle(job) > 0) {
      throttled.push_back(&job);
    } else {
      add(job);
    }
  }
  // The room that an array's throttle leaves is taken in the queue's order, and of equals those
  // that were singled out have waited longer than what is left of their array.
  std::ranges::stable_sort(throttled, [](const Job* a, const Job* b) {
    if (a->priority != b->priority) return a->priority > b->priority;
    return !a->is_array() && b->is_array();
  });
  for (Job* job : throttled) add(*job);
  return !queue.empty();
}

void Queue::schedule() {
  state_.schedule_needed = false;
  ++passes_;
  reservations_.expire();
  earliest_.reset();
  const WallTime now = state_.clock.wall();
  std::vector<JobId> hopeless;
  std::vector<JobId> late;
  bool starts_awaited = false;
  for (auto& [id, job] : state_.jobs) {
    if (job.state != core::JobState::pending) continue;
    if (!job.dependencies.empty() &&
        (state_.dependencies_changed ||
         (job.dependency_state.next && *job.dependency_state.next <= now))) {
      const bool hoped = job.dependency_state.verdict != core::DependencyVerdict::never;
      judge_dependencies(job);
      if (hoped && job.dependency_state.verdict == core::DependencyVerdict::never) {
        runs_.notices().never(job);
      }
      if (job.dependency_state.verdict == core::DependencyVerdict::never &&
          job.spec.kill_on_invalid_dependency) {
        hopeless.push_back(id);
      }
    }
    starts_awaited = starts_awaited || waits_for_start(job);
    if (job.spec.deadline_ms && *job.spec.deadline_ms <= now.ms()) late.push_back(id);
  }
  state_.dependencies_changed = false;
  for (const JobId id : hopeless) {
    runs_.finish(id, core::JobState::cancelled, Reason::dependency_never);
  }
  for (const JobId id : late) {
    if (state_.find(id) != nullptr) runs_.finish(id, core::JobState::deadline, Reason::deadline);
  }

  weigh_jobs();
  if (runs_.held_up()) return;
  std::vector<core::QueueEntry> queue;
  if (!prepare_entries(queue)) return;
  const Stopwatch watch;
  const auto running = running_entries();
  Quotas quotas(state_);
  const auto rules = quotas.rules(queue);
  const core::Decision decision =
      core::schedule(state_.ledger.cluster(), queue, running, *state_.policy, rules.get());
  state_.statistics.cycle(watch.microseconds(), std::ssize(queue));

  evict_for(queue, decision);
  std::set<JobId> told;
  for (const core::Wait& wait : decision.waits) {
    const core::QueueEntry& entry = queue[wait.entry];
    // An array waits for what its first element waits for.
    if (!told.insert(entry.job).second) continue;
    Job& job = state_.jobs.at(entry.job);
    job.reason = parse_reason(wait.reason);
  }
  const auto reserved = std::ranges::find_if(
      decision.waits, [](const core::Wait& wait) { return wait.start_in.has_value(); });
  for (const core::Start& start : decision.starts) {
    const core::QueueEntry& entry = queue[start.entry];
    Job& waiting = state_.jobs.at(entry.job);
    Job& job = entry.task >= 0 ? state_.split(waiting, entry.task) : waiting;
    // The rest of the array was not asked, or waits for another reason now.
    if (waiting.is_array()) state_.schedule_needed = true;
    job.partition = state_.settings.partitions[entry.partition].name;
    job.time_limit = entry.time_limit;
    if (reserved != decision.waits.end() && core::comes_before(queue[reserved->entry], entry)) {
      state_.act([this] { ++state_.statistics.counts.backfilled; });
    }
    runs_.start(job, start.placement);
    if (starts_awaited) state_.schedule_needed = true;
  }
}

bool Queue::schedule_if_due() {
  if (!state_.schedule_needed || state_.clock.mono() < schedule_after_) return false;
  const MonoTime begun = state_.clock.mono();
  const auto exactly = std::chrono::steady_clock::now();
  schedule();
  state_.tally->note_pass(
      std::chrono::duration<double>(std::chrono::steady_clock::now() - exactly).count());
  const Millis took = state_.clock.mono() - begun;
  if (took >= kLongPass) schedule_after_ = state_.clock.mono() + took * kPassShare;
  return true;
}

std::optional<WallTime> Queue::due(const Job& job) const {
  if (job.state != core::JobState::pending) return std::nullopt;
  std::optional<WallTime> due;
  const auto at = [&](WallTime time) {
    if (!due || time < *due) due = time;
  };
  if (job.spec.deadline_ms) at(WallTime(*job.spec.deadline_ms));
  if (job.hold != Hold::none) return due;
  // Where nothing starts for now, its time comes with what ends that.
  if (job.reason == Reason::begin_time && !runs_.held_up()) {
    at(std::max(WallTime(job.spec.begin_ms.value_or(0)), job.not_before));
  }
  if (job.dependency_state.next) at(*job.dependency_state.next);
  return due;
}

}  // namespace aliquot::engine
