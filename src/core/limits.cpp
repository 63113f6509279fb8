#include "core/limits.hpp"

#include <algorithm>
#include <cstdlib>
#include <utility>

namespace aliquot::core {

std::optional<Measure> over(const Ceiling& most, const Tally& held, const Tally& more) {
  for (std::size_t i = 0; i < kMeasures; ++i) {
    const auto measure = static_cast<Measure>(i);
    // Without a sum, which may not exist.
    if (most[measure] && more[measure] > 0 && held[measure] > *most[measure] - more[measure]) {
      return measure;
    }
  }
  return std::nullopt;
}

std::size_t Limits::add(Pot pot) {
  pots_.push_back(pot);
  return pots_.size() - 1;
}

void Limits::add(const Claim& claim, std::int64_t times) {
  for (const std::size_t number : claim.pots) {
    for (std::size_t i = 0; i < kMeasures; ++i) {
      std::int64_t& held = pots_[number].held.all[i];
      if (__builtin_add_overflow(held, times * claim.wants.all[i], &held)) std::abort();
    }
  }
}

std::optional<Broken> Limits::broken_by(const Claim& claim) const {
  for (const std::size_t number : claim.pots) {
    if (const auto measure = over(pots_[number].most, pots_[number].held, claim.wants)) {
      return Broken{number, *measure};
    }
  }
  return std::nullopt;
}

const Claim* LimitRules::find(const QueueEntry& entry) const {
  const auto job = claims_.find(entry.job);
  if (job == claims_.end()) return nullptr;
  for (const auto& [partition, claim] : job->second) {
    if (partition == entry.partition) return &claim;
  }
  return nullptr;
}

std::optional<std::string_view> LimitRules::hold_back(const QueueEntry& entry) {
  const Claim* claim = find(entry);
  if (claim == nullptr) return std::nullopt;
  if (!claim->never.empty()) return claim->never;
  const auto broken = limits_.broken_by(*claim);
  if (!broken) return std::nullopt;
  return limits_.pot(broken->pot).reasons[broken->measure];
}

void LimitRules::started(const QueueEntry& entry) {
  const Claim* claim = find(entry);
  if (claim == nullptr) return;
  limits_.take(*claim);
  running_[entry.job].push_back({entry.partition, *claim});
}

void LimitRules::ended(JobId job, std::optional<std::uint32_t> partition) {
  const auto running = running_.find(job);
  if (running == running_.end()) return;
  const auto one = std::ranges::find(running->second, partition, &Running::partition);
  if (one == running->second.end()) return;
  limits_.give_back(one->claim);
  running->second.erase(one);
}

}  // namespace aliquot::core
