#include "core/preempt.hpp"

#include <algorithm>
#include <cstdlib>
#include <numeric>
#include <set>

namespace aliquot::core {
namespace {

// Combinations that are tried for one answer: well below a tick of the loop.
constexpr std::size_t kMostTries = 4'000;
// Waiting jobs that are looked at in one decision.
constexpr std::size_t kMostWaiting = 256;

void must_hold(const Result<void>& result) {
  if (!result) std::abort();  // the snapshot disagrees with itself
}

bool has_room(const Cluster& cluster, const Shape& shape) {
  Candidates fit;
  for (NodeIndex node = 0; node < cluster.size(); ++node) {
    if (find_candidates(cluster, shape, node, fit)) return true;
  }
  return false;
}

class Choice {
 public:
  Choice(const Cluster& cluster, const Shape& shape, std::span<const Candidate> candidates)
      : cluster_(cluster), shape_(shape), all_(candidates), order_(candidates.size()) {
    std::iota(order_.begin(), order_.end(), std::size_t{0});
    std::ranges::stable_sort(order_, {}, [&](std::size_t i) { return all_[i].loss; });
  }

  std::optional<std::vector<std::size_t>> run() {
    if (!enough(order_)) return std::nullopt;
    // Something to begin with, from several ends: the cheapest first, the largest first, and one
    // GPU after the other, the emptiest first.
    consider(order_);
    auto largest = order_;
    std::ranges::stable_sort(largest, std::greater<>(),
                             [&](std::size_t i) { return size_of(all_[i].use); });
    consider(largest);
    for (GpuIndex gpu = 0; gpu < cluster_.gpus(0).size(); ++gpu) {
      auto nearest = order_;
      std::stable_partition(nearest.begin(), nearest.end(), [&](std::size_t i) {
        return std::ranges::any_of(all_[i].use.gpus,
                                   [&](const GpuUse& use) { return use.gpu == gpu; });
      });
      consider(nearest);
    }
    // Then everything smaller, and of that size everything cheaper.
    const std::size_t most = best_.size();
    for (std::size_t size = 1; size <= most && tries_ < kMostTries; ++size) {
      wanted_ = size;
      chosen_.clear();
      search(0, cluster_, 0);
      if (best_.size() <= size) break;
    }
    std::ranges::sort(best_);
    return best_;
  }

 private:
  static std::int64_t size_of(const Use& use) {
    std::int64_t compute = 0;
    for (const GpuUse& gpu : use.gpus) compute += gpu.portion.compute.value();
    return compute * 1'000'000 + use.cpus.value();
  }

  [[nodiscard]] std::int64_t loss(const std::vector<std::size_t>& some) const {
    std::int64_t sum = 0;
    for (const std::size_t i : some) sum += all_[i].loss;
    return sum;
  }

  [[nodiscard]] bool enough(const std::vector<std::size_t>& some) const {
    Cluster without = cluster_;
    for (const std::size_t i : some) must_hold(without.give_back(all_[i].use));
    return has_room(without, shape_);
  }

  void keep(const std::vector<std::size_t>& some) {
    if (best_.empty() || some.size() < best_.size() ||
        (some.size() == best_.size() && loss(some) < loss(best_))) {
      best_ = some;
    }
  }

  // In this order until it is enough; then whoever is superfluous stays, the dearest first.
  void consider(const std::vector<std::size_t>& order) {
    Cluster without = cluster_;
    std::vector<std::size_t> some;
    for (const std::size_t i : order) {
      must_hold(without.give_back(all_[i].use));
      some.push_back(i);
      if (has_room(without, shape_)) break;
    }
    std::ranges::stable_sort(some, std::greater<>(), [&](std::size_t i) { return all_[i].loss; });
    for (std::size_t at = 0; at < some.size();) {
      auto fewer = some;
      fewer.erase(fewer.begin() + static_cast<std::ptrdiff_t>(at));
      if (enough(fewer)) {
        some = std::move(fewer);
      } else {
        ++at;
      }
    }
    keep(some);
  }

  // Combinations of `wanted_` in order of loss, from `begin` on.
  void search(std::size_t begin, const Cluster& without, std::int64_t lost) {
    if (chosen_.size() == wanted_) {
      ++tries_;
      if (has_room(without, shape_)) keep(chosen_);
      return;
    }
    const std::size_t left = wanted_ - chosen_.size();
    for (std::size_t i = begin; i + left <= order_.size(); ++i) {
      if (tries_ >= kMostTries) return;
      const Candidate& one = all_[order_[i]];
      // Sorted by loss: what follows is no cheaper.
      const bool as_many = best_.size() == wanted_;
      if (as_many && lost + one.loss * static_cast<std::int64_t>(left) >= loss(best_)) return;
      Cluster next = without;
      must_hold(next.give_back(one.use));
      chosen_.push_back(order_[i]);
      search(i + 1, next, lost + one.loss);
      chosen_.pop_back();
    }
  }

  const Cluster& cluster_;
  const Shape& shape_;
  std::span<const Candidate> all_;
  std::vector<std::size_t> order_;  // by loss
  std::vector<std::size_t> best_;
  std::vector<std::size_t> chosen_;
  std::size_t wanted_ = 0;
  std::size_t tries_ = 0;
};

}  // namespace

std::optional<std::vector<std::size_t>> choose_victims(const Cluster& cluster, const Shape& shape,
                                                       std::span<const Candidate> candidates) {
  if (candidates.empty()) return std::nullopt;
  return Choice(cluster, shape, candidates).run();
}

std::vector<Eviction> plan_evictions(const Cluster& cluster, std::span<const QueueEntry> queue,
                                     const Decision& decision, std::span<const Use> ending,
                                     std::vector<Candidate> candidates, Policy& policy) {
  std::vector<Eviction> evictions;
  if (candidates.empty()) return evictions;
  const auto lowest = std::ranges::min(candidates, {}, &Candidate::tier).tier;
  Cluster then = cluster;
  for (const Start& start : decision.starts) must_hold(then.take(start.placement));
  for (const Use& use : ending) must_hold(then.give_back(use));
  std::set<std::pair<JobId, std::int64_t>> served;
  for (const Start& start : decision.starts) {
    served.insert({queue[start.entry].job, queue[start.entry].task});
  }
  std::size_t looked = 0;
  std::vector<std::pair<Shape, std::int64_t>> hopeless;
  for (const Wait& wait : decision.waits) {
    const QueueEntry& entry = queue[wait.entry];
    // The waits are in order of the queue: those behind have no higher tier.
    if (entry.tier <= lowest) break;
    if (wait.reason != reason::kResources && wait.reason != reason::kPriority) continue;
    if (served.contains({entry.job, entry.task})) continue;
    const std::pair kind{entry.shape, entry.tier};
    if (std::ranges::find(hopeless, kind) != hopeless.end()) continue;
    if (++looked > kMostWaiting) break;
    auto room = place_by_scan(then, entry.shape, policy);
    if (!room) {
      std::vector<Candidate> lower;
      for (const Candidate& one : candidates) {
        if (one.tier < entry.tier) lower.push_back(one);
      }
      const auto victims = choose_victims(then, entry.shape, lower);
      if (!victims) {
        hopeless.push_back(kind);
        continue;
      }
      for (const std::size_t i : *victims) {
        must_hold(then.give_back(lower[i].use));
        evictions.push_back({lower[i].job, entry.job});
        std::erase_if(candidates, [&](const Candidate& one) { return one.job == lower[i].job; });
      }
      room = place_by_scan(then, entry.shape, policy);
    }
    if (!room) continue;
    must_hold(then.take(*room));
    served.insert({entry.job, entry.task});
  }
  return evictions;
}

}  // namespace aliquot::core
