#include "engine/statistics.hpp"

#include <algorithm>

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

void Statistics::reset(WallTime now) {
  const std::int64_t queue = counts.queue_last;
  counts = {};
  counts.queue_last = queue;
  counts.since_ms = now.ms();
  kinds_.clear();
  users_.clear();
}

}  // namespace aliquot::engine
