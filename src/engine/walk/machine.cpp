#include "engine/walk/machine.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "engine/job_info.hpp"

namespace aliquot::engine::walk {

WalkMachine::Unit WalkMachine::unit_of(const api::JobInfo& job) {
  return {job.array_job_id.value_or(job.id), job.array_task_id.value_or(-1)};
}

const Run* WalkMachine::find(const std::string& mark) const {
  const auto found = std::ranges::find(runs_, mark, &Run::mark);
  return found == runs_.end() ? nullptr : &*found;
}

Run* WalkMachine::named(const std::string& mark) {
  const auto found = std::ranges::find(runs_, mark, &Run::mark);
  return found == runs_.end() ? nullptr : &*found;
}

Run* WalkMachine::of(JobId job) {
  const auto found = std::ranges::find_if(
      runs_, [&](const Run& run) { return run.job.id == job.value() && run.alive(); });
  return found == runs_.end() ? nullptr : &*found;
}

// Nothing is granted twice: told by what runs, not by what anyone wrote down.
void WalkMachine::check_room(const api::JobInfo& job) {
  std::int64_t cpus = job.cpus;
  std::int64_t memory = job.memory;
  for (const Run& run : runs_) {
    if (!run.alive()) continue;
    if (run.job.id == job.id) {
      throw Violation(fmt::format("job {} is started while it runs", job.id));
    }
    cpus += run.job.cpus;
    memory += run.job.memory;
  }
  if (kOneCpu * cpus > capacity.cpus) {
    throw Violation(fmt::format("job {}: {} CPUs are held on this machine", job.id, cpus));
  }
  if (Bytes(memory) > capacity.memory) {
    throw Violation(fmt::format("job {}: {} bytes are held on this machine", job.id, memory));
  }
  for (const api::GpuHold& mine : job.gpus) {
    core::Portion sum{Bytes(mine.memory), Compute(mine.compute)};
    for (const Run& run : runs_) {
      if (!run.alive()) continue;
      for (const api::GpuHold& theirs : run.job.gpus) {
        if (theirs.uuid != mine.uuid) continue;
        if (theirs.whole || mine.whole) {
          throw Violation(fmt::format("{} is job {}'s alone and given to job {}", mine.uuid,
                                      mine.whole ? job.id : run.job.id,
                                      mine.whole ? run.job.id : job.id));
        }
        sum.memory += Bytes(theirs.memory);
        sum.compute += Compute(theirs.compute);
      }
    }
    const auto gpu = std::ranges::find(capacity.gpus, GpuId(mine.uuid), &core::Gpu::id);
    if (gpu == capacity.gpus.end()) {
      throw Violation(fmt::format("job {} has {}, which is not there", job.id, mine.uuid));
    }
    if (sum.memory > gpu->memory || sum.compute > capacity.compute_limit) {
      throw Violation(
          fmt::format("{} is given out twice, the last time to job {}", mine.uuid, job.id));
    }
  }
}

void WalkMachine::begin(Run run) {
  check_room(run.job);
  if (held_back.contains(unit_of(run.job))) {
    throw Violation(fmt::format("job {} starts, held by an administrator", run.job.id));
  }
  std::erase_if(runs_, [&](const Run& before) { return before.job.id == run.job.id; });
  runs_.push_back(std::move(run));
}

void WalkMachine::runs_now(Run& run) {
  run.phase = Phase::running;
  ++times_run[unit_of(run.job)];
}

void WalkMachine::start(StartOrder order) {
  fuse_.burn();
  Run run{.job = to_info(order.job), .mark = order.job.mark, .batch = order.job.spec.batch};
  if (run.batch) run.limit_ms = run.job.time_limit_ms;
  run.watched = true;
  begin(std::move(run));
  fuse_.burn();
}

void WalkMachine::start_step(StepOrder order) {
  fuse_.burn();
  const Job& job = order.job;
  const Run* run = find(job.mark);
  NewStep step{job.run(), order.step};
  if (run == nullptr || !run->alive()) {
    // A start that the daemon did not live to carry out has its client still to come.
    if (job.spec.batch && !expects(job.id) && run == nullptr) {
      throw Violation(fmt::format("a step in job {}, of which nothing runs", job.id));
    }
    step.refused = !job.spec.batch;
  }
  new_steps_.push_back(step);
}

void WalkMachine::adopt(const Job& job) {
  adopted_.push_back({job.id, job.restarts, job.mark});
  fuse_.burn();
}

void WalkMachine::obey(Run& run, const node::Command& command) {
  if (std::holds_alternative<node::CancelCommand>(command)) run.cancelled = true;
  if (std::holds_alternative<node::SuspendCommand>(command)) run.frozen = true;
  if (std::holds_alternative<node::ResumeCommand>(command)) run.frozen = false;
  if (const auto* limit = std::get_if<node::LimitCommand>(&command)) {
    run.limit_ms = limit->limit ? std::optional(limit->limit->value()) : std::nullopt;
  }
}

void WalkMachine::command(JobId job, const node::Command& command) {
  fuse_.burn();
  Run* run = of(job);
  if (run != nullptr && run->watched && run->phase == Phase::running) {
    obey(*run, command);
  } else if (expects(job) || run != nullptr) {
    waiting_[job].push_back(command);
  }
  fuse_.burn();
}

void WalkMachine::freeze_allocation(const Job& job, bool frozen) {
  fuse_.burn();
  if (Run* run = named(job.mark)) run->frozen = frozen;
}

void WalkMachine::end_allocation(const Job& job, Millis) {
  fuse_.burn();
  Run* run = named(job.mark);
  if (run != nullptr) {
    if (run->ending) return;
    run->ending = true;
  }
  node::ExitRecord record;
  record.job_id = job.id.value();
  record.attempt = job.restarts;
  endings_.push_back(record);
  fuse_.burn();
}

Result<std::vector<Leftover>> WalkMachine::leftovers() {
  std::vector<Leftover> left;
  for (const Run& run : runs_) {
    left.push_back({{JobId(run.job.id), run.job.restarts}, Uid(run.job.uid), run.mark});
  }
  return left;
}

void WalkMachine::forget(const node::Run& gone, Uid) {
  fuse_.burn();
  const auto meant = [&](const Run& run) {
    return run.job.id == gone.job.value() && run.job.restarts == gone.attempt;
  };
  if (std::ranges::any_of(runs_, [&](const Run& run) { return meant(run) && run.alive(); })) {
    throw Violation(fmt::format("job {} is forgotten while it runs", gone.job));
  }
  std::erase_if(runs_, meant);
}

bool WalkMachine::expects(JobId job) const {
  return std::ranges::any_of(adopted_, [&](const Adopted& one) { return one.job == job; });
}

bool WalkMachine::quiet() const {
  return adopted_.empty() && endings_.empty() && waiting_.empty() && new_steps_.empty() &&
         std::ranges::none_of(runs_, [](const Run& run) {
           return run.phase == Phase::launching || (run.phase == Phase::lost && !run.told) ||
                  (run.phase == Phase::ended && !run.told) ||
                  (run.phase == Phase::running && run.cancelled && !run.frozen);
         });
}

void WalkMachine::time_passes(Millis by) {
  for (Run& run : runs_) {
    if (run.phase == Phase::running && !run.frozen) run.ran += by;
  }
}

void WalkMachine::finish(Run& run, node::EndReason reason, int code) {
  run.phase = Phase::ended;
  run.record.job_id = run.job.id;
  run.record.attempt = run.job.restarts;
  run.record.reason = reason;
  run.record.exit_code = code;
}

void WalkMachine::go_on(ExecutorEvents& events, std::uint32_t dice) {
  // Adopted: whoever is found is watched from now on, whoever is not never was.
  for (const Adopted& one : std::exchange(adopted_, {})) {
    Run* run = named(one.mark);
    if (run == nullptr) {
      waiting_.erase(one.job);
      events.on_never_started(one.job, one.attempt, "");
    } else {
      run->watched = true;
    }
  }
  for (std::size_t i = 0; i < runs_.size(); ++i) {
    Run& run = runs_[i];
    const JobId id(run.job.id);
    if (run.phase == Phase::launching && run.watched) {
      dice = dice * 1'664'525 + 1'013'904'223;
      if (dice >> 28U == 0) {
        const std::int64_t attempt = run.job.restarts;
        runs_.erase(runs_.begin() + static_cast<std::ptrdiff_t>(i--));
        waiting_.erase(id);
        events.on_never_started(id, attempt, "no such folder");
        continue;
      }
      runs_now(run);
      events.on_enforced(id, run.job.restarts, "library");
      if (!run.batch) events.on_admitted(id, run.job.restarts, {});
    }
    if (run.phase == Phase::running && run.watched && run.batch) {
      if (const auto queued = waiting_.find(id); queued != waiting_.end()) {
        for (const node::Command& one : queued->second) obey(run, one);
        waiting_.erase(queued);
      }
    }
    if (run.phase == Phase::running && run.batch && !run.frozen) {
      if (run.cancelled) finish(run, node::EndReason::cancelled, 0);
      if (run.limit_ms && run.ran >= Millis(*run.limit_ms)) {
        finish(run, node::EndReason::timeout, 0);
      }
    }
  }
  for (const NewStep& one : std::exchange(new_steps_, {})) {
    Result<Environment> added = Environment{};
    if (one.refused) added = fail(Error::Code::unavailable, "nothing runs there");
    events.on_step_admitted(one.run.job, one.run.attempt, one.step, added);
  }
  // By number: news may have the engine forget something at once.
  for (std::size_t i = 0; i < runs_.size(); ++i) {
    Run& run = runs_[i];
    if (!run.watched || run.alive() || std::exchange(run.told, true)) continue;
    waiting_.erase(JobId(run.job.id));
    if (run.phase == Phase::lost) {
      events.on_lost(JobId(run.job.id), run.job.restarts);
    } else {
      events.on_ended(run.record);
    }
  }
  for (const node::ExitRecord& record : std::exchange(endings_, {})) {
    std::erase_if(runs_, [&](const Run& run) {
      return run.job.id == record.job_id && run.job.restarts == record.attempt;
    });
    waiting_.erase(JobId(record.job_id));
    events.on_ended(record);
  }
}

void WalkMachine::end(std::size_t which, int exit_code) {
  Run& run = runs_[which];
  if (run.phase == Phase::running && run.batch && !run.frozen) {
    finish(run, node::EndReason::none, exit_code);
  }
}

void WalkMachine::lose(std::size_t which) {
  if (runs_[which].phase == Phase::running && runs_[which].batch) runs_[which].phase = Phase::lost;
}

void WalkMachine::daemon_died(std::uint32_t dice) {
  adopted_.clear();
  endings_.clear();
  waiting_.clear();
  new_steps_.clear();
  for (std::size_t i = 0; i < runs_.size(); ++i) {
    Run& run = runs_[i];
    run.watched = !run.batch;
    run.ending = false;
    run.told = false;
    if (run.phase != Phase::launching) continue;
    // Its stepd, or its client, was on the way: it arrives, or not.
    dice = dice * 1'664'525 + 1'013'904'223;
    if (dice >> 31U == 0) {
      runs_now(run);
    } else {
      runs_.erase(runs_.begin() + static_cast<std::ptrdiff_t>(i--));
    }
  }
}

void WalkMachine::power_lost(std::uint32_t dice) {
  daemon_died(dice);
  for (std::size_t i = 0; i < runs_.size(); ++i) {
    Run& run = runs_[i];
    // What was written last may be gone, and then nothing says that it ran.
    dice = dice * 1'664'525 + 1'013'904'223;
    if (run.phase == Phase::ended || (run.batch && dice >> 31U == 0)) {
      if (run.alive()) run.phase = Phase::lost;
    } else {
      runs_.erase(runs_.begin() + static_cast<std::ptrdiff_t>(i--));
    }
  }
}

}  // namespace aliquot::engine::walk
