// Who is before a job, and what its owner could do about it: for `aliquot why`.
#include <algorithm>
#include <set>
#include <utility>

#include "engine/queue.hpp"
#include "engine/quotas.hpp"
#include "engine/runs.hpp"

namespace aliquot::engine {
namespace {

// A limit that is over in time even if it is asked for a moment later, as people write it.
Millis comfortably_below(Millis length) {
  if (length >= core::kForever) return days(1);
  const Millis below = length - std::max(minutes(1), Millis(length.value() / 20));
  const Millis step = below >= hours(2) ? minutes(10) : minutes(1);
  return step * (std::max(below, Millis(0)) / step);
}

}  // namespace

std::optional<Queue::Before> Queue::before(const Job& job) {
  std::vector<core::QueueEntry> queue;
  weigh_jobs();
  if (held_up() || !prepare_entries(queue)) return std::nullopt;
  const auto mine = std::ranges::find(queue, job.id, &core::QueueEntry::job);
  if (mine == queue.end()) return std::nullopt;
  Before before;
  const core::QueueEntry* first = nullptr;
  std::set<std::pair<JobId, std::int64_t>> counted;  // in several partitions once
  for (const core::QueueEntry& entry : queue) {
    if (entry.job == job.id || !core::comes_before(entry, *mine)) continue;
    if (counted.insert({entry.job, entry.task}).second) ++before.count;
    if (first == nullptr || core::comes_before(entry, *first)) first = &entry;
  }
  if (first != nullptr) before.first = state_.find(first->job);

  const auto running = running_entries();
  const auto decide = [&] {
    const auto rules = Quotas(state_).rules(queue);
    return core::schedule(state_.ledger.cluster(), queue, running, *state_.policy, rules.get());
  };
  const core::Decision decision = decide();
  const auto reserved = std::ranges::find_if(
      decision.waits, [](const core::Wait& wait) { return wait.start_in.has_value(); });
  if (reserved == decision.waits.end() || queue[reserved->entry].job == job.id) return before;
  before.reserved = state_.find(queue[reserved->entry].job);
  before.reserved_in = reserved->start_in;

  const Millis shorter = comfortably_below(*reserved->start_in);
  if (shorter < minutes(1) || (job.time_limit && *job.time_limit <= shorter)) return before;
  for (core::QueueEntry& entry : queue) {
    if (entry.job == job.id) entry.time_limit = shorter;
  }
  const core::Decision otherwise = decide();
  const bool starts = std::ranges::any_of(
      otherwise.starts, [&](const core::Start& start) { return queue[start.entry].job == job.id; });
  if (starts) before.shorter = shorter;
  return before;
}

}  // namespace aliquot::engine
