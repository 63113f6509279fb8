// Limits on what running jobs hold: those of one user, account, QOS or partition together. Whose
// jobs count together is a pot; which pots a job is in and what Slurm calls a limit of one is the
// engine's to say. Sums and comparisons only.
//
// As Rules: a job that would bring one of its pots over the edge does not start, so that every
// limit holds at every instant. A limit that was made lower than what is held ends nothing.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/schedule.hpp"

namespace aliquot::core {

// GPUs count in 1/10,000, a share as the part that its compute is; CPUs in 1/1,000; memory in
// bytes; jobs one by one.
enum class Measure : std::uint8_t { gpus, cpus, memory, jobs };
inline constexpr std::size_t kMeasures = 4;

template <class T>
struct PerMeasure {
  std::array<T, kMeasures> all = {};
  T& operator[](Measure measure) { return all[static_cast<std::size_t>(measure)]; }
  const T& operator[](Measure measure) const { return all[static_cast<std::size_t>(measure)]; }
  friend bool operator==(const PerMeasure&, const PerMeasure&) = default;
};
using Tally = PerMeasure<std::int64_t>;
using Ceiling = PerMeasure<std::optional<std::int64_t>>;  // absent: no limit

// The first measure in which `held` and `more` together are over it. What takes nothing of a
// measure is never over there.
std::optional<Measure> over(const Ceiling& most, const Tally& held, const Tally& more);

struct Pot {
  Ceiling most;
  PerMeasure<std::string_view> reasons;  // what waits for it says so
  Tally held = {};
};

// What a job counts, and where.
struct Claim {
  Tally wants;
  std::vector<std::size_t> pots;
  std::string_view never = {};  // why it cannot start at all: a limit on one job alone
};

struct Broken {
  std::size_t pot = 0;
  Measure measure = Measure::gpus;
};

class Limits {
 public:
  std::size_t add(Pot pot);
  void take(const Claim& claim) { add(claim, 1); }
  void give_back(const Claim& claim) { add(claim, -1); }
  [[nodiscard]] const Pot& pot(std::size_t number) const { return pots_[number]; }
  // The first limit that this one would break on top of what is held.
  [[nodiscard]] std::optional<Broken> broken_by(const Claim& claim) const;

  // Whether there is any.
  [[nodiscard]] bool empty() const { return pots_.empty(); }

 private:
  void add(const Claim& claim, std::int64_t times);
  std::vector<Pot> pots_;
};

// Whole and by itself, as a plan needs it that outlives what it was made from: what each job counts
// is noted before.
class LimitRules final : public Rules {
 public:
  explicit LimitRules(Limits limits) : limits_(std::move(limits)) {}

  // The job in this partition; told of all before anything is asked.
  void note(JobId job, std::uint32_t partition, Claim claim) {
    claims_[job].emplace_back(partition, std::move(claim));
  }
  // One that runs, and is in the sums already.
  void runs(JobId job, Claim claim) { running_[job].push_back({std::nullopt, std::move(claim)}); }

  [[nodiscard]] std::optional<std::string_view> hold_back(const QueueEntry& entry) override;
  void started(const QueueEntry& entry) override;
  void ended(JobId job, std::optional<std::uint32_t> partition) override;

 private:
  [[nodiscard]] const Claim* find(const QueueEntry& entry) const;

  Limits limits_;
  std::unordered_map<JobId, std::vector<std::pair<std::uint32_t, Claim>>> claims_;
  // Elements of one array may run in several partitions, and count differently there.
  struct Running {
    std::optional<std::uint32_t> partition;
    Claim claim;
  };
  std::unordered_map<JobId, std::vector<Running>> running_;
};

}  // namespace aliquot::core
