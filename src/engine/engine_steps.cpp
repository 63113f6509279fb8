// What clients run themselves: steps, and interactive jobs, which live with their connection.
#include <signal.h>

#include <algorithm>

#include "base/text.hpp"
#include "core/request_parse.hpp"
#include "engine/engine.hpp"

namespace aliquot::engine {
namespace {

constexpr std::size_t kMostOpenSteps = 1'000;

}  // namespace

void Engine::end_step_record(api::StepInfo& step, const api::StepEnd& end) const {
  const bool cancelled = step.state == "CANCELLED";
  step.end_ms = clock_.wall().ms();
  step.exit_code = end.exit_code;
  step.exit_signal = end.exit_signal;
  step.user_cpu_ms = end.user_cpu_ms;
  step.system_cpu_ms = end.system_cpu_ms;
  step.max_rss = end.max_rss;
  step.state = cancelled                                    ? "CANCELLED"
               : end.exit_code == 0 && end.exit_signal == 0 ? "COMPLETED"
                                                            : "FAILED";
}

// Taken in the job's order, and those of other steps that asked for theirs left alone.
Answer<Engine::StepGpus> Engine::choose_gpus(const Job& job, const api::StepSpec& spec) const {
  if (!spec.gres && !spec.gpus && !spec.gpus_per_node && !spec.gpus_per_task) return StepGpus();
  const auto request = core::parse_gpu_options({.gres = spec.gres,
                                                .gpus = spec.gpus,
                                                .gpus_per_node = spec.gpus_per_node,
                                                .gpus_per_task = spec.gpus_per_task,
                                                .tasks = spec.ntasks});
  if (!request) return refuse(400, "ESLURM_INVALID_GRES", request.error().message);
  std::vector<api::GpuHold> chosen;
  if (!*request) return StepGpus(chosen);
  const auto& wanted = **request;
  std::int64_t fitting = 0;
  for (const api::GpuHold& gpu : job.info.gpus) {
    if (!wanted.models.empty() &&
        std::ranges::find(wanted.models, to_lower(gpu.model)) == wanted.models.end()) {
      continue;
    }
    ++fitting;
    const auto steps = steps_.find(job.id());
    const bool taken = !spec.overlap && steps != steps_.end() &&
                       std::ranges::any_of(steps->second, [&](const auto& step) {
                         const auto& theirs = step.second.gpus;
                         return std::ranges::find(theirs, gpu.uuid) != theirs.end();
                       });
    if (!taken && std::ssize(chosen) < wanted.count) chosen.push_back(gpu);
  }
  if (fitting < wanted.count) {
    return refuse(
        400, "ESLURM_INVALID_GRES",
        fmt::format("the step wants {} GPUs, the job has {} of them", wanted.count, fitting));
  }
  if (std::ssize(chosen) < wanted.count) {
    return refuse(409, "ESLURM_NODES_BUSY", "other steps have the job's GPUs");
  }
  return StepGpus(std::move(chosen));
}

Answer<api::Allocation> Engine::begin_step(const Caller& caller, const std::string& id,
                                           const api::StepSpec& spec) {
  auto jobs = find_owned(caller, id);
  if (!jobs) return tl::make_unexpected(jobs.error());
  Job& job = *jobs->front();
  if (job.state == core::JobState::pending) {
    return refuse(409, "ESLURM_JOB_PENDING", "the job has not started");
  }
  if (job.state != core::JobState::running) {
    return refuse(409, "ESLURM_ALREADY_DONE", "the job is ending");
  }
  if (spec.ntasks < 1 || spec.ntasks > 100'000 || spec.cpus_per_task < 1 ||
      spec.cpus_per_task > 100'000) {
    return refuse(400, "ESLURM_BAD_TASK_COUNT", "the number of tasks is out of range");
  }
  if (!spec.overlap && spec.cpus_per_task * spec.ntasks > job.info.cpus) {
    return refuse(400, "ESLURM_TOO_MANY_REQUESTED_CPUS",
                  fmt::format("the step wants {} CPUs, the job has {}",
                              spec.cpus_per_task * spec.ntasks, job.info.cpus));
  }
  if (next_step_[job.id()] >= settings_.limits.steps) {
    return refuse(403, "ESLURM_STEP_LIMIT",
                  fmt::format("the job has had {} steps, as many as limits.max_step_count allows",
                              settings_.limits.steps));
  }
  // srun waits then: each has control groups, of which a kernel has only so many.
  if (const auto open = steps_.find(job.id());
      open != steps_.end() && open->second.size() >= kMostOpenSteps) {
    return refuse(409, "ESLURM_NODES_BUSY",
                  fmt::format("the job has {} steps that run, which is as many as can be at once",
                              open->second.size()));
  }
  if (const auto fine = check_shown(spec.name); !fine) return tl::make_unexpected(fine.error());
  const auto gpus = choose_gpus(job, spec);
  if (!gpus) return tl::make_unexpected(gpus.error());
  const std::int64_t number = next_step_[job.id()]++;
  const StepOrder order{job.info, job.spec, job.mark, number, spec, caller.pid, caller.uid, *gpus};
  auto environment = executor_.admit_step(order);
  if (!environment) return refuse(500, "ESLURM_JOB_LAUNCH", environment.error().message);
  api::StepInfo step{.job_id = job.info.id,
                     .id = std::to_string(number),
                     .name = spec.name,
                     .state = "RUNNING",
                     .start_ms = clock_.wall().ms(),
                     .end_ms = std::nullopt,
                     .ntasks = spec.ntasks,
                     .cpus = spec.ntasks * spec.cpus_per_task};
  if (*gpus) {
    for (const api::GpuHold& gpu : **gpus) step.gpus.push_back(gpu.uuid);
  }
  save_step(step);
  steps_[job.id()][number] = std::move(step);
  return api::Allocation{job.info.id, number, *environment, job.info};
}

Answer<void> Engine::end_step(const Caller& caller, const std::string& id, std::int64_t number,
                              const api::StepEnd& end) {
  auto jobs = find_owned(caller, id);
  if (!jobs) return tl::make_unexpected(jobs.error());
  Job& job = *jobs->front();
  auto& steps = steps_[job.id()];
  const auto step = steps.find(number);
  if (step == steps.end()) {
    return refuse(404, "ESLURM_ALREADY_DONE", "there is no such step running");
  }
  end_step_record(step->second, end);
  save_step(step->second);
  steps.erase(step);
  forget_step(job.id(), job.info.restarts, number);
  // DerivedExitCode is the highest of the steps.
  if (end.exit_code > job.info.derived_exit_code) job.info.derived_exit_code = end.exit_code;
  if (end.exit_signal > job.info.derived_exit_signal)
    job.info.derived_exit_signal = end.exit_signal;
  save(job);
  return {};
}

Answer<void> Engine::cancel_step(const Caller& caller, const std::string& id,
                                 const std::string& step, const api::CancelSpec& spec) {
  auto jobs = find_owned(caller, id);
  if (!jobs) return tl::make_unexpected(jobs.error());
  if (spec.signal < 0 || spec.signal > 64) {
    return refuse(400, "ESLURM_INVALID_SIGNAL", "there is no such signal");
  }
  Job& job = *jobs->front();
  if (job.state == core::JobState::pending) {
    return refuse(409, "ESLURM_JOB_PENDING", "the job has not started");
  }
  // Slurm gives a step no time to end by itself.
  const int number = spec.signal == 0 ? SIGKILL : spec.signal;
  if (step == "batch" && job.spec.batch) {
    actions_.push_back([this, one = job.id(), number] {
      executor_.command(one, node::SignalCommand{number, node::Target::batch});
    });
    return {};
  }
  const auto digits = parse_digits(step);
  auto& running = steps_[job.id()];
  const auto found = digits ? running.find(*digits) : running.end();
  if (found == running.end()) {
    if (digits && *digits < next_step_[job.id()]) {
      return refuse(404, "ESLURM_ALREADY_DONE", fmt::format("step {} of job {} is over", step, id));
    }
    return refuse(404, "ESLURM_INVALID_JOB_ID", fmt::format("job {} has no step {}", id, step));
  }
  if (spec.signal == 0) {
    found->second.state = "CANCELLED";
    save_step(found->second);
  }
  actions_.push_back([this, one = job.id(), step_number = *digits, number] {
    if (const Job* signalled = find(one)) executor_.signal_step(*signalled, step_number, number);
  });
  return {};
}

Answer<void> Engine::end_allocation(const Caller& caller, const std::string& id,
                                    const api::StepEnd& end) {
  auto jobs = find_owned(caller, id);
  if (!jobs) return tl::make_unexpected(jobs.error());
  const auto client = clients_.find(jobs->front()->id());
  if (client == clients_.end()) {
    return refuse(409, "ESLURM_ALREADY_DONE", "this is no interactive job");
  }
  client->second.end = end;
  // Its word counts, not the connection: copies of that may live on in what the client started.
  hang_up(client->first);
  return {};
}

Answer<JobId> Engine::attach(const Caller& caller, const std::string& id) {
  auto jobs = find_owned(caller, id);
  if (!jobs) return tl::make_unexpected(jobs.error());
  const Job& job = *jobs->front();
  const auto client = clients_.find(job.id());
  if (client == clients_.end() || client->second.attached) {
    return refuse(409, "ESLURM_ALREADY_DONE", "there is nothing to attach to");
  }
  client->second.attached = true;
  client->second.reattach_by.reset();
  client->second.pid = caller.pid;
  return job.id();
}

void Engine::hang_up(JobId id) {
  happened([this, id] { hung_up(id); });
}

void Engine::hang_up_step(JobId id, std::int64_t attempt, std::int64_t number) {
  happened([this, id, attempt, number] { hung_up_step(id, attempt, number); });
}

void Engine::hung_up(JobId id) {
  Job* job = find(id);
  const auto client = clients_.find(id);
  if (job == nullptr || client == clients_.end()) return;
  client->second.attached = false;
  client->second.reattach_by.reset();
  if (job->state == core::JobState::pending) {
    job->info.cancelled_by = job->info.uid;
    return finish(*job, core::JobState::cancelled, job->info.reason);
  }
  if (job->state == core::JobState::completing || job->spec.detached) return;
  end_processes(*job, Ending::none);
}

void Engine::hung_up_step(JobId id, std::int64_t attempt, std::int64_t number) {
  // A step of the same number may run in the job's next life.
  const Job* job = find(id);
  if (job == nullptr || job->info.restarts != attempt) return;
  const auto job_steps = steps_.find(id);
  if (job_steps == steps_.end()) return;
  const auto step = job_steps->second.find(number);
  if (step == job_steps->second.end()) return;
  end_step_record(step->second, {});
  step->second.state = "CANCELLED";
  save_step(step->second);
  job_steps->second.erase(step);
  forget_step(id, attempt, number);
}

void Engine::forget_step(JobId id, std::int64_t attempt, std::int64_t number) {
  actions_.push_back([this, id, attempt, number] {
    // Over meanwhile: its groups go with it.
    const Job* job = find(id);
    if (job != nullptr && job->info.restarts == attempt) executor_.forget_step(*job, number);
  });
}

}  // namespace aliquot::engine
