// What users do to their jobs: cancel, hold, release, requeue, suspend, update.
#include <algorithm>
#include <utility>

#include "api/json.hpp"
#include "base/text.hpp"
#include "core/placement.hpp"
#include "engine/engine.hpp"

namespace aliquot::engine {
namespace {

// Slurm answers a stranger's cancel and a stranger's update with different errors.
constexpr std::string_view kNotYours = "ESLURM_USER_ID_MISSING";

tl::unexpected<Refused> no_such_job(const std::string& id) {
  return refuse(404, "ESLURM_INVALID_JOB_ID", "there is no job " + quote(id));
}

}  // namespace

bool Engine::is_admin(const Caller& caller) const {
  return caller.uid == Uid(0) || caller.uid == owner_;
}

bool Engine::owns(const Caller& caller, const api::JobInfo& job) const {
  return is_admin(caller) || caller.uid == Uid(job.uid);
}

// `7`, `7_3` or `last`.
Answer<Engine::Named> Engine::parse_id(const Caller& caller, const std::string& id) {
  if (id == "last") {
    const auto last = require_value(store_.last_of(caller.uid));
    if (!last) return no_such_job(id);
    return Named{last->value(), std::nullopt};
  }
  const auto line = id.find('_');
  const auto number = parse_digits(std::string_view(id).substr(0, line));
  if (!number) return no_such_job(id);
  if (line == std::string::npos) return Named{*number, std::nullopt};
  const auto task = parse_digits(std::string_view(id).substr(line + 1));
  if (!task) return no_such_job(id);
  return Named{*number, task};
}

Answer<std::vector<Job*>> Engine::find_owned(const Caller& caller, const std::string& id,
                                             std::string_view denied) {
  if (const auto fine = admit(caller); !fine) return tl::make_unexpected(fine.error());
  const auto named = parse_id(caller, id);
  if (!named) return tl::make_unexpected(named.error());
  std::vector<Job*> found;
  Job* head = find(JobId(named->id));
  if (!named->task) {
    if (head != nullptr) found.push_back(head);
    // An array's id means all of it, also once the id has become its last element's.
    if (head == nullptr || head->info.array_job_id == named->id) {
      for (auto& [other, job] : jobs_) {
        if (job.info.array_job_id == named->id && &job != head) found.push_back(&job);
      }
    }
  } else {
    for (auto& [other, job] : jobs_) {
      if (job.info.array_job_id == named->id && job.info.array_task_id == *named->task) {
        found.push_back(&job);
      }
    }
    if (found.empty() && head != nullptr &&
        std::ranges::binary_search(head->waiting.tasks, *named->task)) {
      if (!owns(caller, head->info)) {
        return refuse(403, std::string(denied), fmt::format("job {} is not yours", id));
      }
      // From here on the element goes its own way.
      Job& element = split(*head, *named->task);
      save(element);
      found.push_back(&element);
    }
  }
  if (found.empty()) {
    AccountingQuery query;
    query.id = named->id;
    const auto over = require_value(store_.query(query, false));
    if (over.empty()) return no_such_job(id);
    if (!owns(caller, over.front())) {
      return refuse(403, std::string(denied), fmt::format("job {} is not yours", id));
    }
    return refuse(409, "ESLURM_ALREADY_DONE", fmt::format("job {} is over", id));
  }
  for (const Job* job : found) {
    if (!owns(caller, job->info)) {
      return refuse(403, std::string(denied), fmt::format("job {} is not yours", id));
    }
  }
  return found;
}

void Engine::cancel_one(Job& job, const Caller& caller) {
  if (job.state == core::JobState::pending) {
    job.info.cancelled_by = caller.uid.value();
    return finish(job, core::JobState::cancelled, job.info.reason);
  }
  if (job.state == core::JobState::completing && job.ending == Ending::cancel) return;
  job.info.cancelled_by = caller.uid.value();
  if (job.state == core::JobState::completing) {  // a requeue that is not wanted any more
    job.ending = Ending::cancel;
    return save(job);
  }
  end_processes(job, Ending::cancel);
}

Answer<void> Engine::cancel(const Caller& caller, const std::string& id,
                            const api::CancelSpec& spec) {
  auto jobs = find_owned(caller, id);
  if (!jobs) return tl::make_unexpected(jobs.error());
  if (spec.signal < 0 || spec.signal > 64) {
    return refuse(400, "ESLURM_INVALID_SIGNAL", "there is no such signal");
  }
  for (Job* job : *jobs) {
    if (spec.signal == 0) {
      cancel_one(*job, caller);
      continue;
    }
    if (job->state == core::JobState::pending) {
      if (jobs->size() == 1) return refuse(409, "ESLURM_JOB_PENDING", "the job has not started");
      continue;
    }
    const auto target = spec.full    ? node::Target::all
                        : spec.batch ? node::Target::batch
                                     : node::Target::steps;
    actions_.push_back([this, one = job->id(), number = spec.signal, target] {
      const Job* signalled = find(one);
      if (signalled == nullptr) return;
      if (signalled->spec.batch) {
        executor_.command(one, node::SignalCommand{number, target});
      } else {
        executor_.signal_allocation(*signalled, number);
      }
    });
  }
  return {};
}

Answer<void> Engine::top(const Caller& caller, const std::string& ids) {
  std::vector<Job*> chosen;
  for (const std::string_view id : aliquot::split(ids, ',')) {
    auto jobs = find_owned(caller, std::string(id));
    if (!jobs) return tl::make_unexpected(jobs.error());
    for (Job* job : *jobs) {
      if (job->state != core::JobState::pending) {
        return refuse(409, "ESLURM_JOB_NOT_PENDING", "the job is running");
      }
      if (job->info.uid != jobs->front()->info.uid ||
          (!chosen.empty() && job->info.uid != chosen.front()->info.uid)) {
        return refuse(403, "ESLURM_ACCESS_DENIED", "these are jobs of several users");
      }
      chosen.push_back(job);
    }
  }
  const auto lower = [&](Job& job, std::int64_t most) {
    most = std::max<std::int64_t>(most, 1);
    if (job.info.priority <= most) return;
    job.info.nice += job.info.priority - most;
    job.spec.nice = job.info.nice;
    job.info.priority = most;
    save(job);
  };
  for (std::size_t i = 1; i < chosen.size(); ++i) {
    lower(*chosen[i], chosen[i - 1]->info.priority - 1);
  }
  const Job& last = *chosen.back();
  for (auto& [id, job] : jobs_) {
    if (job.state != core::JobState::pending || job.info.uid != last.info.uid ||
        job.info.partition != last.info.partition ||
        std::ranges::find(chosen, &job) != chosen.end()) {
      continue;
    }
    lower(job, last.info.priority - 1);
  }
  schedule_needed_ = true;
  return {};
}

Answer<void> Engine::hold(const Caller& caller, const std::string& id) {
  auto jobs = find_owned(caller, id, kNotYours);
  if (!jobs) return tl::make_unexpected(jobs.error());
  bool any = false;
  for (Job* job : *jobs) {
    if (job->state != core::JobState::pending) continue;
    any = true;
    job->hold = caller.uid == Uid(job->info.uid) && !is_admin(caller) ? Hold::user : Hold::admin;
    if (auto why = not_yet(*job)) job->info.reason = *why;
    job->info.start_ms.reset();
    save(*job);
  }
  if (!any) return refuse(409, "ESLURM_JOB_NOT_PENDING", "the job is running");
  schedule_needed_ = true;
  return {};
}

Answer<void> Engine::release(const Caller& caller, const std::string& id) {
  auto jobs = find_owned(caller, id, kNotYours);
  if (!jobs) return tl::make_unexpected(jobs.error());
  for (Job* job : *jobs) {
    if (job->hold == Hold::none) continue;
    if (job->hold == Hold::admin && !is_admin(caller)) {
      return refuse(403, "ESLURM_ACCESS_DENIED", "an administrator holds the job");
    }
    job->hold = Hold::none;
    if (job->info.priority == 0)
      job->info.priority = std::max<std::int64_t>(10'000 - job->info.nice, 1);
    job->info.reason = core::reason::kNone;
    save(*job);
  }
  schedule_needed_ = true;
  return {};
}

Answer<void> Engine::requeue(const Caller& caller, const std::string& id, bool held) {
  auto jobs = find_owned(caller, id);
  if (!jobs) {
    // A job that is over can come back for as long as its script is kept.
    const auto named = parse_id(caller, id);
    if (jobs.error().error.code != "ESLURM_ALREADY_DONE" || !named) {
      return tl::make_unexpected(jobs.error());
    }
    JobId over(named->id);
    if (named->task) {
      over = require_value(store_.find_task(named->id, *named->task)).value_or(over);
    }
    Job job = require_value(store_.load(over));
    if (!job.spec.batch) return refuse(409, "ESLURM_BATCH_ONLY", "only batch jobs can be requeued");
    if (!store_.payload(job.payload)) return tl::make_unexpected(jobs.error());
    if (const auto fine = read_spec(job); !fine) return tl::make_unexpected(fine.error());
    Job& back = jobs_.emplace(over, std::move(job)).first->second;
    back_to_queue(back, held, true);
    return {};
  }
  for (Job* job : *jobs) {
    if (!job->spec.batch)
      return refuse(409, "ESLURM_BATCH_ONLY", "only batch jobs can be requeued");
    if (job->state == core::JobState::pending) {
      if (held) {
        job->hold = Hold::user;
        save(*job);
        continue;
      }
      return refuse(409, "ESLURM_JOB_PENDING", "the job has not started");
    }
    const Ending ending = held ? Ending::requeue_hold : Ending::requeue;
    if (job->state == core::JobState::completing) {
      if (job->ending == Ending::cancel) {
        return refuse(409, "ESLURM_TRANSITION_STATE_NO_UPDATE", "the job is being cancelled");
      }
      job->ending = ending;
      save(*job);
    } else {
      end_processes(*job, ending);
    }
  }
  return {};
}

Answer<void> Engine::suspend(const Caller& caller, const std::string& id) {
  auto jobs = find_owned(caller, id);
  if (!jobs) return tl::make_unexpected(jobs.error());
  for (Job* job : *jobs) {
    if (job->state == core::JobState::pending) {
      return refuse(409, "ESLURM_JOB_PENDING", "the job has not started");
    }
    if (job->state != core::JobState::running) {
      return refuse(409, "ESLURM_DISABLED", "the job is suspended or ending");
    }
    set_state(*job, core::JobState::suspended);
    job->info.suspend_ms = clock_.wall().ms();
    save(*job);
    actions_.push_back([this, one = job->id()] {
      const Job* suspended = find(one);
      if (suspended == nullptr) return;
      if (suspended->spec.batch) {
        executor_.command(one, node::SuspendCommand{});
      } else {
        executor_.freeze_allocation(*suspended, true);
      }
    });
  }
  return {};
}

Answer<void> Engine::resume(const Caller& caller, const std::string& id) {
  auto jobs = find_owned(caller, id);
  if (!jobs) return tl::make_unexpected(jobs.error());
  for (Job* job : *jobs) {
    if (job->state != core::JobState::suspended) {
      return refuse(409, "ESLURM_DISABLED", "the job is not suspended");
    }
    set_state(*job, core::JobState::running);
    const std::int64_t away =
        clock_.wall().ms() - job->info.suspend_ms.value_or(clock_.wall().ms());
    job->info.suspended_total_ms += away;
    if (job->info.end_ms) *job->info.end_ms += away;
    save(*job);
    actions_.push_back([this, one = job->id()] {
      const Job* resumed = find(one);
      if (resumed == nullptr) return;
      if (resumed->spec.batch) {
        executor_.command(one, node::ResumeCommand{});
      } else {
        executor_.freeze_allocation(*resumed, false);
      }
    });
  }
  return {};
}

Answer<void> Engine::update(const Caller& caller, const std::string& id,
                            const std::string& changes) {
  auto jobs = find_owned(caller, id, kNotYours);
  if (!jobs) return tl::make_unexpected(jobs.error());
  for (Job* job : *jobs) {
    if (job->state == core::JobState::completing) {
      return refuse(409, "ESLURM_TRANSITION_STATE_NO_UPDATE", "the job is ending");
    }
    // The rules of submission hold for the job as it will be; then some may not change any more.
    Job next = *job;
    next.spec.time_limit_ms = job->info.time_limit_ms;
    const api::JobSpec before = next.spec;
    if (const auto read = api::update_from_json(next.spec, changes); !read) {
      return refuse(400, "ESLURM_INVALID_JOB_TEXT", read.error().message);
    }
    next.spec.batch = before.batch;
    next.spec.script.clear();
    next.spec.environment.clear();
    next.spec.array = before.array;
    next.spec.limits = before.limits;
    api::JobSpec probe = next.spec;
    if (probe.batch) probe.script = "#!";
    const Caller owner{Uid(job->info.uid), caller.pid};
    auto checked = check(is_admin(caller) ? caller : owner, std::move(probe));
    if (!checked) return tl::make_unexpected(checked.error());

    if (next.spec.array_throttle && (*next.spec.array_throttle < 0 || !job->info.array_job_id)) {
      return refuse(400, "ESLURM_INVALID_ARRAY", "the job is no array, or the number is none");
    }
    const bool pending = job->state == core::JobState::pending;
    const Partition* partition = find_partition(checked->info.partition);
    if (!pending &&
        (checked->request != job->request || next.spec.dependency != before.dependency ||
         checked->info.partition != job->info.partition)) {
      return refuse(409, "ESLURM_DISABLED", "this cannot be changed while the job runs");
    }
    const auto& limit = next.spec.time_limit_ms;
    if (limit != before.time_limit_ms && !is_admin(caller)) {
      const bool longer = !limit || (before.time_limit_ms && *limit > *before.time_limit_ms);
      const bool over_partition = !partition->max_time.unlimited() &&
                                  (!limit || *limit > partition->max_time.length->value());
      if (longer && (!pending || over_partition)) {
        return refuse(403, "ESLURM_ACCESS_DENIED",
                      "only root may make a running job's time longer");
      }
    }

    job->spec = next.spec;
    (void)read_spec(*job);
    api::JobInfo& info = job->info;
    info.name = checked->info.name;
    info.comment = checked->info.comment;
    info.account = checked->info.account;
    info.qos = checked->info.qos;
    info.partition = checked->info.partition;
    info.nice = checked->info.nice;
    info.requeue = checked->info.requeue;
    info.deadline_ms = checked->info.deadline_ms;
    if (job->spec.nice != before.nice || job->spec.priority != before.priority) {
      info.priority = checked->info.priority;
    }
    if (pending) {
      info.eligible_ms = std::max(info.submit_ms, job->spec.begin_ms.value_or(0));
      info.dependency = checked->info.dependency;
      job->dependency_state = {};
      info.command = checked->info.command;
      info.work_dir = checked->info.work_dir;
      resolve_paths(*job);
    }
    if (const auto throttle = std::exchange(job->spec.array_throttle, std::nullopt);
        throttle && job->is_array()) {
      job->waiting.limit = *throttle;
      info.array_pending = core::format_array(job->waiting);
    }
    if (limit != before.time_limit_ms) {
      info.time_limit_ms = limit;
      if (!pending) {
        info.end_ms.reset();
        if (limit) info.end_ms = info.start_ms.value_or(0) + info.suspended_total_ms + *limit;
        actions_.push_back([this, one = job->id(), limit] {
          const Job* changed = find(one);
          if (changed == nullptr || !changed->spec.batch) return;
          node::LimitCommand command;
          if (limit) command.limit = Millis(*limit);
          executor_.command(one, command);
        });
      }
    }
    save(*job);
  }
  dependencies_changed_ = true;
  schedule_needed_ = true;
  return {};
}

void Engine::set_drained(std::optional<Drained> drained) {
  drained_ = std::move(drained);
  std::optional<std::string> note;
  if (drained_) note = fmt::format("{} {} {}", drained_->since_ms, drained_->uid, drained_->reason);
  require(store_.save_note(std::string(kDrainNote), note));
  schedule_needed_ = true;
}

Answer<void> Engine::drain(const Caller& caller, const std::string& reason) {
  if (!is_admin(caller)) return refuse(403, "ESLURM_ACCESS_DENIED", "only root may do this");
  if (const auto fine = check_shown(reason); !fine) return fine;
  set_drained(Drained{reason, caller.uid.value(), clock_.wall().ms()});
  return {};
}

Answer<void> Engine::undrain(const Caller& caller) {
  if (!is_admin(caller)) return refuse(403, "ESLURM_ACCESS_DENIED", "only root may do this");
  set_drained(std::nullopt);
  return {};
}

}  // namespace aliquot::engine
