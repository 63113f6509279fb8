// Changing a job that is in the queue or runs: scontrol update.
#include <algorithm>
#include <set>
#include <unordered_map>
#include <utility>
#include <vector>

#include "engine/queue.hpp"
#include "engine/runs.hpp"

namespace aliquot::engine {

// The rules of submission hold for the job as it will be; then some may not change any more.
Answer<Job> Queue::check_update(const Caller& caller, const Job& job, const Edit& edit) {
  if (job.state == core::JobState::completing) {
    return refuse(Why::is_ending, "the job is ending");
  }
  api::JobSpec before = job.spec;
  before.time_limit_ms.reset();
  if (job.time_limit) before.time_limit_ms = job.time_limit->value();
  before.no_time_limit = !job.time_limit;
  api::JobSpec wanted = before;
  if (const auto read = edit(wanted); !read) {
    return refuse(Why::bad_text, read.error().message);
  }
  wanted.no_time_limit = !wanted.time_limit_ms;
  const bool pending = job.state == core::JobState::pending;
  if (!pending && wanted.dependency != before.dependency) {
    return refuse(Why::not_pending, "it runs: it waits for nothing any more");
  }
  if (job.hold != Hold::none && wanted.priority != before.priority && wanted.priority != 0) {
    return refuse(Why::held, "the job is held: release it first");
  }
  // Who said no partition is in the one that it was put into, whichever is the default by now.
  const bool stays = wanted.partition == before.partition;
  if (stays) wanted.partition = job.partition;
  wanted.batch = before.batch;
  wanted.script = wanted.batch ? "#!" : "";
  wanted.environment.clear();
  wanted.arguments = before.arguments;
  wanted.array = before.array;
  wanted.limits = before.limits;
  Job checked = TRY(admission_.check(caller, std::move(wanted), &job));
  checked.spec.script.clear();
  if (stays) checked.spec.partition = before.partition;
  if (checked.spec.dependency != before.dependency && waits_for_itself(checked)) {
    return refuse(Why::circular_dependency,
                  fmt::format("job {} would wait for jobs that wait for it", job.order()));
  }

  const api::JobSpec& next = checked.spec;
  if (next.array_throttle && *next.array_throttle < 0) {
    return refuse(Why::bad_array, "so many elements at once is no number");
  }
  Job unchanged = job;  // its words, as they are read by now: settings may have changed
  (void)admission_.read_spec(unchanged);
  if (!pending && (checked.request != unchanged.request || next.dependency != before.dependency ||
                   checked.partition != job.partition || next.begin_ms != before.begin_ms ||
                   next.std_out != before.std_out || next.std_err != before.std_err ||
                   next.std_in != before.std_in || next.work_dir != before.work_dir)) {
    return refuse(Why::not_pending, "this cannot be changed while the job runs");
  }
  // What it holds counts for those whose limits it was started under.
  if (!pending && !state_.is_admin(caller) &&
      (next.account != before.account || next.qos != before.qos ||
       next.reservation != before.reservation)) {
    return refuse(Why::not_pending,
                  "account, QOS and reservation cannot be changed while the job runs");
  }
  const auto& limit = next.time_limit_ms;
  if (limit != before.time_limit_ms && !state_.is_admin(caller)) {
    const bool longer = !limit || (before.time_limit_ms && *limit > *before.time_limit_ms);
    const auto partitions = admission_.find_partitions(checked.partition);
    const bool over_partition = std::ranges::all_of(partitions, [&](const Partition* partition) {
      return !partition->max_time.unlimited() &&
             (!limit || *limit > partition->max_time.length->value());
    });
    if (longer && (!pending || over_partition)) {
      return refuse(Why::access_denied, "only root may make a running job's time longer");
    }
  }
  return checked;
}

// Along what waiting jobs wait for. A new job is in no circle: nobody can have named it yet.
bool Queue::waits_for_itself(const Job& job) const {
  std::unordered_multimap<JobId, const Job*> elements;
  for (const auto& [id, one] : state_.jobs) {
    if (one.array) elements.emplace(*one.array, &one);
  }
  std::set<JobId> seen;
  std::vector<const Job*> next{&job};
  while (!next.empty()) {
    const Job& waiting = *next.back();
    next.pop_back();
    const auto follow = [&](const Job& named) {
      if (named.state == core::JobState::pending && seen.insert(named.id).second) {
        next.push_back(&named);
      }
    };
    for (const core::Dependency& one : waiting.dependencies.all) {
      if (one.kind == core::Dependency::Kind::singleton) continue;
      // One that is still in its array is not found there by an id of its own.
      if (job.task && one.job == job.array && one.task.value_or(*job.task) == *job.task)
        return true;
      if (const auto head = state_.jobs.find(one.job); head != state_.jobs.end() && !one.task) {
        follow(head->second);
      }
      const auto [begin, end] = elements.equal_range(one.job);
      for (auto element = begin; element != end; ++element) {
        const Job& named = *element->second;
        const bool meant = !one.task || (named.is_array() ? std::ranges::binary_search(
                                                                named.waiting.tasks, *one.task)
                                                          : named.task == one.task);
        if (meant) follow(named);
      }
      if (seen.contains(job.id)) return true;
    }
  }
  return false;
}

// `checked` is what check_update() made of it.
void Queue::apply_update(Job& job, const Job& checked) {
  const Bytes recorded = record_size(job);
  const bool pending = job.state == core::JobState::pending;
  const api::JobSpec before = std::exchange(job.spec, checked.spec);
  const CpuMilli cpus = job.cpus;
  const Bytes memory = job.memory;
  (void)admission_.read_spec(job);
  job.partition = checked.partition;
  // What has no priority does not start: it is held, by an administrator, since nobody else may.
  if (pending && job.spec.priority == 0 && before.priority != 0) hold_one(job, Hold::admin);
  if (pending) {
    job.eligible = std::max(job.submitted, WallTime(job.spec.begin_ms.value_or(0)));
    job.dependency_text = checked.dependency_text;
    job.dependency_state = {};
    state_.resolve_paths(job);
  } else {  // it holds what it was granted and runs where it was started
    job.cpus = cpus;
    job.memory = memory;
    job.spec.command = before.command;
    job.spec.work_dir = before.work_dir;
  }
  if (const auto throttle = std::exchange(job.spec.array_throttle, std::nullopt);
      throttle && job.array) {
    job.throttle = *throttle;
    if (job.is_array()) job.set_waiting({job.waiting.tasks, *throttle});
  }
  std::optional<Millis> limit;
  if (job.spec.time_limit_ms) limit = Millis(*job.spec.time_limit_ms);
  if (limit == job.time_limit) {  // nobody said a new one
    job.spec.time_limit_ms = before.time_limit_ms;
    job.spec.no_time_limit = before.no_time_limit;
  } else {
    job.time_limit = limit;
    if (!pending) {
      job.end.reset();
      job.limited_at = state_.ran(job);
      if (const auto left = state_.time_left(job)) job.end = state_.clock.wall() + *left;
      runs_.act_limit(job);
    }
  }
  if (const Bytes more = record_size(job) - recorded; more > Bytes(0)) {
    state_.require(state_.store.charge(job.payload, more * elements(job)));
  }
  state_.save(job);
}

Answer<void> Queue::update(const Caller& caller, const std::string& id, const Edit& edit) {
  auto found = TRY(names_.find_owned(caller, id, Why::not_yours));
  std::vector<Job> checked;
  for (const Job* job : found.jobs) {
    if (!found.task) {
      checked.push_back(TRY(check_update(caller, *job, edit)));
      continue;
    }
    Job element = *job;  // as it will be
    element.id = JobId(state_.last_id + 1);
    element.task = found.task;
    element.waiting = {};
    checked.push_back(TRY(check_update(caller, element, edit)));
  }
  names_.single_out(found);
  for (std::size_t i = 0; i < checked.size(); ++i) apply_update(*found.jobs[i], checked[i]);
  state_.dependencies_changed = true;
  state_.schedule_needed = true;
  return {};
}

}  // namespace aliquot::engine
