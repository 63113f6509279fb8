// What users do to their jobs: cancel, hold, release, requeue, suspend. What it does to a list it
// does to those that can take it, and is refused where none can.
#include <algorithm>
#include <utility>

#include "base/text.hpp"
#include "core/placement.hpp"
#include "engine/engine.hpp"

namespace aliquot::engine {

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

// What an administrator holds only an administrator lets go: a user's hold on top changes nothing.
void Engine::hold_one(Job& job, Hold hold) {
  if (job.hold != Hold::admin) job.hold = hold;
  if (const auto why = not_yet(job)) job.info.reason = *why;
  job.info.start_ms.reset();
  save(job);
}

Answer<void> Engine::hold(const Caller& caller, const std::string& id) {
  auto jobs = find_owned(caller, id, kNotYours);
  if (!jobs) return tl::make_unexpected(jobs.error());
  bool any = false;
  for (Job* job : *jobs) {
    if (job->state != core::JobState::pending) continue;
    any = true;
    hold_one(*job, is_admin(caller) ? Hold::admin : Hold::user);
  }
  if (!any) return refuse(409, "ESLURM_JOB_NOT_PENDING", "the job is running");
  schedule_needed_ = true;
  return {};
}

Answer<void> Engine::release(const Caller& caller, const std::string& id) {
  auto jobs = find_owned(caller, id, kNotYours);
  if (!jobs) return tl::make_unexpected(jobs.error());
  if (!is_admin(caller) &&
      std::ranges::any_of(*jobs, [](const Job* job) { return job->hold == Hold::admin; })) {
    return refuse(403, "ESLURM_ACCESS_DENIED", "an administrator holds the job");
  }
  for (Job* job : *jobs) {
    if (job->hold == Hold::none) continue;
    job->hold = Hold::none;
    if (job->info.priority == 0)
      job->info.priority = std::max<std::int64_t>(10'000 - job->info.nice, 1);
    job->info.reason = core::reason::kNone;
    save(*job);
  }
  schedule_needed_ = true;
  return {};
}

// A job that is over can come back for as long as its script is kept.
Answer<void> Engine::requeue_over(const Caller& caller, const std::string& id, bool held) {
  const auto named = parse_id(caller, id);
  if (!named) return tl::make_unexpected(named.error());
  AccountingQuery query;
  query.id = named->head.value();
  const auto found = store_.query(query);
  if (!found) return try_again(found.error());
  std::vector<Job> back;
  for (const api::JobInfo& over : found->jobs) {
    if (named->task && over.array_task_id != *named->task) continue;
    auto job = store_.load(JobId(over.id));
    if (!job && job.error().code == Error::Code::unavailable) return try_again(job.error());
    if (!job || !core::is_final(job->state) || find(job->id()) != nullptr) continue;
    if (!job->spec.batch) {
      return refuse(409, "ESLURM_BATCH_ONLY", "only batch jobs can be requeued");
    }
    const auto payload = store_.payload(job->payload);
    if (!payload && payload.error().code == Error::Code::unavailable) {
      return try_again(payload.error());
    }
    if (!payload) {
      return refuse(409, "ESLURM_ALREADY_DONE", fmt::format("job {} is over", id));
    }
    if (const auto fine = read_spec(*job); !fine) return tl::make_unexpected(fine.error());
    back.push_back(std::move(*job));
  }
  if (back.empty()) return refuse(409, "ESLURM_ALREADY_DONE", fmt::format("job {} is over", id));
  if (const auto room = check_queue(caller, back[0], std::ssize(back)); !room) return room;
  for (Job& job : back) {
    const JobId over = job.id();
    back_to_queue(jobs_.emplace(over, std::move(job)).first->second, held, true);
  }
  return {};
}

Answer<void> Engine::requeue(const Caller& caller, const std::string& id, bool held) {
  auto jobs = find_owned(caller, id);
  if (!jobs) {
    if (jobs.error().error.code == "ESLURM_ALREADY_DONE") return requeue_over(caller, id, held);
    return tl::make_unexpected(jobs.error());
  }
  auto refused = refuse(409, "ESLURM_JOB_PENDING", "the job has not started");
  bool any = false;
  for (Job* job : *jobs) {
    if (!job->spec.batch) {
      return refuse(409, "ESLURM_BATCH_ONLY", "only batch jobs can be requeued");
    }
    if (job->state == core::JobState::pending && !held) continue;
    if (job->ending == Ending::cancel) {
      refused = refuse(409, "ESLURM_TRANSITION_STATE_NO_UPDATE", "the job is being cancelled");
      continue;
    }
    any = true;
    if (job->state == core::JobState::pending) {
      hold_one(*job, Hold::user);
      continue;
    }
    const Ending ending = held ? Ending::requeue_hold : Ending::requeue;
    if (job->state == core::JobState::completing) {
      job->ending = ending;
      save(*job);
    } else {
      end_processes(*job, ending);
    }
  }
  if (!any) return refused;
  return {};
}

Answer<void> Engine::suspend(const Caller& caller, const std::string& id) {
  auto jobs = find_owned(caller, id);
  if (!jobs) return tl::make_unexpected(jobs.error());
  auto refused = refuse(409, "ESLURM_JOB_PENDING", "the job has not started");
  bool any = false;
  for (Job* job : *jobs) {
    if (job->state == core::JobState::pending) continue;
    if (job->state != core::JobState::running) {
      refused = refuse(409, "ESLURM_DISABLED", "the job is suspended or ending");
      continue;
    }
    any = true;
    job->run_time.before = ran(*job);
    job->run_time.since = clock_.mono();
    set_state(*job, core::JobState::suspended);
    job->info.suspend_ms = clock_.wall().ms();
    save(*job);
    require(store_.save_run(job->id(), job->run_time));
    act_frozen(*job);
  }
  if (!any) return refused;
  return {};
}

Answer<void> Engine::resume(const Caller& caller, const std::string& id) {
  auto jobs = find_owned(caller, id);
  if (!jobs) return tl::make_unexpected(jobs.error());
  bool any = false;
  for (Job* job : *jobs) {
    if (job->state != core::JobState::suspended) continue;
    any = true;
    set_state(*job, core::JobState::running);
    job->info.suspended_total_ms += (clock_.mono() - job->run_time.since).value();
    job->run_time.since = clock_.mono();
    if (const auto left = time_left(*job)) job->info.end_ms = (clock_.wall() + *left).ms();
    save(*job);
    require(store_.save_run(job->id(), job->run_time));
    if (const auto client = clients_.find(job->id());
        client != clients_.end() && client->second.reattach_by) {
      client->second.reattach_by = clock_.mono() + kReattach;
    }
    act_frozen(*job);
  }
  if (!any) return refuse(409, "ESLURM_DISABLED", "the job is not suspended");
  return {};
}

// Its processes stand still while it is suspended, and go on afterwards.
void Engine::act_frozen(const Job& job) {
  actions_.push_back([this, id = job.id(), frozen = job.state == core::JobState::suspended] {
    const Job* one = find(id);
    if (one == nullptr) return;
    if (!one->spec.batch) return executor_.freeze_allocation(*one, frozen);
    executor_.command(id, frozen ? node::Command(node::SuspendCommand{}) : node::ResumeCommand{});
  });
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
