// One look at the queue at one moment: what starts where, entry by entry in the order they are
// asked, with one reservation for the first that does not fit. schedule() takes one look; a plan
// takes one at every end to come. Both decide by this, so that what is foretold is what happens.
//
// It changes the cluster and the list of endings of whoever made it; which entries there are and in
// which order is theirs as well.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <vector>

#include "base/time.hpp"
#include "core/cluster.hpp"
#include "core/placement.hpp"
#include "core/policy.hpp"

namespace aliquot::core {

// An unlimited job is taken to end after a year, as in Slurm.
inline constexpr Millis kForever = days(365);

// What runs, by when it ends.
class Endings {
 public:
  struct Ending {
    Millis at;
    Use use;
    std::size_t who = 0;  // whatever the caller wants to know of it
  };
  // No time: unlimited.
  void add(std::optional<Millis> at, Use use, std::size_t who = 0);
  // Who ends next, and takes it out.
  [[nodiscard]] const Ending* next() const { return limited_.empty() ? nullptr : &limited_.back(); }
  Ending take_next();

  // Calls `freed(at, use)` for each, by time, until it says true; the unlimited end together.
  template <class Freed>
  void walk(Millis now, Freed freed) const;

 private:
  std::vector<Ending> limited_;  // the next one last
  std::vector<Use> unlimited_;
};

// The shapes asked for in one look are numbered by the caller, from 0.
class Backfill {
 public:
  Backfill(Cluster& cluster, Endings& running, Policy& policy)
      : now_(cluster), running_(running), policy_(policy), then_(cluster) {}

  // Everything is looked at anew, at this moment.
  void begin(Millis now, std::size_t shapes);

  struct Candidate {
    std::size_t number;  // of its shape
    const Shape& shape;
    std::optional<Millis> limit;
    std::size_t who = 0;  // for Endings
  };
  // Where it may start now without delaying the reservation; then it runs.
  std::optional<Placement> start(const Candidate& candidate);
  // Room only shrinks within a look: what failed once fails again.
  [[nodiscard]] bool is_full(std::size_t shape) const { return full_[shape] != 0; }
  [[nodiscard]] bool may_start(std::size_t shape, std::optional<Millis> limit) const {
    return full_[shape] == 0 && (delaying_[shape] == 0 || is_over_in_time(limit));
  }

  // For the first that does not fit: the earliest time at which the running jobs' limits leave it
  // room. False where even the end of all of them would not.
  bool reserve_for(const Shape& shape);
  [[nodiscard]] bool reserved() const { return reserved_at_.has_value(); }
  [[nodiscard]] Millis reserved_in() const { return *reserved_at_ - at_; }

 private:
  std::optional<Placement> place(const Cluster& cluster, const Shape& shape);
  std::optional<Placement> place_elsewhere(const Shape& shape);
  // An unlimited job is never over in time, not even before another one's imagined end.
  [[nodiscard]] bool is_over_in_time(std::optional<Millis> limit) const {
    // Longer than anything: `limit && *limit` GCC 12 takes for uninitialised, once it is inlined.
    constexpr Millis kNever(std::numeric_limits<std::int64_t>::max());
    return !reserved() || limit.value_or(kNever) <= reserved_in();
  }

  Cluster& now_;
  Endings& running_;
  Policy& policy_;
  Millis at_ = {};
  std::optional<Millis> reserved_at_;
  Placement reserved_;
  // With a reservation: everybody who has ended by then is gone, the reserved job is in. It keeps
  // its memory from one look to the next.
  Cluster then_;
  Candidates fit_;                  // likewise
  std::vector<std::uint8_t> full_;  // flags, by shape
  std::vector<std::uint8_t> delaying_;
};

template <class Freed>
void Endings::walk(Millis now, Freed freed) const {
  const Millis never = now + kForever;
  bool rest = false;
  const auto walk_rest = [&] {
    rest = true;
    for (std::size_t i = 0; i < unlimited_.size(); ++i) {
      if (freed(never, unlimited_[i], i + 1 == unlimited_.size())) return true;
    }
    return false;
  };
  for (std::size_t i = limited_.size(); i-- > 0;) {
    const Ending& one = limited_[i];
    if (!rest && one.at > never && walk_rest()) return;
    // All that end at one time are gone together.
    if (freed(one.at, one.use, i == 0 || limited_[i - 1].at != one.at)) return;
  }
  if (!rest) (void)walk_rest();
}

}  // namespace aliquot::core
