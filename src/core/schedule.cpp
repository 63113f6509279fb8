#include "core/schedule.hpp"

#include <algorithm>
#include <cstdlib>
#include <numeric>
#include <set>
#include <unordered_set>
#include <utility>

namespace aliquot::core {
namespace {

struct Ending {
  Millis in;
  Use use;
};

// The first blocked job's: where it will start, and what is there at that time.
struct Reservation {
  Millis in = Millis(0);
  Placement placement;
  Cluster then;  // everybody who has ended by then is gone, the reserved job is in
};

void must(const Result<void>& result) {
  if (!result) std::abort();  // the snapshot disagrees with itself
}

std::optional<Reservation> reserve(const Cluster& now, std::vector<Ending> endings,
                                   const Shape& shape, Policy& policy) {
  std::ranges::stable_sort(endings, {}, &Ending::in);
  Cluster then = now;
  for (std::size_t i = 0; i < endings.size(); ++i) {
    must(then.give_back(endings[i].use));
    // All that end at one time are gone together.
    if (i + 1 < endings.size() && endings[i + 1].in == endings[i].in) continue;
    if (auto placement = place_by_scan(then, shape, policy)) {
      must(then.take(*placement));
      return Reservation{endings[i].in, std::move(*placement), std::move(then)};
    }
  }
  return std::nullopt;
}

class Pass {
 public:
  Pass(const Cluster& cluster, std::span<const RunningEntry> running, Policy& policy)
      : now_(cluster), policy_(policy) {
    for (const RunningEntry& job : running) {
      endings_.push_back({std::max(job.left.value_or(kForever), Millis(0)), job.use});
    }
  }

  [[nodiscard]] bool reserved() const { return reservation_.has_value(); }
  [[nodiscard]] const Reservation& reservation() const { return *reservation_; }

  // Where the entry may start now without delaying the reservation.
  std::optional<Placement> start(const QueueEntry& entry) {
    const Millis length = entry.time_limit.value_or(kForever);
    // An unlimited job is never over in time, not even before another one's imagined end.
    const bool over_in_time =
        !reservation_ || (entry.time_limit && *entry.time_limit <= reservation_->in);
    // Room only shrinks within a pass: what failed once fails again.
    if (full_.contains(entry.shape)) return std::nullopt;
    if (!over_in_time && delaying_.contains(entry.shape)) return std::nullopt;
    auto placement = place_by_scan(now_, entry.shape, policy_);
    if (!placement) {
      full_.insert(entry.shape);
      return std::nullopt;
    }
    if (!over_in_time && !beside_reservation(*placement)) {
      placement = place_elsewhere(entry.shape);
      if (!placement || !beside_reservation(*placement)) {
        delaying_.insert(entry.shape);
        return std::nullopt;
      }
    }
    must(now_.take(*placement));
    if (!over_in_time) must(reservation_->then.take(*placement));
    endings_.push_back({length, *placement});
    return placement;
  }

  // False where even the end of all running jobs would not make room.
  bool reserve_for(const Shape& shape) {
    reservation_ = reserve(now_, endings_, shape, policy_);
    return reserved();
  }

 private:
  [[nodiscard]] bool beside_reservation(const Placement& placement) const {
    Cluster then = reservation_->then;
    return then.take(placement).has_value();
  }

  // The policy's first choice is in the way of the reserved job: keep off its GPUs.
  std::optional<Placement> place_elsewhere(const Shape& shape) {
    if (shape.kind == Shape::Kind::no_gpu) return std::nullopt;
    Cluster masked = now_;
    for (const GpuUse& gpu : reservation_->placement.gpus) {
      must(masked.set_health(reservation_->placement.node, gpu.gpu, Health::draining));
    }
    return place_by_scan(masked, shape, policy_);
  }

  Cluster now_;
  Policy& policy_;
  std::vector<Ending> endings_;
  std::optional<Reservation> reservation_;
  std::unordered_set<Shape, ShapeHash> full_;
  std::unordered_set<Shape, ShapeHash> delaying_;
};

}  // namespace

Decision schedule(const Cluster& cluster, std::span<const QueueEntry> queue,
                  std::span<const RunningEntry> running, Policy& policy, Rules* rules) {
  std::vector<std::size_t> order(queue.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order, [&](std::size_t a, std::size_t b) {
    if (queue[a].tier != queue[b].tier) return queue[a].tier > queue[b].tier;
    if (queue[a].priority != queue[b].priority) return queue[a].priority > queue[b].priority;
    return queue[a].order < queue[b].order;
  });

  Decision decision;
  std::set<std::pair<JobId, std::int64_t>> started;
  Pass pass(cluster, running, policy);
  for (const std::size_t position : order) {
    const QueueEntry& entry = queue[position];
    if (started.contains({entry.job, entry.task})) continue;
    if (rules != nullptr) {
      if (const auto why = rules->hold_back(entry)) {
        decision.waits.push_back({position, *why});
        continue;
      }
    }
    if (auto placement = pass.start(entry)) {
      if (rules != nullptr) rules->started(entry);
      started.insert({entry.job, entry.task});
      decision.starts.push_back({position, std::move(*placement)});
      continue;
    }
    Wait wait{position, reason::kPriority};
    if (!pass.reserved()) {
      // Whoever waits for more than the end of jobs (a GPU being repaired, a foreign process) gets
      // no reservation and blocks nobody.
      wait.reason = ever_fits(cluster, entry.shape) ? reason::kResources : reason::kNotAvailable;
      if (pass.reserve_for(entry.shape)) wait.start_in = pass.reservation().in;
    }
    decision.waits.push_back(wait);
  }
  return decision;
}

}  // namespace aliquot::core
