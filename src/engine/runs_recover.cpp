// Taking up what the record says, when the daemon comes back.
#include <spdlog/spdlog.h>

#include <algorithm>

#include "engine/clients.hpp"
#include "engine/fair_share.hpp"
#include "engine/queue.hpp"
#include "engine/runs.hpp"

namespace aliquot::engine {

Result<void> Runs::recover() {
  const auto left = TRY(state_.executor.leftovers());
  state_.last_id = std::max(TRY(state_.store.last_id()), state_.settings.first_id - 1);
  const std::int64_t recorded = state_.last_id;
  for (const Leftover& one : left) state_.last_id = std::max(state_.last_id, one.run.job.value());
  if (state_.last_id > recorded) TRY(state_.store.keep_last_id(state_.last_id));
  TRY(queue_.read_drained());
  TRY(read_usage(state_));
  TRY(queue_.accounts().read());
  TRY(queue_.gpu_service().read());
  TRY(queue_.reservations().read());
  Store::Live live = TRY(state_.store.load_live());
  for (Job& job : live.jobs) TRY(take_up(std::move(job)));
  end_unknown(left, live);
  std::vector<JobId> abandoned;
  for (auto& [id, job] : state_.jobs) {
    if (core::is_active(job.state)) {
      if (!job.spec.batch) clients_.expect_back(job);
      take_up_processes(job);
    } else if (!job.spec.batch) {
      abandoned.push_back(id);
    }
  }
  for (const JobId id : abandoned) {
    // Whoever waited for it lost the daemon, and cannot hear that it starts.
    state_.jobs.at(id).detail = "the command that asked for it lost the daemon";
    finish(id, core::JobState::cancelled, Reason::none);
  }
  return {};
}

// What runs, or may, and is not on record as running: the record was lost, or is an old one, or a
// row cannot be read. What it holds is not known, and so not what is free, until nothing of it is
// left. Of what ended just before the daemon did, this clears away the files.
void Runs::end_unknown(const std::vector<Leftover>& left, const Store::Live& live) {
  std::map<node::Run, Leftover> unknown;
  for (const Leftover& one : left) {
    const Job* job = state_.find(one.run.job);
    if (job != nullptr && core::is_active(job->state) && job->run() == one.run) continue;
    unknown[one.run] = one;
  }
  for (const Store::Unreadable& row : live.unreadable) {
    if (!row.active) continue;
    if (std::ranges::none_of(unknown, [&](const auto& one) { return one.first.job == row.id; })) {
      unknown[{row.id}] = {{row.id}};
    }
    for (auto& [run, one] : unknown) {
      if (run.job != row.id) continue;
      one.uid = row.uid;
      if (one.mark.empty()) one.mark = row.mark;
    }
  }
  for (const auto& [run, one] : unknown) {
    const auto known = state_.store.facts(run.job, std::nullopt);
    if (known && !*known) {
      spdlog::error("job {} is not on record and may run: it is ended", run.job);
    }
    Job job{.id = run.job};
    job.owner.uid = one.uid;
    job.restarts = run.attempt;
    job.mark = one.mark;
    unknown_.emplace(run, Unknown{one.uid});
    state_.executor.end_allocation(job, kGonePatience);
  }
}

Result<void> Runs::take_up(Job loaded) {
  const CpuMilli cpus = loaded.cpus;
  const Bytes memory = loaded.memory;
  if (const auto fine = admission_.read_spec(loaded); !fine) {
    // The machine has changed since: it stays visible, for its owner to change or cancel.
    loaded.unfit = fine.error().message;
  }
  const JobId id = loaded.id;
  Job& job = state_.jobs.insert_or_assign(id, std::move(loaded)).first->second;
  state_.counts.reset();
  state_.note_times(job);
  if (!core::is_active(job.state)) return {};

  // What it was granted, not what it would be granted now.
  job.cpus = cpus;
  job.memory = memory;
  TRY(hold_again(job));
  if (job.run_time.boot != state_.machine.boot_id) {
    // The clock it was measured with began anew. What the other one says is the best there is.
    const WallTime now = state_.clock.wall();
    const WallTime until =
        job.state == core::JobState::suspended ? job.suspended.value_or(now) : now;
    const Millis ran = until - job.start.value_or(until) - job.suspended_total;
    job.run_time.before = std::max(ran, Millis(0));
    job.run_time.since = state_.clock.mono();
  }
  notices_.taken_up(job);
  return clients_.take_up(job);
}

// The machine may have become smaller, and its GPUs may be others.
Result<void> Runs::hold_again(const Job& job) {
  const core::Node& node = state_.ledger.cluster().node(0);
  core::Use use{.node = 0,
                .cpus = std::max(job.cpus, CpuMilli(0)),
                .memory = std::max(job.memory, Bytes(0)),
                .gpus = {}};
  core::Use without = use;
  for (const HeldGpu& held : job.gpus) {
    const auto gpu = std::ranges::find(node.gpus, held.granted.gpu, &core::Gpu::id);
    if (gpu == node.gpus.end()) continue;  // gone, and so nobody else's
    const bool whole = held.granted.whole;
    use.gpus.push_back(
        {.gpu = static_cast<core::GpuIndex>(gpu - node.gpus.begin()),
         .portion = whole ? core::Portion{gpu->memory, node.compute_limit} : held.granted.portion,
         .whole = whole});
  }
  std::ranges::sort(use.gpus, {}, &core::GpuUse::gpu);
  const auto granted = state_.ledger.take_up(job.id, std::move(use));
  if (granted) return {};
  spdlog::error("job {} cannot hold the GPUs it held: {}", job.id, granted.error().message);
  return state_.ledger.take_up(job.id, std::move(without));
}

// What was committed before the daemon went may not have been done: it is said once more.
void Runs::take_up_processes(const Job& job) {
  const bool frozen = job.state == core::JobState::suspended;
  if (job.spec.batch) state_.executor.adopt(job);
  if (job.suspended) {
    if (!job.spec.batch) {
      state_.executor.freeze_allocation(job, frozen);
    } else {
      state_.executor.command(
          job.id, frozen ? node::Command(node::SuspendCommand{}) : node::ResumeCommand{});
    }
  }
  if (job.state != core::JobState::completing) return act_limit(job);
  if (job.spec.batch) {
    state_.executor.command(job.id, node::CancelCommand{});
  } else {
    state_.executor.end_allocation(job, kGonePatience);
  }
}

}  // namespace aliquot::engine
