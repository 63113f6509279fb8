// Which waiting jobs start now, and why the others do not: by priority and age, with backfill. The
// first job that does not fit gets a reservation: the earliest time at which the running jobs'
// limits leave it room. Those behind it may start where they do not delay that.
//
// Pure: a snapshot in, a decision out. Accounts, limits and fair share come in through Rules, as
// priorities and as reasons to wait; preemption too, as running jobs that count as ending now.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "base/ids.hpp"
#include "base/time.hpp"
#include "core/backfill.hpp"
#include "core/cluster.hpp"
#include "core/placement.hpp"
#include "core/policy.hpp"

namespace aliquot::core {

// A job that could start if there were room: not held, begun, its dependencies fulfilled. One that
// may start in several partitions has an entry for each: the first that can start does.
struct QueueEntry {
  JobId job;
  std::int64_t tier = 0;  // of its partition: before any priority
  std::int64_t priority = 0;
  std::uint64_t order = 0;  // of submission
  Shape shape;
  std::optional<Millis> time_limit = {};  // none: unlimited
  std::int64_t task = -1;                 // element of an array
  std::uint32_t partition = 0;            // the caller's number of it
};

inline bool comes_before(const QueueEntry& a, const QueueEntry& b) {
  if (a.tier != b.tier) return a.tier > b.tier;
  if (a.priority != b.priority) return a.priority > b.priority;
  return a.order < b.order;
}

struct RunningEntry {
  Use use;
  std::optional<Millis> left = {};  // until its limit; none: unlimited
};

// Why a job waits that could run, in Slurm's words. What rules say beyond these is a text of
// theirs.
namespace reason {
inline constexpr std::string_view kPriority = "Priority";
inline constexpr std::string_view kResources = "Resources";
inline constexpr std::string_view kNotAvailable = "ReqNodeNotAvail";
}  // namespace reason

// What may keep a job from starting although there is room: limits per user, account, partition.
// Asked in order of the queue; told of every start, so that it can count within one decision.
class Rules {
 public:
  Rules() = default;
  Rules(const Rules&) = delete;
  Rules& operator=(const Rules&) = delete;
  virtual ~Rules() = default;

  // A reason to wait, or nothing. Who waits for a rule blocks nobody behind it.
  [[nodiscard]] virtual std::optional<std::string_view> hold_back(const QueueEntry& entry) = 0;
  virtual void started(const QueueEntry& entry) = 0;
  // One that was told as started in this partition is over, or one that ran before: only in plans.
  virtual void ended(JobId, std::optional<std::uint32_t> /*partition*/) {}
};

struct Start {
  std::size_t entry = 0;  // position in the queue that was given
  Placement placement;
};

struct Wait {
  std::size_t entry = 0;
  std::string_view reason;
  std::optional<Millis> start_in = {};  // the reservation, for the one that has it
};

struct Decision {
  std::vector<Start> starts;
  std::vector<Wait> waits;
};

// The cluster holds exactly the uses of `running`. The queue may be in any order.
Decision schedule(const Cluster& cluster, std::span<const QueueEntry> queue,
                  std::span<const RunningEntry> running, Policy& policy, Rules* rules = nullptr);

}  // namespace aliquot::core
