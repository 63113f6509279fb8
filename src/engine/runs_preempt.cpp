// Jobs that are ended in time, or for others' sake. Those that make room for a higher tier are told
// at once, ended after their grace time, and are back in the queue or over as their partition or
// QOS says.
#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <csignal>
#include <vector>

#include "engine/accounts.hpp"
#include "engine/clients.hpp"
#include "engine/runs.hpp"

namespace aliquot::engine {
namespace {

// How much longer than the job's own grace its stepd may take to end it.
constexpr Millis kStepdGrace = seconds(30);
// Who had a grace time has heard SIGTERM at its beginning: to hear it again this is enough.
constexpr Millis kAfterGrace = seconds(1);

}  // namespace

PreemptMode Runs::preempt_mode(const Job& job) const {
  const auto partitions = admission_.find_partitions(job.partition);
  if (partitions.empty()) return PreemptMode::off;
  const PreemptMode mode = engine::preempt_mode(state_.book, job, *partitions.front());
  // An interactive job has nothing to start again with, and some may not start twice.
  const bool again = job.spec.batch && job.spec.requeue;
  return mode == PreemptMode::requeue && !again ? PreemptMode::cancel : mode;
}

Ending Runs::ending_of_evicted(const Job& job) const {
  return preempt_mode(job) == PreemptMode::requeue ? Ending::requeue : Ending::preempt;
}

std::optional<Runs::Outcome> Runs::outcome_of(Ending ending) {
  if (ending == Ending::preempt) return Outcome{core::JobState::preempted, Reason::none};
  if (ending == Ending::node_fail) return Outcome{core::JobState::node_fail, Reason::node_down};
  return std::nullopt;
}

void Runs::take_down(Job& job, const std::string& reason) {
  if (job.state == core::JobState::completing) return;
  const bool again = job.spec.batch && job.spec.requeue;
  job.detail = fmt::format("a GPU of it was taken down: {}", reason);
  spdlog::info("job {}: {}; it {}", job.id, job.detail, again ? "starts again" : "has failed");
  end_processes(job, again ? Ending::requeue : Ending::node_fail);
}

void Runs::evict(Job& job, JobId by) {
  const auto partitions = admission_.find_partitions(job.partition);
  Millis grace = partitions.empty() ? Millis(0) : partitions.front()->grace;
  if (const auto* qos = qos_of(state_.book, job); qos != nullptr && qos->grace_ms) {
    grace = Millis(*qos->grace_ms);
  }
  const bool again = preempt_mode(job) == PreemptMode::requeue;
  job.evicted = state_.clock.mono() + grace;
  job.detail = fmt::format("it makes room for job {}, of a higher tier, and {}", by,
                           again ? "goes back to the queue" : "is cancelled");
  spdlog::info("job {}: {}, after a grace time of {} s", job.id, job.detail, grace / seconds(1));
  if (grace <= Millis(0)) {
    return end_processes(job, ending_of_evicted(job));
  }
  state_.timed.insert(job.id);
  state_.save(job);
  state_.schedule_needed = true;  // it is known now when there is room
  // So that it can save what it has done.
  state_.act([this, id = job.id] {
    const Job* told = state_.find(id);
    if (told == nullptr) return;
    for (const int signal : {SIGCONT, SIGTERM}) {
      if (told->spec.batch) {
        state_.executor.command(id, node::SignalCommand{signal, node::Target::all});
      } else {
        state_.executor.signal_allocation(*told, signal);
      }
    }
  });
}

void Runs::end_evicted() {
  const MonoTime now = state_.clock.mono();
  std::vector<Job*> over;
  for (const JobId id : state_.timed) {
    Job* job = state_.find(id);
    if (job == nullptr || !job->evicted || *job->evicted > now) continue;
    const bool runs =
        job->state == core::JobState::running || job->state == core::JobState::suspended;
    if (runs) over.push_back(job);
  }
  for (Job* job : over) end_processes(*job, ending_of_evicted(*job), kAfterGrace);
}

// Batch jobs are watched by their stepd, and here where that one hangs.
void Runs::enforce_times() {
  std::vector<Job*> over;
  for (const JobId id : state_.timed) {
    Job* job = state_.find(id);
    const auto left = job == nullptr ? std::nullopt : patience_left(*job);
    if (left && *left <= Millis(0)) over.push_back(job);
  }
  for (Job* job : over) end_processes(*job, Ending::timeout);
  end_evicted();
}

std::optional<Millis> Runs::patience_left(const Job& job) const {
  if (!job.spec.batch || job.state != core::JobState::running || !job.time_limit) {
    return std::nullopt;
  }
  const Millis due = std::max(*job.time_limit, job.limited_at);
  return due + state_.settings.kill_wait + kStepdGrace - state_.ran(job);
}

std::optional<WallTime> Runs::due(const Job& job) const {
  auto left = patience_left(job);
  if (job.evicted && job.state != core::JobState::completing) {
    const Millis grace = *job.evicted - state_.clock.mono();
    left = std::min(left.value_or(grace), grace);
  }
  if (!left) return std::nullopt;
  return state_.clock.wall() + std::max(*left, Millis(0));
}

}  // namespace aliquot::engine
