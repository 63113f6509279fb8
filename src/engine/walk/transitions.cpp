// What Slurm's documentation says of the states of a job: which may follow which, and of what. Held
// against every change that the engine makes, at the instant of it.
#include <fmt/format.h>

#include <algorithm>

#include "engine/walk/world.hpp"

namespace aliquot::engine::walk {
namespace {

using core::JobState;

// squeue(1), JOB STATE CODES. What is over comes back by a requeue alone, and what is ending
// neither runs on nor is suspended.
bool slurm_knows(JobState from, JobState to) {
  switch (from) {
    case JobState::pending:
      return to == JobState::running || to == JobState::cancelled || to == JobState::deadline;
    case JobState::running:
    case JobState::suspended:
      return to != from && to != JobState::deadline;
    case JobState::completing:
      return to == JobState::pending || (core::is_final(to) && to != JobState::deadline);
    default:
      return to == JobState::pending;
  }
}

}  // namespace

// Why the job may not become that: nothing or nobody has had it do so. Empty: it may.
std::string World::uncalled_for(const Job& job, JobState next) {
  const auto submitted = submissions_.find(job.spec.comment);
  if (submitted == submissions_.end()) return "nobody submitted it";
  const Submission* asked = &submitted->second;
  const Run* run = machine_.find(job.mark);
  const bool ran = run != nullptr && run->phase != Phase::launching;
  switch (next) {
    case JobState::pending:
      if (!job.spec.batch) return "an interactive job does not start again";
      if (asked->requeues > 0) return "";
      if (core::is_final(job.state)) return "nobody asked for a requeue";
      return !ran || asked->requeue ? "" : "it ran, and may not start again";
    case JobState::running:
      if (job.state == JobState::pending) return "";
      return asked->resumed ? "" : "nobody resumed it";
    case JobState::suspended:
      return asked->suspended ? "" : "nobody suspended it";
    case JobState::cancelled: {
      const bool hopeless = job.state == JobState::pending && job.spec.kill_on_invalid_dependency &&
                            job.dependency_state.verdict == core::DependencyVerdict::never;
      // An interactive job is cancelled where its client goes.
      return asked->cancelled || hopeless || !job.spec.batch ? "" : "nobody cancelled it";
    }
    case JobState::timeout:
      return job.time_limit ? "" : "it has no time limit";
    case JobState::deadline:
      return job.spec.deadline_ms && *job.spec.deadline_ms <= clock_.wall().ms()
                 ? ""
                 : "its deadline is not over";
    case JobState::preempted:
      return job.partition == "besteffort" ? "" : "nothing may push it aside";
    case JobState::node_fail:
      return job.spec.batch && asked->requeue ? "it may start again" : "";
    case JobState::completed:
      return !job.spec.batch ||
                     (run != nullptr && run->phase == Phase::ended && run->record.exit_code == 0)
                 ? ""
                 : "its script did not end well";
    case JobState::failed:
      return !job.spec.batch || run == nullptr || run->record.exit_code != 0
                 ? ""
                 : "its script did not fail";
    case JobState::out_of_memory:
      return "nothing ran out of memory";
    case JobState::completing:
      return "";
  }
  return "there is no such state";
}

void World::heard(const Job& job, JobState next) {
  const auto complain = [&](const std::string& why) {
    throw Violation(fmt::format("job {} is {} and becomes {}: {}", job.id,
                                core::long_name(job.state), core::long_name(next), why));
  };
  // Of what is new, or was over before this daemon began, nothing was heard yet.
  const auto known = states_.find(job.id);
  const bool right = known != states_.end() ? known->second == job.state
                                            : !core::is_active(job.state) || engine_ == nullptr;
  if (!right) complain("that is not what it was last");
  if (!slurm_knows(job.state, next)) complain("Slurm knows no such change");
  if (const std::string why = uncalled_for(job, next); !why.empty()) complain(why);
  if (next == JobState::preempted || (next == JobState::pending && job.evicted)) {
    ++deeds[Deed::preemption];
  }
  states_[job.id] = next;
  if (next == JobState::running && job.state == JobState::pending) {
    check_start(job);
  } else if (!core::is_active(next)) {
    holding_.erase(job.id);
  }
}

// The states that are shown are those that were heard of.
void World::check_states(const std::vector<api::JobInfo>& jobs) {
  for (const api::JobInfo& job : jobs) {
    const JobState is = core::parse_job_state(job.state).value();
    const auto heard = states_.find(JobId(job.id));
    // What was over before this daemon began may come into sight again, if the clock is set.
    if (heard == states_.end() ? core::is_active(is) : heard->second != is) {
      throw Violation(
          fmt::format("job {} is shown as {}, and that was not heard of", job.id, job.state));
    }
  }
}

// A daemon has started: what it has read is what there is.
void World::take_stock() {
  states_.clear();
  holding_.clear();
  for (const api::JobInfo& job : snapshot()) {
    states_[JobId(job.id)] = core::parse_job_state(job.state).value();
  }
  for (const Job* job : engine_->active()) holding_[job->id] = held_by(*job);
  drained_.clear();
  const auto gpus = engine_->ledger().cluster().gpus(0);
  for (std::size_t gpu = 0; gpu < gpus.size(); ++gpu) {
    if (engine_->ledger().cluster().node(0).gpus[gpu].health == core::Health::draining) {
      drained_.insert(host_.gpus[gpu].index);
    }
  }
  machine_drained_ = engine_->views().cluster_info().node.state.starts_with("drain");
}

}  // namespace aliquot::engine::walk
