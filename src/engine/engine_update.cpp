// Changing a job that is in the queue or runs: scontrol update.
#include <algorithm>
#include <set>
#include <unordered_map>
#include <utility>
#include <vector>

#include "api/json.hpp"
#include "engine/engine.hpp"

namespace aliquot::engine {

// The rules of submission hold for the job as it will be; then some may not change any more.
Answer<Job> Engine::check_update(const Caller& caller, const Job& job, const std::string& changes) {
  if (job.state == core::JobState::completing) {
    return refuse(409, "ESLURM_TRANSITION_STATE_NO_UPDATE", "the job is ending");
  }
  api::JobSpec before = job.spec;
  before.time_limit_ms = job.info.time_limit_ms;
  api::JobSpec wanted = before;
  if (const auto read = api::update_from_json(wanted, changes); !read) {
    return refuse(400, "ESLURM_INVALID_JOB_TEXT", read.error().message);
  }
  wanted.batch = before.batch;
  wanted.script = wanted.batch ? "#!" : "";
  wanted.environment.clear();
  wanted.arguments = before.arguments;
  wanted.array = before.array;
  wanted.limits = before.limits;
  auto checked = check(caller, std::move(wanted), &job);
  if (!checked) return tl::make_unexpected(checked.error());
  checked->spec.script.clear();
  if (checked->spec.dependency != before.dependency && waits_for_itself(*checked)) {
    return refuse(400, "ESLURM_CIRCULAR_DEPENDENCY",
                  fmt::format("job {} would wait for jobs that wait for it", job.id()));
  }

  const api::JobSpec& next = checked->spec;
  if (next.array_throttle && (*next.array_throttle < 0 || !job.info.array_job_id)) {
    return refuse(400, "ESLURM_INVALID_ARRAY", "the job is no array, or the number is none");
  }
  const bool pending = job.state == core::JobState::pending;
  if (!pending && (checked->request != job.request || next.dependency != before.dependency ||
                   checked->info.partition != job.info.partition)) {
    return refuse(409, "ESLURM_DISABLED", "this cannot be changed while the job runs");
  }
  const auto& limit = next.time_limit_ms;
  if (limit != before.time_limit_ms && !is_admin(caller)) {
    const Partition* partition = find_partition(checked->info.partition);
    const bool longer = !limit || (before.time_limit_ms && *limit > *before.time_limit_ms);
    const bool over_partition = !partition->max_time.unlimited() &&
                                (!limit || *limit > partition->max_time.length->value());
    if (longer && (!pending || over_partition)) {
      return refuse(403, "ESLURM_ACCESS_DENIED", "only root may make a running job's time longer");
    }
  }
  return checked;
}

// Along what waiting jobs wait for. A new job is in no circle: nobody can have named it yet.
bool Engine::waits_for_itself(const Job& job) const {
  std::unordered_multimap<std::int64_t, const Job*> elements;
  for (const auto& [id, one] : jobs_) {
    if (one.info.array_job_id) elements.emplace(*one.info.array_job_id, &one);
  }
  std::set<JobId> seen;
  std::vector<const Job*> next{&job};
  while (!next.empty()) {
    const Job& waiting = *next.back();
    next.pop_back();
    const auto follow = [&](const Job& named) {
      if (named.state == core::JobState::pending && seen.insert(named.id()).second) {
        next.push_back(&named);
      }
    };
    for (const core::Dependency& one : waiting.dependencies.all) {
      if (one.kind == core::Dependency::Kind::singleton) continue;
      if (const auto head = jobs_.find(one.job); head != jobs_.end() && !one.task) {
        follow(head->second);
      }
      const auto [begin, end] = elements.equal_range(one.job.value());
      for (auto element = begin; element != end; ++element) {
        const Job& named = *element->second;
        const bool meant = !one.task || (named.is_array() ? std::ranges::binary_search(
                                                                named.waiting.tasks, *one.task)
                                                          : named.info.array_task_id == one.task);
        if (meant) follow(named);
      }
      if (seen.contains(job.id())) return true;
    }
  }
  return false;
}

// `checked` is what check_update() made of it.
void Engine::apply_update(Job& job, const Job& checked) {
  const Bytes recorded = record_size(job);
  const bool pending = job.state == core::JobState::pending;
  const api::JobSpec before = std::exchange(job.spec, checked.spec);
  const std::int64_t cpus = job.info.cpus;
  const std::int64_t memory = job.info.memory;
  (void)read_spec(job);
  api::JobInfo& info = job.info;
  if (!pending) {  // it holds what it was granted, whatever the machine gives today
    info.cpus = cpus;
    info.memory = memory;
  }
  info.name = checked.info.name;
  info.comment = checked.info.comment;
  info.account = checked.info.account;
  info.qos = checked.info.qos;
  info.partition = checked.info.partition;
  info.nice = checked.info.nice;
  info.requeue = checked.info.requeue;
  info.deadline_ms = checked.info.deadline_ms;
  if (job.spec.nice != before.nice || job.spec.priority != before.priority) {
    info.priority = checked.info.priority;
  }
  if (pending) {
    info.eligible_ms = std::max(info.submit_ms, job.spec.begin_ms.value_or(0));
    info.dependency = checked.info.dependency;
    job.dependency_state = {};
    info.command = checked.info.command;
    info.work_dir = checked.info.work_dir;
    resolve_paths(job);
  }
  if (const auto throttle = std::exchange(job.spec.array_throttle, std::nullopt);
      throttle && info.array_job_id) {
    info.array_throttle = *throttle;
    if (job.is_array()) {
      job.waiting.limit = *throttle;
      info.array_pending = core::format_array(job.waiting);
    }
  }
  const auto& limit = job.spec.time_limit_ms;
  if (limit != info.time_limit_ms) {
    info.time_limit_ms = limit;
    if (!pending) {
      info.end_ms.reset();
      job.limited_at = ran(job);
      if (const auto left = time_left(job)) info.end_ms = (clock_.wall() + *left).ms();
      act_limit(job);
    }
  }
  if (const Bytes more = record_size(job) - recorded; more > Bytes(0)) {
    require(store_.charge(job.payload,
                          more * std::max<std::int64_t>(std::ssize(job.waiting.tasks), 1)));
  }
  save(job);
}

// Batch jobs are watched by their stepd.
void Engine::act_limit(const Job& job) {
  actions_.push_back([this, id = job.id()] {
    const Job* one = find(id);
    if (one == nullptr || !one->spec.batch) return;
    node::LimitCommand command;
    if (one->info.time_limit_ms) command.limit = Millis(*one->info.time_limit_ms);
    executor_.command(id, command);
  });
}

Answer<void> Engine::update(const Caller& caller, const std::string& id,
                            const std::string& changes) {
  auto jobs = find_owned(caller, id, kNotYours);
  if (!jobs) return tl::make_unexpected(jobs.error());
  std::vector<Job> checked;
  for (const Job* job : *jobs) {
    auto next = check_update(caller, *job, changes);
    if (!next) return tl::make_unexpected(next.error());
    checked.push_back(std::move(*next));
  }
  for (std::size_t i = 0; i < checked.size(); ++i) apply_update(*(*jobs)[i], checked[i]);
  dependencies_changed_ = true;
  schedule_needed_ = true;
  return {};
}

}  // namespace aliquot::engine
