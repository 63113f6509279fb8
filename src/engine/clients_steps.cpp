// How steps end: by their srun's word, by scancel, or because their srun is gone.
#include <fmt/format.h>
#include <signal.h>

#include <algorithm>
#include <utility>

#include "base/text.hpp"
#include "engine/clients.hpp"

namespace aliquot::engine {

void Clients::end_step_record(api::StepInfo& step, const api::StepEnd& end, Ending ending) const {
  const bool well = end.exit_code == 0 && end.exit_signal == 0;
  const bool cancelled =
      step.state == "CANCELLED" || (ending == Ending::cancel && end.exit_signal != 0);
  const bool late = end.timed_out || (ending == Ending::timeout && end.exit_signal != 0);
  step.end_ms = state_.clock.wall().ms();
  step.exit_code = end.exit_code;
  step.exit_signal = end.exit_signal;
  step.user_cpu_ms = end.user_cpu_ms;
  step.system_cpu_ms = end.system_cpu_ms;
  step.max_rss = end.max_rss;
  // A signal from wherever it came is a cancellation, as in Slurm.
  step.state = cancelled              ? "CANCELLED"
               : end.out_of_memory    ? "OUT_OF_MEMORY"
               : late                 ? "TIMEOUT"
               : well                 ? "COMPLETED"
               : end.exit_signal != 0 ? "CANCELLED"
                                      : "FAILED";
}

void Clients::cancel_record(api::StepInfo& step, Ending ending) {
  end_step_record(step, {}, ending);
  step.state = ending == Ending::timeout ? "TIMEOUT" : "CANCELLED";
  state_.save_step(step);
}

Answer<void> Clients::end_step(const Caller& caller, const std::string& id, std::int64_t number,
                               const api::StepEnd& end) {
  const auto jobs = TRY(names_.find_owned(caller, id)).jobs;
  Job& job = *jobs.front();
  auto& steps = steps_[job.id];
  const auto step = steps.find(number);
  if (step == steps.end()) {
    return refuse(Why::no_such_step, "there is no such step running");
  }
  end_step_record(step->second, end, job.ending);
  state_.save_step(step->second);
  steps.erase(step);
  forget_step({job.id, job.restarts, number});
  // DerivedExitCode is the highest of the steps.
  job.derived_exit = {std::max(end.exit_code, job.derived_exit.code),
                      std::max(end.exit_signal, job.derived_exit.signal)};
  state_.save(job);
  return {};
}

Answer<void> Clients::cancel_step(const Caller& caller, const std::string& id,
                                  const std::string& step, const api::CancelSpec& spec) {
  const auto jobs = TRY(names_.find_owned(caller, id)).jobs;
  if (spec.signal < 0 || spec.signal > 64) {
    return refuse(Why::bad_signal, "there is no such signal");
  }
  Job& job = *jobs.front();
  if (job.state == core::JobState::pending) {
    return refuse(Why::pending, "the job has not started");
  }
  // Slurm gives a step no time to end by itself.
  const int number = spec.signal == 0 ? SIGKILL : spec.signal;
  if (step == "batch" && job.spec.batch) {
    state_.act([this, one = job.id, number] {
      state_.executor.command(one, node::SignalCommand{number, node::Target::batch});
    });
    return {};
  }
  const auto digits = parse_digits(step);
  auto& running = steps_[job.id];
  const auto found = digits ? running.find(*digits) : running.end();
  const StepId fresh{job.id, job.restarts, digits.value_or(-1)};
  if (const auto waiting = new_steps_.find(fresh); waiting != new_steps_.end()) {
    if (spec.signal != 0) return refuse(Why::pending, "the step has not started");
    // It is told when it has been let in.
    state_.act([this, fresh] {
      if (const auto still = new_steps_.find(fresh); still != new_steps_.end())
        still->second.cancelled = true;
    });
    return {};
  }
  if (found == running.end()) {
    if (digits && *digits < next_step_[job.id]) {
      return refuse(Why::no_such_step, fmt::format("step {} of job {} is over", step, id));
    }
    return refuse(Why::no_such_job, fmt::format("job {} has no step {}", id, step));
  }
  if (spec.signal == 0) {
    found->second.state = "CANCELLED";
    state_.save_step(found->second);
  }
  state_.act([this, one = job.id, step_number = *digits, number] {
    if (const Job* signalled = state_.find(one))
      state_.executor.signal_step(*signalled, step_number, number);
  });
  return {};
}

void Clients::hang_up_step(const StepId& step) {
  state_.happened([this, step] { hung_up_step(step); });
}

void Clients::hung_up_step(const StepId& step) {
  new_steps_.erase(step);  // what was made for it is forgotten when it has come
  // A step of the same number may run in the job's next life.
  const Job* job = state_.find(step.job);
  if (job == nullptr || job->restarts != step.attempt) return;
  const auto steps = steps_.find(step.job);
  if (steps == steps_.end()) return;
  const auto left = steps->second.extract(step.step);
  if (!left) return;
  cancel_record(left.mapped(), job->ending);
  forget_step(step);
}

void Clients::forget_step(const StepId& step) {
  state_.act([this, step] {
    // Over meanwhile: its groups go with it.
    const Job* job = state_.find(step.job);
    if (job != nullptr && job->restarts == step.attempt)
      state_.executor.forget_step(*job, step.step);
  });
}

}  // namespace aliquot::engine
