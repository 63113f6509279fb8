#include "engine/statistics.hpp"

#include <algorithm>

#include "core/job_state.hpp"

namespace aliquot::engine {

void Statistics::cycle(std::int64_t took_us, std::int64_t queue) {
  ++counts.cycles;
  counts.cycle_last_us = took_us;
  counts.cycle_max_us = std::max(counts.cycle_max_us, took_us);
  counts.cycle_total_us += took_us;
  counts.depth_total += queue;
  counts.queue_last = queue;
}

void Statistics::request(const std::string& kind, Uid user, std::int64_t took_us) {
  for (Sum* const sum : {&kinds_[kind], &users_[user]}) {
    ++sum->count;
    sum->total_us += took_us;
  }
}

void Statistics::add_jobs(const show::JobFigures& jobs, std::int64_t times, api::Statistics& to) {
  to.submitted += times * static_cast<std::int64_t>(jobs.submitted);
  to.started += times * static_cast<std::int64_t>(jobs.started);
  for (const auto& [state, count] : jobs.finished) {
    std::int64_t& sum = state == core::long_name(core::JobState::completed)   ? to.completed
                        : state == core::long_name(core::JobState::cancelled) ? to.canceled
                                                                              : to.failed;
    sum += times * static_cast<std::int64_t>(count);
  }
}

void Statistics::reset(WallTime now, const show::JobFigures& jobs) {
  const std::int64_t queue = counts.queue_last;
  counts = {};
  counts.queue_last = queue;
  counts.since_ms = now.ms();
  kinds_.clear();
  users_.clear();
  add_jobs(jobs, -1, counts);
}

}  // namespace aliquot::engine
