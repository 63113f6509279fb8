#include "engine/clients.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <utility>

#include "base/text.hpp"
#include "core/placement.hpp"
#include "core/request_parse.hpp"
#include "engine/job_info.hpp"
#include "engine/queue.hpp"
#include "engine/runs.hpp"

namespace aliquot::engine {
namespace {

constexpr std::size_t kMostOpenSteps = 1'000;

Refused ended_before_start() {
  return {Why::ended_before_start, "the job was ended before it could start"};
}

}  // namespace

Answer<JobId> Clients::allocate(const Caller& caller, api::JobSpec spec, Granted granted) {
  spec.batch = false;
  Job job = TRY(admission_.check(caller, std::move(spec)));
  TRY(admission_.check_queue(caller, job, elements(job)));
  if (job.spec.immediate && job.spec.immediate_s <= 1 &&
      !core::place_by_scan(state_.ledger.cluster(), job.shape, *state_.policy)) {
    return refuse(Why::busy, "there is no room now");
  }
  Job& added = queue_.add(std::move(job));
  Client& client = clients_[added.id];
  client = {.granted = std::move(granted), .pid = caller.pid, .attached = true};
  if (added.spec.immediate) {
    client.start_by =
        state_.clock.mono() + seconds(std::max<std::int64_t>(added.spec.immediate_s, 1));
  }
  return added.id;
}

Answer<void> Clients::end_allocation(const Caller& caller, const std::string& id,
                                     const api::StepEnd& end) {
  const auto jobs = TRY(names_.find_owned(caller, id)).jobs;
  const auto client = clients_.find(jobs.front()->id);
  if (client == clients_.end()) {
    return refuse(Why::already_over, "this is no interactive job");
  }
  client->second.end = end;
  tell_client(client->first, caller.pid);
  // Its word counts, not the connection: copies of that may live on in what the client started.
  hang_up(client->first);
  return {};
}

Answer<JobId> Clients::attach(const Caller& caller, const std::string& id) {
  const auto jobs = TRY(names_.find_owned(caller, id)).jobs;
  const Job& job = *jobs.front();
  const auto client = clients_.find(job.id);
  if (client == clients_.end() || client->second.attached) {
    return refuse(Why::already_over, "there is nothing to attach to");
  }
  client->second.attached = true;
  client->second.reattach_by.reset();
  client->second.pid = caller.pid;
  tell_client(job.id, caller.pid);
  return job.id;
}

// After a restart the machine does not know who the client is, and would end it with the job.
void Clients::tell_client(JobId id, Pid client) {
  state_.act([this, id, client] {
    if (const Job* job = state_.find(id)) state_.executor.attach(*job, client);
  });
}

void Clients::hang_up(JobId id) {
  state_.happened([this, id] { hung_up(id); });
}

void Clients::hung_up(JobId id) {
  Job* job = state_.find(id);
  const auto client = clients_.find(id);
  if (job == nullptr || client == clients_.end()) return;
  client->second.attached = false;
  client->second.reattach_by.reset();
  if (job->state == core::JobState::pending) {
    job->cancelled_by = job->owner.uid;
    return runs_.finish(id, core::JobState::cancelled, job->reason);
  }
  if (job->state == core::JobState::completing || job->spec.detached) return;
  runs_.end_processes(*job, Ending::none);
}

std::optional<Pid> Clients::client_of(JobId job) const {
  const auto client = clients_.find(job);
  return client == clients_.end() ? std::nullopt : std::optional(client->second.pid);
}

bool Clients::is_attached(JobId job) const {
  const auto client = clients_.find(job);
  return client != clients_.end() && client->second.attached;
}

void Clients::admitted(JobId id, std::int64_t attempt, const Environment& added) {
  const Job* job = state_.find_active(id, attempt);
  if (job == nullptr) return;
  // It sits in the job's group and waits for us: it is told at once, else it holds the end up.
  if (job->state == core::JobState::completing) return refuse_client(id, ended_before_start());
  state_.act([this, id, added, info = to_info(*job)] {
    const auto client = clients_.find(id);
    if (client == clients_.end()) return;
    const Granted granted = std::exchange(client->second.granted, nullptr);
    if (granted) granted(api::Allocation{id.value(), std::nullopt, added, info});
  });
}

std::optional<ExitStatus> Clients::exit_of(const Job& job) const {
  const auto client = clients_.find(job.id);
  if (client == clients_.end()) return std::nullopt;
  const auto& end = client->second.end;
  return end ? ExitStatus{end->exit_code, end->exit_signal} : job.derived_exit;
}

bool Clients::ran_out_of_memory(JobId job) const {
  const auto client = clients_.find(job);
  return client != clients_.end() && client->second.end && client->second.end->out_of_memory;
}

void Clients::refuse_client(JobId id, Refused refused) {
  state_.act([this, id, refused = std::move(refused)] {
    const auto client = clients_.find(id);
    if (client == clients_.end()) return;
    if (const Granted granted = std::exchange(client->second.granted, nullptr)) {
      granted(tl::make_unexpected(refused));
    }
  });
}

void Clients::resumed(JobId job) {
  const auto client = clients_.find(job);
  if (client == clients_.end() || !client->second.reattach_by) return;
  client->second.reattach_by = state_.clock.mono() + kReattach;
}

void Clients::requeued(JobId job) {
  steps_.erase(job);
  next_step_.erase(job);
  refuse_steps(job);
}

void Clients::over(JobId job) {
  const bool late = state_.jobs.at(job).state == core::JobState::timeout;
  for (auto& [number, step] : std::exchange(steps_[job], {})) {
    cancel_record(step, late ? Ending::timeout : Ending::cancel);
  }
  requeued(job);
  refuse_client(job, ended_before_start());
  state_.act([this, job] { clients_.erase(job); });
}

Result<void> Clients::take_up(const Job& job) {
  for (api::StepInfo& step : TRY(state_.store.steps(job.id))) {
    const auto number = parse_digits(step.id);
    if (!number) continue;  // the batch script's
    next_step_[job.id] = std::max(next_step_[job.id], *number + 1);
    if (step.end_ms) continue;
    steps_[job.id][*number] = std::move(step);
    state_.executor.adopt_step(job, *number);
  }
  return {};
}

void Clients::expect_back(const Job& job) {
  Client& client = clients_[job.id];
  if (!job.spec.detached) client.reattach_by = state_.clock.mono() + kReattach;
}

void Clients::roll_back(JobId job) { steps_.erase(job); }

void Clients::roll_back_done(JobId job) {
  const auto client = clients_.find(job);
  if (client == clients_.end() || state_.find(job) != nullptr) return;
  // It asked for a job that never came to be.
  if (const Granted granted = client->second.granted) granted(try_again(*state_.trouble));
  clients_.erase(client);
}

void Clients::enforce_times() {
  const MonoTime now = state_.clock.mono();
  std::vector<JobId> over;
  std::vector<JobId> gone;
  std::vector<JobId> late;
  for (const auto& [id, client] : clients_) {
    const Job* job = state_.find(id);
    if (job == nullptr) continue;
    if (job->state == core::JobState::pending && client.start_by && *client.start_by <= now) {
      late.push_back(id);
    }
    // Frozen with its job a client cannot come back.
    if (job->state != core::JobState::running) continue;
    const auto left = state_.time_left(*job);
    if (left && *left <= Millis(0)) {
      over.push_back(id);
    } else if (client.reattach_by && *client.reattach_by <= now) {
      gone.push_back(id);
    }
  }
  for (const JobId id : over) runs_.end_processes(state_.jobs.at(id), Ending::timeout);
  for (const JobId id : gone) hung_up(id);
  for (const JobId id : late) {
    refuse_client(id, {Why::busy, "there was no room in time"});
    runs_.finish(id, core::JobState::cancelled, Reason::none);
  }
}

std::optional<WallTime> Clients::due(const Job& job) const {
  const auto client = clients_.find(job.id);
  std::optional<Millis> wait;
  const auto in = [&](const std::optional<Millis>& left) {
    if (left && (!wait || *left < *wait)) wait = left;
  };
  const auto until = [&](const std::optional<MonoTime>& time) {
    if (time) in(*time - state_.clock.mono());
  };
  if (job.state == core::JobState::pending) {
    if (client != clients_.end()) until(client->second.start_by);
  } else if (!job.spec.batch && job.state == core::JobState::running) {
    in(state_.time_left(job));
    if (client != clients_.end()) until(client->second.reattach_by);
  }
  return wait ? std::optional(state_.clock.wall() + *wait) : std::nullopt;
}

void Clients::add_steps(JobId job, std::vector<api::StepInfo>& to) const {
  const auto steps = steps_.find(job);
  if (steps == steps_.end()) return;
  for (const auto& [number, step] : steps->second) to.push_back(step);
}

std::vector<const api::StepInfo*> Clients::open_steps(JobId job) const {
  std::vector<const api::StepInfo*> open;
  if (const auto steps = steps_.find(job); steps != steps_.end()) {
    for (const auto& [number, step] : steps->second) open.push_back(&step);
  }
  for (const auto& [id, fresh] : new_steps_) {
    if (id.job == job) open.push_back(&fresh.info);
  }
  return open;
}

// Taken in the job's order, and those of other steps that asked for theirs left alone.
Answer<Clients::StepGpus> Clients::choose_gpus(const Job& job, const api::StepSpec& spec) const {
  if (!spec.gres && !spec.gpus && !spec.gpus_per_node && !spec.gpus_per_task) return StepGpus();
  const auto request = core::parse_gpu_options({.gres = spec.gres,
                                                .gpus = spec.gpus,
                                                .gpus_per_node = spec.gpus_per_node,
                                                .gpus_per_task = spec.gpus_per_task,
                                                .tasks = spec.ntasks});
  if (!request) return refuse(Why::bad_gpus, request.error().message);
  std::vector<HeldGpu> chosen;
  if (!*request) return StepGpus(chosen);
  const auto& wanted = **request;
  std::set<std::string> others;
  for (const api::StepInfo* step : open_steps(job.id)) {
    others.insert(step->gpus.begin(), step->gpus.end());
  }
  std::int64_t fitting = 0;
  for (const HeldGpu& gpu : job.gpus) {
    if (!wanted.models.empty() &&
        std::ranges::find(wanted.models, to_lower(gpu.model)) == wanted.models.end()) {
      continue;
    }
    ++fitting;
    const bool taken = !spec.overlap && others.contains(gpu.granted.gpu.value());
    if (!taken && std::ssize(chosen) < wanted.count) chosen.push_back(gpu);
  }
  if (fitting < wanted.count) {
    return refuse(Why::bad_gpus, fmt::format("the step wants {} GPUs, the job has {} of them",
                                             wanted.count, fitting));
  }
  if (std::ssize(chosen) < wanted.count) {
    return refuse(Why::busy, "other steps have the job's GPUs");
  }
  return StepGpus(std::move(chosen));
}

Answer<StepId> Clients::begin_step(const Caller& caller, const std::string& id,
                                   const api::StepSpec& spec, Granted granted) {
  const auto jobs = TRY(names_.find_owned(caller, id)).jobs;
  Job& job = *jobs.front();
  if (job.state == core::JobState::pending) {
    return refuse(Why::pending, "the job has not started");
  }
  // srun waits then.
  if (job.state == core::JobState::suspended) return refuse(Why::busy, "the job is suspended");
  if (job.state != core::JobState::running) {
    return refuse(Why::already_over, "the job is ending");
  }
  if (spec.ntasks < 1 || spec.ntasks > 100'000 || spec.cpus_per_task < 1 ||
      spec.cpus_per_task > 100'000) {
    return refuse(Why::bad_task_count, "the number of tasks is out of range");
  }
  const std::int64_t cpus = spec.cpus_per_task * (spec.overcommit ? 1 : spec.ntasks);
  if (!spec.overlap && kOneCpu * cpus > job.cpus) {
    return refuse(Why::too_many_cpus,
                  fmt::format("the step wants {} CPUs, the job has {}", cpus, job.cpus / kOneCpu));
  }
  if (next_step_[job.id] >= state_.settings.limits.steps) {
    return refuse(Why::too_many_steps,
                  fmt::format("the job has had {} steps, as many as limits.max_step_count allows",
                              state_.settings.limits.steps));
  }
  // srun waits then: each has control groups, of which a kernel has only so many.
  if (const auto open = open_steps(job.id).size(); open >= kMostOpenSteps) {
    return refuse(
        Why::busy,
        fmt::format("the job has {} steps that run, which is as many as can be at once", open));
  }
  TRY(check_shown(spec.name));
  const StepGpus gpus = TRY(choose_gpus(job, spec));
  const std::int64_t number = next_step_[job.id]++;
  const StepId step{job.id, job.restarts, number};
  NewStep& fresh = new_steps_[step];
  fresh.granted = std::move(granted);
  fresh.info = {.job_id = job.id.value(),
                .id = std::to_string(number),
                .name = spec.name,
                .state = "RUNNING",
                .start_ms = state_.clock.wall().ms(),
                .end_ms = std::nullopt,
                .ntasks = spec.ntasks,
                .cpus = cpus};
  if (gpus) {
    for (const HeldGpu& gpu : *gpus) fresh.info.gpus.push_back(gpu.granted.gpu.value());
  }
  state_.after_commit(
      [this, step, order = StepOrder{job, number, spec, caller.pid, caller.uid, gpus}] {
        if (state_.find_active(step.job, step.attempt) != nullptr)
          state_.executor.start_step(order);
      },
      [this, step] { refuse_step(step, try_again(*state_.trouble).value()); });
  return step;
}

void Clients::step_admitted(const StepId& step, const Result<Environment>& added) {
  const auto fresh = new_steps_.find(step);
  const Job* job = state_.find_active(step.job, step.attempt);
  if (fresh == new_steps_.end() || job == nullptr) return forget_step(step);
  if (!added) {
    forget_step(step);  // its group may have been made
    return state_.act([this, step, why = added.error().message] {
      refuse_step(step, {Why::launch_failed, why});
    });
  }
  // The job's processes have been asked to end: this one came too late to be asked.
  if (job->state == core::JobState::completing || fresh->second.cancelled) {
    forget_step(step);
    return state_.act([this, step] {
      refuse_step(step, {Why::already_over, "the step was ended before it could start"});
    });
  }
  steps_[step.job][step.step] = fresh->second.info;
  state_.save_step(fresh->second.info);
  state_.act([this, step, environment = *added, info = to_info(*job)] {
    const auto begun = new_steps_.extract(step);
    if (!begun) return;
    begun.mapped().granted(api::Allocation{step.job.value(), step.step, environment, info});
  });
}

void Clients::refuse_step(const StepId& step, const Refused& refused) {
  if (const auto dropped = new_steps_.extract(step)) {
    dropped.mapped().granted(tl::make_unexpected(refused));
  }
}

// The job is over, or begins anew.
void Clients::refuse_steps(JobId job) {
  for (const auto& [step, fresh] : new_steps_) {
    if (step.job != job) continue;
    state_.act([this, step = step] {
      refuse_step(step, Refused{Why::already_over, "the job is ending"});
    });
  }
}

}  // namespace aliquot::engine
