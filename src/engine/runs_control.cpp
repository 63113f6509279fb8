// What users do to jobs that run: cancel, requeue, suspend, resume. What it does to a list it does
// to those that can take it, and is refused where none can.
#include <signal.h>

#include <algorithm>
#include <utility>

#include "base/text.hpp"
#include "engine/clients.hpp"
#include "engine/queue.hpp"
#include "engine/runs.hpp"

namespace aliquot::engine {

void Runs::cancel_one(Job& job, const Caller& caller) {
  if (job.state == core::JobState::pending) {
    job.cancelled_by = caller.uid;
    return finish(job.id, core::JobState::cancelled, job.reason);
  }
  if (job.state == core::JobState::completing) {
    // What ends already ends as it does, unless it was to come back.
    if (job.ending != Ending::requeue && job.ending != Ending::requeue_hold) return;
    job.cancelled_by = caller.uid;
    job.ending = Ending::cancel;
    return state_.save(job);
  }
  job.cancelled_by = caller.uid;
  end_processes(job, Ending::cancel);
}

Answer<void> Runs::cancel(const Caller& caller, const std::string& id,
                          const api::CancelSpec& spec) {
  auto found = TRY(names_.find_owned(caller, id));
  if (spec.signal < 0 || spec.signal > 64) {
    return refuse(Why::bad_signal, "there is no such signal");
  }
  // SIGKILL to the job is its end, whether or not it has begun.
  if (spec.signal == 0 || (spec.signal == SIGKILL && !spec.batch && !spec.full)) {
    names_.single_out(found);
    for (Job* job : found.jobs) cancel_one(*job, caller);
    return {};
  }
  for (const Job* job : found.jobs) {
    if (job->state == core::JobState::pending) {
      if (found.jobs.size() == 1) return refuse(Why::is_ending, "the job has not started");
      continue;
    }
    const auto target = spec.full    ? node::Target::all
                        : spec.batch ? node::Target::batch
                                     : node::Target::steps;
    state_.act([this, one = job->id, number = spec.signal, target] {
      const Job* signalled = state_.find(one);
      if (signalled == nullptr) return;
      if (signalled->spec.batch) {
        state_.executor.command(one, node::SignalCommand{number, target});
      } else {
        state_.executor.signal_allocation(*signalled, number);
      }
    });
  }
  return {};
}

// A job that is over can come back for as long as its script is kept.
Answer<void> Runs::requeue_over(const Caller& caller, const std::string& id, bool held) {
  const auto named = TRY(names_.parse_id(caller, id));
  AccountingQuery query;
  query.id = named.head.value();
  const auto found = state_.store.query(query);
  if (!found) return try_again(found.error());
  std::vector<Job> back;
  for (const api::JobInfo& over : found->jobs) {
    if (named.task && over.array_task_id != *named.task) continue;
    auto job = state_.store.load(JobId(over.id));
    if (!job && job.error().code == Error::Code::unavailable) return try_again(job.error());
    if (!job || !core::is_final(job->state) || state_.find(job->id) != nullptr) continue;
    if (!job->spec.batch) {
      return refuse(Why::batch_only, "only batch jobs can be requeued");
    }
    const auto payload = state_.store.payload(job->payload);
    if (!payload && payload.error().code == Error::Code::unavailable) {
      return try_again(payload.error());
    }
    if (!payload) {
      return refuse(Why::already_over, fmt::format("job {} is over", id));
    }
    TRY(admission_.read_spec(*job));
    back.push_back(std::move(*job));
  }
  if (back.empty()) return refuse(Why::already_over, fmt::format("job {} is over", id));
  TRY(admission_.check_queue(caller, back[0], std::ssize(back)));
  for (Job& job : back) {
    const JobId over = job.id;
    state_.act([this, over] { state_.tally->note_back(over); });
    back_to_queue(state_.jobs.emplace(over, std::move(job)).first->second, held, true);
  }
  return {};
}

Answer<void> Runs::requeue(const Caller& caller, const std::string& id, bool held) {
  auto named = names_.find_owned(caller, id);
  if (!named && named.error().why == Why::already_over) return requeue_over(caller, id, held);
  Lookup::Found found = TRY(std::move(named));
  auto refused = refuse(Why::pending, "the job has not started");
  if (std::ranges::any_of(found.jobs, [](const Job* job) { return !job->spec.batch; })) {
    return refuse(Why::batch_only, "only batch jobs can be requeued");
  }
  if (std::ranges::any_of(found.jobs, [](const Job* job) { return !job->spec.requeue; })) {
    return refuse(Why::not_now, "the job was submitted with --no-requeue");
  }
  if (held) names_.single_out(found);
  bool any = false;
  for (Job* job : found.jobs) {
    if (job->state == core::JobState::pending && !held) continue;
    if (job->ending == Ending::cancel) {
      refused = refuse(Why::is_ending, "the job is being cancelled");
      continue;
    }
    any = true;
    if (job->state == core::JobState::pending) {
      queue_.hold_one(*job, Hold::user);
      continue;
    }
    const Ending ending = held ? Ending::requeue_hold : Ending::requeue;
    if (job->state == core::JobState::completing) {
      job->ending = ending;
      state_.save(*job);
    } else {
      end_processes(*job, ending);
    }
  }
  if (!any) return refused;
  return {};
}

Answer<void> Runs::suspend(const Caller& caller, const std::string& id) {
  const auto jobs = TRY(names_.find_owned(caller, id)).jobs;
  auto refused = refuse(Why::pending, "the job has not started");
  bool any = false;
  for (Job* job : jobs) {
    if (job->state == core::JobState::pending) continue;
    if (job->state == core::JobState::suspended) any = true;
    if (job->state != core::JobState::running) {
      refused = refuse(Why::not_now, "the job is ending");
      continue;
    }
    any = true;
    job->run_time.before = state_.ran(*job);
    job->run_time.since = state_.clock.mono();
    state_.set_state(*job, core::JobState::suspended);
    job->suspended = state_.clock.wall();
    state_.save(*job);
    state_.require(state_.store.save_run(job->id, job->run_time));
    act_frozen(*job);
  }
  if (!any) return refused;
  return {};
}

Answer<void> Runs::resume(const Caller& caller, const std::string& id) {
  const auto jobs = TRY(names_.find_owned(caller, id)).jobs;
  bool any = false;
  bool waits = false;
  for (Job* job : jobs) {
    waits = waits || job->state == core::JobState::pending;
    if (job->state != core::JobState::suspended) continue;
    any = true;
    count_suspension(*job);
    state_.set_state(*job, core::JobState::running);
    if (const auto left = state_.time_left(*job)) job->end = state_.clock.wall() + *left;
    state_.save(*job);
    clients_.resumed(job->id);
    act_frozen(*job);
  }
  if (!any && waits) return refuse(Why::pending, "the job has not started");
  if (!any) return refuse(Why::not_suspended, "the job is not suspended");
  return {};
}

Answer<void> Runs::list_processes(const Caller& caller, const std::string& id,
                                  const Executor::TellProcesses& tell) {
  const auto jobs = TRY(names_.find_owned(caller, id)).jobs;
  if (jobs.size() != 1 || !core::is_active(jobs.front()->state)) {
    return refuse(Why::pending, "the job does not run");
  }
  std::vector<api::StepInfo> steps;
  clients_.add_steps(jobs.front()->id, steps);
  std::vector<std::int64_t> numbers;
  for (const api::StepInfo& step : steps) {
    if (const auto number = parse_digits(step.id)) numbers.push_back(*number);
  }
  state_.executor.list_processes(*jobs.front(), numbers, tell);
  return {};
}

// Its processes stand still while it is suspended, and go on afterwards.
void Runs::act_frozen(const Job& job) {
  state_.act([this, id = job.id, frozen = job.state == core::JobState::suspended] {
    const Job* one = state_.find(id);
    if (one == nullptr) return;
    if (!one->spec.batch) return state_.executor.freeze_allocation(*one, frozen);
    state_.executor.command(id,
                            frozen ? node::Command(node::SuspendCommand{}) : node::ResumeCommand{});
  });
}

}  // namespace aliquot::engine
