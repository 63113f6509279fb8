#include "engine/runs.hpp"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <utility>

#include "base/text.hpp"
#include "engine/clients.hpp"
#include "engine/fair_share.hpp"
#include "engine/job_info.hpp"
#include "engine/views.hpp"
#include "node/job_grant.hpp"

namespace aliquot::engine {
namespace {

// Ends the sentence on processes of a job that were killed and do not die: it is true only while
// the job is there. Of what is on nobody's record the log has it again after a while.
constexpr std::string_view kKeepsHeld = ": the job keeps what it holds until it does";
constexpr Millis kRemindStuck = hours(1);

}  // namespace

void Runs::start(Job& job, core::Placement placement) {
  Payload payload;
  if (job.spec.batch) {
    auto kept = state_.store.payload(job.payload);
    if (!kept && kept.error().code == Error::Code::not_found) {
      job.detail = kept.error().message;
      return finish(job.id, core::JobState::failed, Reason::launch_failure);
    }
    payload = state_.require_value(std::move(kept));
  }
  const core::Node& node = state_.ledger.cluster().node(placement.node);
  job.gpus.clear();
  for (const core::GpuUse& use : placement.gpus) {
    const core::Gpu& gpu = node.gpus[use.gpu];
    job.gpus.push_back({{gpu.id, use.portion, use.whole},
                        state_.machine.gpus[use.gpu].index,
                        core::model_name(gpu)});
  }
  state_.must(state_.ledger.grant(job.id, std::move(placement)));
  const WallTime now = state_.clock.wall();
  state_.set_state(job, core::JobState::running);
  job.reason = Reason::none;
  job.detail.clear();
  job.dependency_text.clear();
  job.node = state_.machine.name;
  job.start = now;
  job.end.reset();
  if (job.time_limit) job.end = now + *job.time_limit;
  job.mark = node::make_mark(job.id);
  job.run_time = {state_.machine.boot_id, state_.clock.mono(), Millis(0)};
  state_.resolve_paths(job);
  state_.save(job);
  state_.require(state_.store.save_run(job.id, job.run_time));
  notices_.began(job);
  state_.dependencies_changed = true;
  if (job.spec.batch) {
    state_.save_step({.job_id = job.id.value(),
                      .id = "batch",
                      .name = "batch",
                      .state = "RUNNING",
                      .start_ms = now.ms(),
                      .end_ms = std::nullopt,
                      .ntasks = 1,
                      .cpus = job.cpus / kOneCpu});
  }
  state_.act([this, id = job.id, payload = std::move(payload)] {
    Job* started = state_.find(id);
    if (started == nullptr) return;
    state_.tally->note_start(*started);
    views_.started(*started);
    StartOrder order{*started, payload};
    if (!payload.arguments.empty()) order.job.spec.arguments = payload.arguments;
    if (!started->spec.batch) {
      const auto client = clients_.client_of(id);
      if (!client) return finish(id, core::JobState::cancelled, Reason::none);
      order.client = *client;
    }
    state_.executor.start(std::move(order));
  });
}

void Runs::release_grant(Job& job) {
  if (state_.ledger.find(job.id) == nullptr) return;
  charge(state_, job);
  (void)state_.ledger.release(job.id);
  state_.act([this, id = job.id] { gpu_use_.erase(id); });
  state_.schedule_needed = true;
}

void Runs::finish(JobId id, core::JobState state, Reason reason) {
  Job& job = state_.jobs.at(id);
  const bool ran = core::is_active(job.state);
  count_suspension(job);
  state_.set_state(job, state);
  job.reason = reason;
  if (job.detail.ends_with(kKeepsHeld)) job.detail.clear();
  job.end = state_.clock.wall();
  if (!ran) job.start.reset();
  job.ending = Ending::none;
  state_.save(job);
  if (ran) state_.require(state_.store.save_run(id, std::nullopt));
  release_grant(job);
  clients_.over(id);
  state_.dependencies_changed = true;
  state_.schedule_needed = true;
  state_.counts.reset();
  if (ran) {
    state_.act(
        [this, run = job.run(), user = job.owner.uid] { state_.executor.forget(run, user); });
  }
  views_.over(job);
  notices_.over(job);
  state_.jobs.erase(id);
}

// For sacct --duplicates.
void Runs::keep_run(const Job& job) {
  api::JobInfo run = to_info(job);
  if (core::is_active(job.state)) {
    const bool asked = job.ending == Ending::requeue || job.ending == Ending::requeue_hold;
    run.state = asked ? "REQUEUED" : core::long_name(core::JobState::node_fail);
    run.reason = to_string(Reason::none);
    run.end_ms = state_.clock.wall().ms();
  }
  run.steps = state_.require_value(state_.store.steps(job.id));
  state_.require(state_.store.save_earlier(run));
}

// The same id, as new: for requeue, and for a start that a crash kept from happening.
void Runs::back_to_queue(Job& job, bool held, bool count) {
  release_grant(job);
  if (count) keep_run(job);
  if (count) notices_.requeued(job);
  if (core::is_active(job.state)) {
    state_.act(
        [this, run = job.run(), user = job.owner.uid] { state_.executor.forget(run, user); });
  }
  state_.set_state(job, core::JobState::pending);
  job.ending = Ending::none;
  job.evicted.reset();
  job.mark.clear();
  job.run_time = {};
  job.limited_at = {};
  if (held && job.hold != Hold::admin) job.hold = Hold::user;
  if (count) ++job.restarts;
  job.reason = Reason::none;
  job.detail.clear();
  // Of several partitions it may start in another one now.
  if (!job.spec.partition.empty()) job.partition = job.spec.partition;
  job.start.reset();
  job.end.reset();
  job.cancelled_by.reset();
  job.suspended.reset();
  job.suspended_total = {};
  job.exit = job.derived_exit = {};
  job.node.clear();
  job.gpus.clear();
  job.enforcement.clear();
  if (job.unfit.empty()) {  // of the machine as it is now, not what it held
    job.cpus = job.request.cpus;
    job.memory = job.request.memory;
  }
  clients_.requeued(job.id);
  state_.counts.reset();  // it may have been over
  state_.save(job);
  state_.require(state_.store.save_run(job.id, std::nullopt));
  state_.require(state_.store.drop_steps(job.id));
  state_.dependencies_changed = true;
  state_.schedule_needed = true;
}

void Runs::remember_use(Job& job, const node::ExitRecord& record) {
  job.usage.user_cpu = Millis(record.user_cpu_ms);
  job.usage.system_cpu = Millis(record.system_cpu_ms);
  job.usage.max_rss = Bytes(record.max_rss);
  Compute compute;
  for (const HeldGpu& gpu : job.gpus) compute += gpu.granted.portion.compute;
  const Millis time = state_.ran(job);
  job.usage.gpu_time = scale_down(time, compute.value(), kWholeGpu.value());
  if (const auto use = gpu_use_.find(job.id); use != gpu_use_.end() && use->second.samples > 0) {
    job.usage.gpu_memory_peak = use->second.memory_peak;
    job.usage.gpu_utilisation = Compute(use->second.utilisation / use->second.samples);
  }
  // What the library measured in the job beats what was seen of the GPU from outside.
  if (record.gpu_ms) {
    job.usage.gpu_time = Millis(*record.gpu_ms);
    const std::int64_t held = time.value() * std::max<std::int64_t>(std::ssize(job.gpus), 1);
    if (held > 0) {
      job.usage.gpu_utilisation = std::min(scale_down(kWholeGpu, *record.gpu_ms, held), kWholeGpu);
    }
  }
  if (record.gpu_memory_peak) {
    job.usage.gpu_memory_peak = std::max(job.usage.gpu_memory_peak, Bytes(*record.gpu_memory_peak));
  }
  if (!job.spec.batch) return;
  const bool well = record.exit_code == 0 && record.exit_signal == 0;
  const bool timeout = record.reason == node::EndReason::timeout;
  state_.save_step({.job_id = job.id.value(),
                    .id = "batch",
                    .name = "batch",
                    .state = timeout                                       ? "CANCELLED"
                             : record.reason == node::EndReason::oom       ? "OUT_OF_MEMORY"
                             : record.exit_signal != 0                     ? "CANCELLED"
                             : !well                                       ? "FAILED"
                             : record.reason == node::EndReason::cancelled ? "CANCELLED"
                                                                           : "COMPLETED",
                    .start_ms = job.start.value_or(WallTime()).ms(),
                    .end_ms = state_.clock.wall().ms(),
                    .exit_code = record.exit_code,
                    .exit_signal = record.exit_signal,
                    .ntasks = 1,
                    .cpus = job.cpus / kOneCpu,
                    .user_cpu_ms = record.user_cpu_ms,
                    .system_cpu_ms = record.system_cpu_ms,
                    .max_rss = record.max_rss});
}

void Runs::on_admitted(JobId id, std::int64_t attempt, const Environment& added) {
  state_.happened([this, id, attempt, added] { clients_.admitted(id, attempt, added); });
}

void Runs::on_step_admitted(JobId id, std::int64_t attempt, std::int64_t step,
                            const Result<Environment>& added) {
  state_.happened(
      [this, one = StepId{id, attempt, step}, added] { clients_.step_admitted(one, added); });
}

void Runs::on_ended(const node::ExitRecord& record) {
  const node::Run run{JobId(record.job_id), record.attempt};
  if (const auto unknown = unknown_.extract(run); !unknown.empty()) {
    // Nothing of it is on record: nothing waits for a commit.
    state_.executor.forget(run, unknown.mapped().uid);
    state_.schedule_needed = true;
    return;
  }
  state_.happened([this, record] { ended(record); });
}

void Runs::on_never_started(JobId id, std::int64_t attempt, const std::string& why) {
  state_.happened([this, id, attempt, why] { never_started(id, attempt, why); });
}

void Runs::on_postponed(JobId id, std::int64_t attempt, const std::string& why) {
  state_.happened([this, id, attempt, why] { postponed(id, attempt, why); });
}

void Runs::on_lost(JobId id, std::int64_t attempt) {
  state_.happened([this, id, attempt] { lost(id, attempt); });
}

void Runs::on_enforced(JobId id, std::int64_t attempt, const std::string& words) {
  state_.happened([this, id, attempt, words] {
    Job* job = state_.find_active(id, attempt);
    if (job == nullptr) return;
    job->enforcement = words;
    state_.save(*job);
  });
}

void Runs::on_step_gone(JobId job, std::int64_t attempt, std::int64_t step) {
  clients_.hang_up_step({job, attempt, step});
}

void Runs::on_stuck(JobId id, std::int64_t attempt, const std::string& who) {
  if (const auto unknown = unknown_.find({id, attempt}); unknown != unknown_.end()) {
    Unknown& left = unknown->second;
    if (left.stuck.empty() || state_.clock.mono() - left.told >= kRemindStuck) {
      spdlog::warn("job {}, which is not on record as running: {}: nothing starts until it does",
                   id, who);
      left.told = state_.clock.mono();
    }
    left.stuck = make_plain(who);
    return;
  }
  state_.happened([this, id, attempt, words = who + std::string(kKeepsHeld)] {
    Job* job = state_.find_active(id, attempt);
    if (job == nullptr || job->detail == words) return;
    spdlog::warn("job {}: {}", id, words);
    job->detail = words;
    state_.save(*job);
  });
}

void Runs::ended(const node::ExitRecord& record) {
  Job* job = state_.find_active(JobId(record.job_id), record.attempt);
  if (job == nullptr) return;
  remember_use(*job, record);
  // Told to make room it went by itself; what ended well is done.
  if (job->evicted && job->ending == Ending::none &&
      (record.exit_code != 0 || record.exit_signal != 0)) {
    job->ending = ending_of_evicted(*job);
  }
  // By its own word (RequeueExit): unless somebody else ended it.
  if (job->spec.batch && job->ending == Ending::none && record.exit_signal == 0 &&
      record.reason == node::EndReason::none) {
    const bool hold = contains(state_.settings.requeue_exit_hold, record.exit_code);
    if (hold || contains(state_.settings.requeue_exit, record.exit_code)) {
      job->ending = hold ? Ending::requeue_hold : Ending::requeue;
    }
  }
  if (job->ending == Ending::requeue || job->ending == Ending::requeue_hold) {
    return back_to_queue(*job, job->ending == Ending::requeue_hold, true);
  }
  using core::JobState;
  const ExitStatus exit =
      clients_.exit_of(*job).value_or(ExitStatus{record.exit_code, record.exit_signal});
  if (!record.detail.empty()) job->detail = make_plain(record.detail);  // else what was found of it
  // The exit code of a job that was ended from outside says nothing about its script.
  if (record.reason == node::EndReason::timeout || job->ending == Ending::timeout) {
    return finish(job->id, JobState::timeout, Reason::time_limit);
  }
  if (const auto outcome = outcome_of(job->ending)) {
    return finish(job->id, outcome->state, outcome->reason);
  }
  job->exit = exit;
  if (record.reason == node::EndReason::launch_failed) {
    return finish(job->id, JobState::failed, Reason::launch_failure);
  }
  if (job->ending == Ending::cancel || record.reason == node::EndReason::cancelled) {
    return finish(job->id, JobState::cancelled, Reason::none);
  }
  if (record.reason == node::EndReason::oom || clients_.ran_out_of_memory(job->id)) {
    return finish(job->id, JobState::out_of_memory, Reason::out_of_memory);
  }
  if (exit.signal != 0) return finish(job->id, JobState::failed, Reason::raised_signal);
  if (exit.code != 0) return finish(job->id, JobState::failed, Reason::nonzero_exit);
  finish(job->id, JobState::completed, Reason::none);
}

void Runs::never_started(JobId id, std::int64_t attempt, const std::string& why) {
  Job* job = state_.find_active(id, attempt);
  if (job == nullptr) return;
  if (job->ending == Ending::cancel) {
    return finish(id, core::JobState::cancelled, Reason::none);
  }
  if (job->ending == Ending::timeout) {
    return finish(id, core::JobState::timeout, Reason::time_limit);
  }
  if (const auto outcome = outcome_of(job->ending)) {
    return finish(id, outcome->state, outcome->reason);
  }
  // Its client went away while it was let in.
  if (!job->spec.batch && job->state == core::JobState::completing) {
    return finish(id, core::JobState::cancelled, Reason::none);
  }
  if (why.empty()) {
    // What a crash of the daemon leaves, the folder knows. After a crash of the machine it may have
    // forgotten what was written last: the job may have run.
    if (job->run_time.boot != state_.machine.boot_id) return lost(id, attempt);
    return back_to_queue(*job, job->ending == Ending::requeue_hold, false);
  }
  if (job->ending == Ending::requeue || job->ending == Ending::requeue_hold) {
    return back_to_queue(*job, job->ending == Ending::requeue_hold, true);
  }
  job->detail = make_plain(why);
  clients_.refuse_client(id, Refused{Why::launch_failed, why});
  finish(id, core::JobState::failed, Reason::launch_failure);
}

void Runs::postponed(JobId id, std::int64_t attempt, const std::string& why) {
  Job* job = state_.find_active(id, attempt);
  if (job == nullptr) return;
  if (job->ending != Ending::none) return never_started(id, attempt, "");
  back_to_queue(*job, false, false);
  job->detail = make_plain(why);
  job->not_before = state_.clock.wall() + kLaunchPause;
  state_.note_times(*job);
}

void Runs::lost(JobId id, std::int64_t attempt) {
  Job* job = state_.find_active(id, attempt);
  if (job == nullptr) return;
  if (job->ending == Ending::cancel) {
    return finish(id, core::JobState::cancelled, Reason::none);
  }
  if (job->ending == Ending::timeout)
    return finish(id, core::JobState::timeout, Reason::time_limit);
  if (const auto outcome = outcome_of(job->ending)) {
    return finish(id, outcome->state, outcome->reason);
  }
  if (job->spec.requeue && job->spec.batch) {
    back_to_queue(*job, job->ending == Ending::requeue_hold, true);
    job->detail = "it was lost while it ran, and starts again";
    return;
  }
  job->detail = "the processes that looked after it are gone: killed, or a reboot";
  finish(id, core::JobState::node_fail, Reason::node_down);
}

void Runs::count_suspension(Job& job) {
  if (job.state != core::JobState::suspended) return;
  const MonoTime now = state_.clock.mono();
  job.suspended_total += now - std::exchange(job.run_time.since, now);
  state_.require(state_.store.save_run(job.id, job.run_time));
}

void Runs::end_processes(Job& job, Ending ending, std::optional<Millis> patience) {
  job.ending = ending;
  const bool was_suspended = job.state == core::JobState::suspended;
  count_suspension(job);
  state_.set_state(job, core::JobState::completing);
  state_.save(job);
  views_.ending(job);
  state_.act([this, id = job.id, was_suspended, patience] {
    Job* ending_job = state_.find(id);
    if (ending_job == nullptr) return;
    if (ending_job->spec.batch) {
      if (was_suspended) state_.executor.command(id, node::ResumeCommand{});
      const char* cause = ending_job->evicted ? "DUE TO PREEMPTION" : "";
      state_.executor.command(id, node::CancelCommand{cause, patience});
    } else {
      if (was_suspended) state_.executor.freeze_allocation(*ending_job, false);
      const Millis wait = clients_.is_attached(id) ? state_.settings.kill_wait : kGonePatience;
      state_.executor.end_allocation(*ending_job, std::min(patience.value_or(wait), wait));
    }
  });
}

// Batch jobs are watched by their stepd.
void Runs::act_limit(const Job& job) {
  state_.act([this, id = job.id] {
    const Job* one = state_.find(id);
    if (one == nullptr || !one->spec.batch) return;
    state_.executor.command(id, node::LimitCommand{one->time_limit});
  });
}

std::optional<std::string> Runs::held_up() const {
  if (unknown_.empty()) return std::nullopt;
  for (const auto& [run, left] : unknown_) {
    if (left.stuck.empty()) continue;
    return fmt::format("of job {}, {}: nothing starts until it does", run.job, left.stuck);
  }
  return "what runs and is not on record is ended first";
}

std::vector<node::RunningJob> Runs::running() const {
  std::vector<node::RunningJob> jobs;
  for (const JobId id : state_.ledger.jobs()) {
    const Job& job = state_.jobs.at(id);
    std::vector<GpuId> gpus;
    for (const HeldGpu& held : job.gpus) gpus.push_back(held.granted.gpu);
    jobs.push_back(
        {holder_of(id), job.owner.uid, job.mark, job.restarts, std::move(gpus), job.owner.gid});
  }
  return jobs;
}

void Runs::report(const std::vector<node::Escape>& escapes) {
  for (const node::Escape& escape : escapes) {
    const auto id = node::job_of(escape.job);
    Job* job = id ? state_.find(*id) : nullptr;
    if (job == nullptr || !core::is_active(job->state)) continue;
    job->detail = make_plain(escape.what);
    state_.save(*job);
  }
}

void Runs::observe(const std::vector<node::GpuView>& views) {
  std::unordered_map<JobId, Bytes> memory;
  for (const node::GpuView& view : views) {
    for (const node::GpuProcess& process : view.processes) {
      const auto job = process.holder ? node::job_of(*process.holder) : std::nullopt;
      if (job) memory[*job] += process.memory;
    }
  }
  for (const auto& [id, job] : state_.jobs) {
    if (job.state != core::JobState::running || job.gpus.empty()) continue;
    GpuUse& use = gpu_use_[id];
    std::int64_t utilisation = 0;
    for (const HeldGpu& held : job.gpus) {
      for (const node::GpuView& view : views) {
        if (view.sample.id == held.granted.gpu) utilisation += view.sample.utilisation.value();
      }
    }
    use.samples += 1;
    use.utilisation += utilisation / std::ssize(job.gpus);
    use.memory_peak = std::max(use.memory_peak, memory[id]);
  }
}

}  // namespace aliquot::engine
