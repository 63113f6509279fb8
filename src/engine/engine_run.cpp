// Starting and ending: what happens to jobs that run.
#include <signal.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <cstring>

#include "base/text.hpp"
#include "engine/engine.hpp"
#include "node/output_path.hpp"

namespace aliquot::engine {
namespace {

// Ends the sentence on processes of a job that were killed and do not die: it is true only while
// the job is there. Of what is on nobody's record the log has it again after a while.
constexpr std::string_view kKeepsHeld = ": the job keeps what it holds until it does";
constexpr Millis kRemindStuck = hours(1);

std::string signal_reason(int number) {
  const char* text = ::sigdescr_np(number);
  std::string name = text == nullptr ? "Unknown" : text;
  std::ranges::replace(name, ' ', '_');
  return fmt::format("RaisedSignal:{}({})", number, name);
}

}  // namespace

void Engine::resolve_paths(Job& job) const {
  if (!job.spec.batch) return;
  const node::PatternValues values{.job = job.id(),
                                   .array_job = job.info.array_job_id,
                                   .array_task = job.info.array_task_id,
                                   .job_name = job.info.name,
                                   .user = job.info.user,
                                   .host = machine_.name,
                                   .restarts = job.info.restarts};
  const auto resolve = [&](std::string_view pattern) {
    return node::resolve_path(node::expand_pattern(pattern, values), job.info.work_dir);
  };
  const bool array = job.info.array_job_id.has_value();
  job.info.std_out =
      resolve(job.spec.std_out.value_or(std::string(node::default_output_pattern(array))));
  job.info.std_err = job.spec.std_err ? resolve(*job.spec.std_err) : job.info.std_out;
  job.info.std_in = job.spec.std_in ? resolve(*job.spec.std_in) : "/dev/null";
}

// One element leaves its array, as a job of its own. The last one takes the array's id.
Job& Engine::split(Job& array, std::int64_t task) {
  auto& tasks = array.waiting.tasks;
  tasks.erase(std::ranges::find(tasks, task));
  if (tasks.empty()) {
    array.info.array_pending.clear();
    array.info.array_task_id = task;
    resolve_paths(array);
    return array;
  }
  array.info.array_pending = core::format_array(array.waiting);
  save(array);
  Job element = array;
  element.info.id = ++last_id_;
  element.info.array_task_id = task;
  element.info.array_pending.clear();
  element.waiting = {};
  resolve_paths(element);
  const JobId id = element.id();
  return jobs_.emplace(id, std::move(element)).first->second;
}

void Engine::start(Job& job, core::Placement placement) {
  Payload payload;
  if (job.spec.batch) {
    auto kept = store_.payload(job.payload);
    if (!kept && kept.error().code == Error::Code::not_found) {
      job.info.reason_detail = kept.error().message;
      return finish(job, core::JobState::failed, "JobLaunchFailure");
    }
    payload = require_value(std::move(kept));
  }
  const core::Node& node = ledger_.cluster().node(placement.node);
  job.info.gpus.clear();
  for (const core::GpuUse& use : placement.gpus) {
    job.info.gpus.push_back({.index = machine_.gpus[use.gpu].index,
                             .uuid = node.gpus[use.gpu].id.value(),
                             .model = core::model_name(node.gpus[use.gpu]),
                             .memory = use.portion.memory.value(),
                             .compute = use.portion.compute.value(),
                             .whole = use.whole});
  }
  must(ledger_.grant(job.id(), std::move(placement)));
  const WallTime now = clock_.wall();
  set_state(job, core::JobState::running);
  job.info.reason = core::reason::kNone;
  job.info.reason_detail.clear();
  job.info.dependency.clear();
  job.info.node = machine_.name;
  job.info.start_ms = now.ms();
  job.info.end_ms.reset();
  if (job.info.time_limit_ms) job.info.end_ms = now.ms() + *job.info.time_limit_ms;
  job.mark = node::make_mark(job.id());
  job.run_time = {machine_.boot_id, clock_.mono(), Millis(0)};
  resolve_paths(job);
  save(job);
  require(store_.save_run(job.id(), job.run_time));
  dependencies_changed_ = true;
  if (job.spec.batch) {
    save_step({.job_id = job.info.id,
               .id = "batch",
               .name = "batch",
               .state = "RUNNING",
               .start_ms = now.ms(),
               .end_ms = std::nullopt,
               .ntasks = 1,
               .cpus = job.info.cpus});
  }
  actions_.push_back([this, id = job.id(), payload = std::move(payload)] {
    Job* started = find(id);
    if (started == nullptr) return;
    StartOrder order{started->info, started->spec, payload, started->mark};
    if (!payload.arguments.empty()) order.spec.arguments = payload.arguments;
    if (started->spec.batch) return executor_.start(std::move(order));
    const auto client = clients_.find(id);
    if (client == clients_.end()) {
      return finish(*started, core::JobState::cancelled, std::string(core::reason::kNone));
    }
    const Granted granted = std::exchange(client->second.granted, nullptr);
    auto environment = executor_.admit(order, client->second.pid);
    if (!environment) {
      finish(*started, core::JobState::failed, "JobLaunchFailure");
      if (granted) granted(refuse(500, "ESLURM_JOB_LAUNCH", environment.error().message));
      return;
    }
    if (granted) granted(api::Allocation{id.value(), std::nullopt, *environment, started->info});
  });
}

void Engine::release_grant(Job& job) {
  if (ledger_.find(job.id()) == nullptr) return;
  (void)ledger_.release(job.id());
  actions_.push_back([this, id = job.id()] { gpu_use_.erase(id); });
  schedule_needed_ = true;
}

// The job is over: on record, and no longer ours to keep.
void Engine::finish(Job& job, core::JobState state, std::string reason) {
  const JobId id = job.id();
  const bool ran = core::is_active(job.state);
  set_state(job, state);
  job.info.reason = std::move(reason);
  if (job.info.reason_detail.ends_with(kKeepsHeld)) job.info.reason_detail.clear();
  job.info.end_ms = clock_.wall().ms();
  if (!ran) job.info.start_ms.reset();
  job.ending = Ending::none;
  for (auto& [number, step] : std::exchange(steps_[id], {})) {
    end_step_record(step, {});
    step.state = "CANCELLED";
    save_step(step);
  }
  save(job);
  if (ran) require(store_.save_run(id, std::nullopt));
  release_grant(job);
  // Who waits for it is told, and forgotten, once it is on record.
  actions_.push_back([this, id] {
    const auto client = clients_.find(id);
    if (client == clients_.end()) return;
    const Granted granted = client->second.granted;
    clients_.erase(client);
    if (!granted) return;
    granted(refuse(410, "ESLURM_ALREADY_DONE", "the job was ended before it could start"));
  });
  steps_.erase(id);
  next_step_.erase(id);
  dependencies_changed_ = true;
  schedule_needed_ = true;
  const std::int64_t array = job.info.array_job_id.value_or(0);
  api::JobInfo last = job.info;
  jobs_.erase(id);  // `job` is gone
  counts_.reset();
  if (ran) {
    actions_.push_back([this, run = node::Run{id, last.restarts}, user = Uid(last.uid)] {
      executor_.forget(run, user);
    });
  }
  tell_waiters(id, last);
  if (array != id.value()) tell_waiters(JobId(array), last);
}

// Those who wait for what is over now; of an array's waiters some wait for one element.
void Engine::tell_waiters(JobId waited, const api::JobInfo& last) {
  const auto waiters = waiting_.find(waited);
  if (waiters == waiting_.end()) return;
  std::map<std::optional<std::int64_t>, bool> over;
  for (const auto& [number, waiter] : waiters->second) {
    const auto [known, fresh] = over.try_emplace(waiter.task, false);
    if (fresh) {
      const auto facts = require_value(store_.facts(waited, waiter.task));
      known->second = facts && facts->ended;
    }
    if (!known->second) continue;
    actions_.push_back([this, one = WaiterId{waited, number}, last] {
      const auto all = waiting_.find(one.job);
      if (all == waiting_.end()) return;
      const auto told = all->second.extract(one.number);
      if (all->second.empty()) waiting_.erase(all);
      if (told) told.mapped().ended(last);
    });
  }
}

// The same id, as new: for requeue, and for a start that a crash kept from happening.
void Engine::back_to_queue(Job& job, bool held, bool count) {
  release_grant(job);
  if (core::is_active(job.state)) {
    actions_.push_back(
        [this, run = job.run(), user = Uid(job.info.uid)] { executor_.forget(run, user); });
  }
  set_state(job, core::JobState::pending);
  job.ending = Ending::none;
  job.mark.clear();
  job.run_time = {};
  if (held && job.hold != Hold::admin) job.hold = Hold::user;
  api::JobInfo& info = job.info;
  if (count) ++info.restarts;
  info.reason = core::reason::kNone;
  info.reason_detail.clear();
  info.start_ms.reset();
  info.end_ms.reset();
  info.cancelled_by.reset();
  info.suspend_ms.reset();
  info.suspended_total_ms = 0;
  info.exit_code = info.exit_signal = 0;
  info.derived_exit_code = info.derived_exit_signal = 0;
  info.node.clear();
  info.gpus.clear();
  info.enforcement.clear();
  if (job.unfit.empty()) {  // of the machine as it is now, not what it held
    info.cpus = job.request.cpus / kOneCpu;
    info.memory = job.request.memory.value();
  }
  steps_.erase(job.id());
  next_step_.erase(job.id());
  counts_.reset();  // it may have been over
  save(job);
  require(store_.save_run(job.id(), std::nullopt));
  require(store_.drop_steps(job.id()));
  dependencies_changed_ = true;
  schedule_needed_ = true;
}

void Engine::remember_use(Job& job, const node::ExitRecord& record) {
  api::JobInfo& info = job.info;
  info.user_cpu_ms = record.user_cpu_ms;
  info.system_cpu_ms = record.system_cpu_ms;
  info.max_rss = record.max_rss;
  std::int64_t compute = 0;
  for (const api::GpuHold& gpu : info.gpus) compute += gpu.compute;
  const Millis time = ran(job);
  info.gpu_ms = scale_down(time, compute, kWholeGpu.value()).value();
  if (const auto use = gpu_use_.find(job.id()); use != gpu_use_.end() && use->second.samples > 0) {
    info.gpu_memory_peak = use->second.memory_peak;
    info.gpu_utilisation = use->second.utilisation / use->second.samples;
  }
  // What the library measured in the job beats what was seen of the GPU from outside.
  if (record.gpu_ms) {
    info.gpu_ms = *record.gpu_ms;
    const std::int64_t held = time.value() * std::max<std::int64_t>(std::ssize(info.gpus), 1);
    if (held > 0) {
      info.gpu_utilisation =
          std::min(scale_down(kWholeGpu, *record.gpu_ms, held), kWholeGpu).value();
    }
  }
  if (record.gpu_memory_peak) {
    info.gpu_memory_peak = std::max(info.gpu_memory_peak, *record.gpu_memory_peak);
  }
  if (!job.spec.batch) return;
  const bool well = record.exit_code == 0 && record.exit_signal == 0;
  const bool timeout = record.reason == node::EndReason::timeout;
  save_step({.job_id = info.id,
             .id = "batch",
             .name = "batch",
             .state = timeout                                       ? "CANCELLED"
                      : record.reason == node::EndReason::oom       ? "OUT_OF_MEMORY"
                      : record.reason == node::EndReason::cancelled ? "CANCELLED"
                      : well                                        ? "COMPLETED"
                                                                    : "FAILED",
             .start_ms = info.start_ms.value_or(0),
             .end_ms = clock_.wall().ms(),
             .exit_code = record.exit_code,
             .exit_signal = record.exit_signal,
             .ntasks = 1,
             .cpus = info.cpus,
             .user_cpu_ms = record.user_cpu_ms,
             .system_cpu_ms = record.system_cpu_ms,
             .max_rss = record.max_rss});
}

void Engine::on_ended(const node::ExitRecord& record) {
  const node::Run run{JobId(record.job_id), record.attempt};
  if (const auto unknown = unknown_.extract(run); !unknown.empty()) {
    // Nothing of it is on record: nothing waits for a commit.
    executor_.forget(run, unknown.mapped().uid);
    schedule_needed_ = true;
    return;
  }
  happened([this, record] { ended(record); });
}

void Engine::on_never_started(JobId id, std::int64_t attempt, const std::string& why) {
  happened([this, id, attempt, why] { never_started(id, attempt, why); });
}

void Engine::on_postponed(JobId id, std::int64_t attempt, const std::string& why) {
  happened([this, id, attempt, why] { postponed(id, attempt, why); });
}

void Engine::on_lost(JobId id, std::int64_t attempt) {
  happened([this, id, attempt] { lost(id, attempt); });
}

void Engine::on_enforced(JobId id, std::int64_t attempt, const std::string& words) {
  happened([this, id, attempt, words] {
    Job* job = find(id);
    if (job == nullptr || !core::is_active(job->state) || attempt != job->info.restarts) return;
    job->info.enforcement = words;
    save(*job);
  });
}

void Engine::on_stuck(JobId id, std::int64_t attempt, const std::string& who) {
  if (const auto unknown = unknown_.find({id, attempt}); unknown != unknown_.end()) {
    Unknown& left = unknown->second;
    if (left.stuck.empty() || clock_.mono() - left.told >= kRemindStuck) {
      spdlog::warn("job {}, which is not on record as running: {}: nothing starts until it does",
                   id, who);
      left.told = clock_.mono();
    }
    left.stuck = make_plain(who);
    return;
  }
  happened([this, id, attempt, words = who + std::string(kKeepsHeld)] {
    Job* job = find(id);
    if (job == nullptr || !core::is_active(job->state) || attempt != job->info.restarts) return;
    if (job->info.reason_detail == words) return;
    spdlog::warn("job {}: {}", id, words);
    job->info.reason_detail = words;
    save(*job);
  });
}

void Engine::ended(const node::ExitRecord& record) {
  Job* job = find(JobId(record.job_id));
  if (job == nullptr || !core::is_active(job->state) || record.attempt != job->info.restarts)
    return;
  remember_use(*job, record);
  if (job->ending == Ending::requeue || job->ending == Ending::requeue_hold) {
    return back_to_queue(*job, job->ending == Ending::requeue_hold, true);
  }
  using core::JobState;
  api::JobInfo& info = job->info;
  int exit_code = record.exit_code;
  int exit_signal = record.exit_signal;
  if (const auto client = clients_.find(job->id()); client != clients_.end()) {
    // What the client said, or else the worst of its steps.
    const auto& end = client->second.end;
    exit_code = end ? end->exit_code : info.derived_exit_code;
    exit_signal = end ? end->exit_signal : info.derived_exit_signal;
  }
  if (!record.detail.empty())
    info.reason_detail = make_plain(record.detail);  // else what was found of it
  // The exit code of a job that was ended from outside says nothing about its script.
  if (record.reason == node::EndReason::timeout || job->ending == Ending::timeout) {
    return finish(*job, JobState::timeout, "TimeLimit");
  }
  info.exit_code = exit_code;
  info.exit_signal = exit_signal;
  if (record.reason == node::EndReason::launch_failed) {
    return finish(*job, JobState::failed, "JobLaunchFailure");
  }
  if (job->ending == Ending::cancel || record.reason == node::EndReason::cancelled) {
    return finish(*job, JobState::cancelled, std::string(core::reason::kNone));
  }
  if (record.reason == node::EndReason::oom) {
    return finish(*job, JobState::out_of_memory, "OutOfMemory");
  }
  if (exit_signal != 0) return finish(*job, JobState::failed, signal_reason(exit_signal));
  if (exit_code != 0) return finish(*job, JobState::failed, "NonZeroExitCode");
  finish(*job, JobState::completed, std::string(core::reason::kNone));
}

void Engine::never_started(JobId id, std::int64_t attempt, const std::string& why) {
  Job* job = find(id);
  if (job == nullptr || !core::is_active(job->state) || attempt != job->info.restarts) return;
  if (job->ending == Ending::cancel) {
    return finish(*job, core::JobState::cancelled, std::string(core::reason::kNone));
  }
  if (why.empty()) {
    // What a crash of the daemon leaves, the folder knows. After a crash of the machine it may have
    // forgotten what was written last: the job may have run.
    if (job->run_time.boot != machine_.boot_id) return lost(id, attempt);
    return back_to_queue(*job, job->ending == Ending::requeue_hold, false);
  }
  job->info.reason_detail = make_plain(why);
  finish(*job, core::JobState::failed, "JobLaunchFailure");
}

void Engine::postponed(JobId id, std::int64_t attempt, const std::string& why) {
  Job* job = find(id);
  if (job == nullptr || !core::is_active(job->state) || attempt != job->info.restarts) return;
  if (job->ending != Ending::none) return never_started(id, attempt, "");
  back_to_queue(*job, false, false);
  job->info.reason_detail = make_plain(why);
  job->not_before = clock_.wall() + kLaunchPause;
  note_times(*job);
}

void Engine::lost(JobId id, std::int64_t attempt) {
  Job* job = find(id);
  if (job == nullptr || !core::is_active(job->state) || attempt != job->info.restarts) return;
  if (job->ending == Ending::cancel) {
    return finish(*job, core::JobState::cancelled, std::string(core::reason::kNone));
  }
  if (job->ending == Ending::timeout) return finish(*job, core::JobState::timeout, "TimeLimit");
  if (job->spec.requeue && job->spec.batch) {
    back_to_queue(*job, job->ending == Ending::requeue_hold, true);
    job->info.reason_detail = "it was lost while it ran, and starts again";
    return;
  }
  job->info.reason_detail = "the processes that looked after it are gone: killed, or a reboot";
  finish(*job, core::JobState::node_fail, "NodeDown");
}

void Engine::end_processes(Job& job, Ending ending) {
  job.ending = ending;
  const bool was_suspended = job.state == core::JobState::suspended;
  set_state(job, core::JobState::completing);
  save(job);
  actions_.push_back([this, id = job.id(), was_suspended] {
    Job* ending_job = find(id);
    if (ending_job == nullptr) return;
    if (ending_job->spec.batch) {
      if (was_suspended) executor_.command(id, node::ResumeCommand{});
      executor_.command(id, node::CancelCommand{});
    } else {
      if (was_suspended) executor_.freeze_allocation(*ending_job, false);
      const auto client = clients_.find(id);
      const bool gone = client == clients_.end() || !client->second.attached;
      executor_.end_allocation(*ending_job, gone ? kGonePatience : settings_.kill_wait);
    }
  });
}

// Batch jobs are watched by their stepd, and by the engine where that one hangs; of the others the
// engine is the watch.
void Engine::enforce_times() {
  const MonoTime now = clock_.mono();
  std::vector<JobId> over;
  std::vector<JobId> gone;
  std::vector<JobId> late;
  for (const auto& [id, client] : clients_) {
    const Job* job = find(id);
    if (job == nullptr) continue;
    if (job->state == core::JobState::pending && client.start_by && *client.start_by <= now) {
      late.push_back(id);
    }
    if (job->state == core::JobState::pending || job->state == core::JobState::completing) continue;
    const auto left = time_left(*job);
    if (job->state == core::JobState::running && left && *left <= Millis(0)) over.push_back(id);
    // Frozen with its job a client cannot come back.
    if (job->state == core::JobState::suspended) continue;
    if (client.reattach_by && *client.reattach_by <= now) gone.push_back(id);
  }
  for (const JobId id : timed_) {
    const Job* job = find(id);
    const auto left = job == nullptr ? std::nullopt : patience_left(*job);
    if (left && *left <= Millis(0)) over.push_back(id);
  }
  for (const JobId id : over) end_processes(jobs_.at(id), Ending::timeout);
  for (const JobId id : gone) hung_up(id);
  for (const JobId id : late) {
    actions_.push_back([this, id] {
      const auto client = clients_.find(id);
      if (client == clients_.end()) return;
      if (const Granted granted = std::exchange(client->second.granted, nullptr)) {
        granted(refuse(409, "ESLURM_NODES_BUSY", "there was no room in time"));
      }
    });
    finish(jobs_.at(id), core::JobState::cancelled, std::string(core::reason::kNone));
  }
}

}  // namespace aliquot::engine
