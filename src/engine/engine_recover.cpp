// Taking up what the record says, when the daemon comes back.
#include <spdlog/spdlog.h>

#include <algorithm>

#include "base/text.hpp"
#include "engine/engine.hpp"

namespace aliquot::engine {
Result<void> Engine::read_drained() {
  drained_.reset();
  const auto note = TRY(store_.note(std::string(kDrainNote)));
  if (!note) return {};
  const auto words = aliquot::split(*note, ' ');
  Drained drained;
  if (words.size() >= 3) {
    drained.since_ms = parse_digits(words[0]).value_or(0);
    drained.uid = static_cast<std::uint32_t>(parse_digits(words[1]).value_or(0));
    drained.reason = note->substr(words[0].size() + words[1].size() + 2);
  }
  drained_ = std::move(drained);
  return {};
}

Result<void> Engine::recover() {
  const auto left = TRY(executor_.leftovers());
  last_id_ = TRY(store_.last_id());
  const std::int64_t recorded = last_id_;
  for (const Leftover& one : left) last_id_ = std::max(last_id_, one.run.job.value());
  if (last_id_ > recorded) TRY(store_.keep_last_id(last_id_));
  TRY(read_drained());
  Store::Live live = TRY(store_.load_live());
  for (Job& job : live.jobs) TRY(take_up(std::move(job)));
  end_unknown(left, live);
  std::vector<JobId> abandoned;
  for (auto& [id, job] : jobs_) {
    if (core::is_active(job.state)) {
      if (!job.spec.batch) {
        Client& client = clients_[id];
        if (!job.spec.detached) client.reattach_by = clock_.mono() + kReattach;
      }
      take_up_processes(job);
    } else if (!job.spec.batch) {
      abandoned.push_back(id);
    }
  }
  for (const JobId id : abandoned) {
    // Whoever waited for it lost the daemon, and cannot hear that it starts.
    jobs_.at(id).info.reason_detail = "the command that asked for it lost the daemon";
    finish(jobs_.at(id), core::JobState::cancelled, std::string(core::reason::kNone));
  }
  return {};
}

// What runs, or may, and is not on record as running: the record was lost, or is an old one, or a
// row cannot be read. What it holds is not known, and so not what is free, until nothing of it is
// left. Of what ended just before the daemon did, this clears away the files.
void Engine::end_unknown(const std::vector<Leftover>& left, const Store::Live& live) {
  std::map<node::Run, Leftover> unknown;
  for (const Leftover& one : left) {
    const Job* job = find(one.run.job);
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
    const auto known = store_.facts(run.job, std::nullopt);
    if (known && !*known) {
      spdlog::error("job {} is not on record and may run: it is ended", run.job);
    }
    Job job;
    job.info.id = run.job.value();
    job.info.uid = one.uid.value();
    job.info.restarts = run.attempt;
    job.mark = one.mark;
    unknown_.emplace(run, Unknown{one.uid});
    executor_.end_allocation(job, kGonePatience);
  }
}

// A job of the record into memory, with what it holds and the steps that run.
Result<void> Engine::take_up(Job loaded) {
  const api::JobInfo was = loaded.info;
  if (const auto fine = read_spec(loaded); !fine) {
    // The machine has changed since: it stays visible, for its owner to change or cancel.
    loaded.unfit = fine.error().error.message;
  }
  const JobId id = loaded.id();
  Job& job = jobs_.insert_or_assign(id, std::move(loaded)).first->second;
  counts_.reset();
  note_times(job);
  if (!core::is_active(job.state)) return {};

  // What it was granted, not what it would be granted now.
  job.info.cpus = was.cpus;
  job.info.memory = was.memory;
  TRY(hold_again(job));
  if (job.run_time.boot != machine_.boot_id) {
    // The clock it was measured with began anew. What the other one says is the best there is.
    const std::int64_t until = job.state == core::JobState::suspended
                                   ? job.info.suspend_ms.value_or(clock_.wall().ms())
                                   : clock_.wall().ms();
    const std::int64_t ran = until - job.info.start_ms.value_or(until) - was.suspended_total_ms;
    job.run_time.before = Millis(std::max<std::int64_t>(ran, 0));
    job.run_time.since = clock_.mono();
  }
  for (api::StepInfo& step : TRY(store_.steps(id))) {
    const auto number = parse_digits(step.id);
    if (!number) continue;  // the batch script's
    next_step_[id] = std::max(next_step_[id], *number + 1);
    if (!step.end_ms) steps_[id][*number] = std::move(step);
  }
  return {};
}

// The machine may have become smaller, and its GPUs may be others.
Result<void> Engine::hold_again(const Job& job) {
  const core::Node& node = ledger_.cluster().node(0);
  core::Use use{.node = 0,
                .cpus = kOneCpu * std::max<std::int64_t>(job.info.cpus, 0),
                .memory = Bytes(std::max<std::int64_t>(job.info.memory, 0)),
                .gpus = {}};
  core::Use without = use;
  for (const api::GpuHold& held : job.info.gpus) {
    const auto gpu = std::ranges::find(node.gpus, GpuId(held.uuid), &core::Gpu::id);
    if (gpu == node.gpus.end()) continue;  // gone, and so nobody else's
    const core::Portion portion = held.whole
                                      ? core::Portion{gpu->memory, node.compute_limit}
                                      : core::Portion{Bytes(held.memory), Compute(held.compute)};
    use.gpus.push_back({.gpu = static_cast<core::GpuIndex>(gpu - node.gpus.begin()),
                        .portion = portion,
                        .whole = held.whole});
  }
  std::ranges::sort(use.gpus, {}, &core::GpuUse::gpu);
  const auto granted = ledger_.take_up(job.id(), std::move(use));
  if (granted) return {};
  spdlog::error("job {} cannot hold the GPUs it held: {}", job.id(), granted.error().message);
  return ledger_.take_up(job.id(), std::move(without));
}

// What was committed before the daemon went may not have been done: it is said once more.
void Engine::take_up_processes(const Job& job) {
  const bool frozen = job.state == core::JobState::suspended;
  if (job.spec.batch) executor_.adopt(job);
  if (job.info.suspend_ms) {
    if (!job.spec.batch) {
      executor_.freeze_allocation(job, frozen);
    } else {
      executor_.command(job.id(),
                        frozen ? node::Command(node::SuspendCommand{}) : node::ResumeCommand{});
    }
  }
  if (job.state != core::JobState::completing) return act_limit(job);
  if (job.spec.batch) {
    executor_.command(job.id(), node::CancelCommand{});
  } else {
    executor_.end_allocation(job, kGonePatience);
  }
}

}  // namespace aliquot::engine
