#include "core/schedule.hpp"

#include <algorithm>
#include <numeric>
#include <set>
#include <unordered_map>
#include <utility>

namespace aliquot::core {
namespace {

// The shapes of one decision, by number: they are compared once each.
class Shapes {
 public:
  explicit Shapes(std::span<const QueueEntry> queue) {
    std::unordered_map<Shape, std::size_t, ShapeHash> known;
    for (const QueueEntry& entry : queue) {
      numbers_.push_back(known.try_emplace(entry.shape, known.size()).first->second);
    }
    count_ = known.size();
  }
  [[nodiscard]] std::size_t count() const { return count_; }
  [[nodiscard]] std::size_t of(std::size_t entry) const { return numbers_[entry]; }

 private:
  std::vector<std::size_t> numbers_;
  std::size_t count_ = 0;
};

}  // namespace

Decision schedule(const Cluster& cluster, std::span<const QueueEntry> queue,
                  std::span<const RunningEntry> running, Policy& policy, Rules* rules) {
  std::vector<std::size_t> order(queue.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(
      order, [&](std::size_t a, std::size_t b) { return comes_before(queue[a], queue[b]); });

  Decision decision;
  std::set<std::pair<JobId, std::int64_t>> started;
  Cluster now = cluster;
  Endings endings;
  for (const RunningEntry& job : running) {
    std::optional<Millis> left;
    if (job.left) left = std::max(*job.left, Millis(0));
    endings.add(left, job.use);
  }
  const Shapes shapes(queue);
  Backfill look(now, endings, policy);
  look.begin(Millis(0), shapes.count());
  for (const std::size_t position : order) {
    const QueueEntry& entry = queue[position];
    if (started.contains({entry.job, entry.task})) continue;
    if (rules != nullptr) {
      if (const auto why = rules->hold_back(entry)) {
        decision.waits.push_back({position, *why});
        continue;
      }
    }
    if (auto placement = look.start({shapes.of(position), entry.shape, entry.time_limit})) {
      if (rules != nullptr) rules->started(entry);
      started.insert({entry.job, entry.task});
      decision.starts.push_back({position, std::move(*placement)});
      continue;
    }
    Wait wait{position, reason::kPriority};
    if (!look.reserved()) {
      // Whoever waits for more than the end of jobs (a GPU being repaired, a foreign process) gets
      // no reservation and blocks nobody.
      wait.reason = ever_fits(cluster, entry.shape) ? reason::kResources : reason::kNotAvailable;
      if (look.reserve_for(entry.shape)) wait.start_in = look.reserved_in();
    }
    decision.waits.push_back(wait);
  }
  return decision;
}

}  // namespace aliquot::core
