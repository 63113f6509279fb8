#include "engine/state.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "base/output_path.hpp"

namespace aliquot::engine {

Answer<void> State::admit(const Caller& caller) const {
  if (ahead) return try_again(*trouble);
  if (owner == Uid(0) || is_admin(caller)) return {};
  return refuse(Why::access_denied, "this daemon serves the user who started it alone");
}

bool State::is_admin(const Caller& caller) const {
  return caller.uid == Uid(0) || caller.uid == owner;
}

bool State::owns(const Caller& caller, Uid job_owner) const {
  return is_admin(caller) || caller.uid == job_owner;
}

Job* State::find(JobId id) {
  const auto found = jobs.find(id);
  return found == jobs.end() ? nullptr : &found->second;
}

Job* State::find_active(JobId id, std::int64_t attempt) {
  Job* job = find(id);
  return job != nullptr && core::is_active(job->state) && job->restarts == attempt ? job : nullptr;
}

Job& State::split(Job& array, std::int64_t task) {
  auto& tasks = array.waiting.tasks;
  tasks.erase(std::ranges::find(tasks, task));
  if (tasks.empty()) {
    array.waiting_text.clear();
    array.task = task;
    resolve_paths(array);
    return array;
  }
  array.waiting_text = core::format_array(array.waiting);
  save(array);
  Job element = array;
  element.id = JobId(++last_id);
  element.task = task;
  element.waiting_text.clear();
  element.waiting = {};
  resolve_paths(element);
  const JobId id = element.id;
  return jobs.emplace(id, std::move(element)).first->second;
}

void State::resolve_paths(Job& job) const {
  if (!job.spec.batch) return;
  const PatternValues values{
      .job = job.id,
      .array_job = job.array ? std::optional(job.array->value()) : std::nullopt,
      .array_task = job.task,
      .job_name = job.spec.name,
      .user = job.owner.user,
      .host = machine.name,
      .restarts = job.restarts};
  const auto resolve = [&](std::string_view pattern) {
    return resolve_path(expand_pattern(pattern, values), job.spec.work_dir);
  };
  const bool array = job.array.has_value();
  job.std_out = resolve(job.spec.std_out.value_or(std::string(default_output_pattern(array))));
  job.std_err = job.spec.std_err ? resolve(*job.spec.std_err) : job.std_out;
  job.std_in = job.spec.std_in ? resolve(*job.spec.std_in) : "/dev/null";
}

std::vector<core::GpuIndex> Machine::devices_of(std::int64_t index) const {
  std::vector<core::GpuIndex> devices;
  for (core::GpuIndex gpu = 0; gpu < gpus.size(); ++gpu) {
    if (gpus[gpu].index == index) devices.push_back(gpu);
  }
  return devices;
}

std::string Users::name(Uid uid) {
  const auto user = find(uid);
  return user ? user->name : std::to_string(uid.value());
}

// The wall clock may be set while it runs: that gives no job more time, and none less.
Millis State::ran(const Job& job) const {
  if (job.state == core::JobState::suspended) return job.run_time.before;
  return job.run_time.before + (clock.mono() - job.run_time.since);
}

std::optional<Millis> State::time_left(const Job& job) const {
  if (!job.time_limit) return std::nullopt;
  return std::max(*job.time_limit - ran(job), Millis(0));
}

std::optional<core::DependencyFacts> State::facts(JobId job, std::optional<std::int64_t> task) {
  auto& known = known_facts[job];
  if (const auto found = known.find(task); found != known.end()) return found->second;
  auto found_facts = require_value(store.facts(job, task));
  if (!unread) known[task] = found_facts;
  return found_facts;
}

void State::set_state(Job& job, core::JobState next) {
  if (!core::may_change(job.state, next)) {
    fmt::print(stderr, "aliquotd: job {} is {} and cannot become {}\n", job.id,
               core::long_name(job.state), core::long_name(next));
    std::abort();
  }
  if (witness) witness(job, next);
  job.state = next;
}

void State::save(const Job& job) {
  touched.insert(job.id);
  known_facts.erase(job.id);
  if (job.array) known_facts.erase(*job.array);
  note_times(job);
  require(store.save(job));
}

void State::save_step(const api::StepInfo& step) {
  touched.insert(JobId(step.job_id));
  require(store.save_step(step));
}

void State::note_times(const Job& job) {
  const bool waits = job.spec.deadline_ms || job.spec.begin_ms || job.not_before > WallTime() ||
                     !job.dependencies.empty() || !job.spec.batch ||
                     (job.state == core::JobState::running && job.time_limit);
  if (waits) timed.insert(job.id);
}

void State::after_commit(std::function<void()> action, std::function<void()> otherwise) {
  act(std::move(action));
  if (otherwise) refusals.push_back(std::move(otherwise));
}

void State::require(const Result<void>& result) {
  if (!result && !unread) unread = result.error();
}

void State::must(const Result<void>& result) {
  if (result) return;
  fmt::print(stderr, "aliquotd: cannot go on: {}\n", result.error().message);
  std::abort();
}

}  // namespace aliquot::engine
