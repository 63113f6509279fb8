#include "core/lease.hpp"

#include <algorithm>
#include <bit>
#include <optional>

namespace aliquot::core {
namespace {

// Active in so many of the last 32 steps: 90 %.
constexpr int kBacklogged = 29;
// A job whose gate was just opened needs a moment to wake up.
constexpr int kGrace = 3;

bool is_backlogged(std::uint32_t history) { return std::popcount(history) >= kBacklogged; }

}  // namespace

void LeaseArbiter::set(JobId id, Compute share, std::uint64_t group) {
  Job& job = jobs_[id];
  const double part = static_cast<double>(std::max<std::int64_t>(share.value(), 1)) /
                      static_cast<double>(kWholeGpu.value());
  // What it is ahead or behind stays the same amount of virtual time: a new share is for what
  // comes.
  job.share = part;
  job.group = group;
}

void LeaseArbiter::remove(JobId id) { jobs_.erase(id); }

bool LeaseArbiter::paused(JobId id) const {
  const auto found = jobs_.find(id);
  return found != jobs_.end() && found->second.paused;
}

bool LeaseArbiter::contended() const {
  return std::ranges::count_if(jobs_, [](const auto& one) { return one.second.history != 0; }) >= 2;
}

void LeaseArbiter::look(const std::vector<Seen>& seen) {
  for (auto& [id, job] : jobs_) {
    job.history <<= 1U;
    job.in_flight = false;
  }
  for (const Seen& one : seen) {
    const auto found = jobs_.find(one.job);
    if (found == jobs_.end()) continue;
    Job& job = found->second;
    job.in_flight = one.in_flight;
    // Who stands at an open gate is not waiting for us, whatever the job says of itself: a process
    // that died there, or lies, must not hold up the others.
    const bool held = one.waiting && (job.paused || job.grace > 0);
    if (one.in_flight || held) job.history |= 1U;
    if (job.grace > 0) --job.grace;
  }
}

void LeaseArbiter::charge(std::int64_t elapsed_ns) {
  std::map<std::uint64_t, int> groups;
  for (const auto& [id, job] : jobs_) {
    if (job.in_flight) ++groups[job.group];
  }
  for (auto& [id, job] : jobs_) {
    if (!job.in_flight) continue;
    const double time = static_cast<double>(elapsed_ns) / static_cast<double>(groups.size()) /
                        static_cast<double>(groups[job.group]);
    job.virtual_ns += time / job.share;
  }
}

void LeaseArbiter::decide() {
  std::optional<double> slowest;
  for (const auto& [id, job] : jobs_) {
    if (!is_backlogged(job.history)) continue;
    slowest = slowest ? std::min(*slowest, job.virtual_ns) : job.virtual_ns;
  }
  for (auto& [id, job] : jobs_) {
    const bool was_paused = job.paused;
    if (!slowest) {
      // Nobody is short of anything: all start level when somebody is.
      job.virtual_ns = 0;
      job.paused = false;
    } else {
      if (!is_backlogged(job.history)) job.virtual_ns = std::max(job.virtual_ns, *slowest);
      const double ahead = (job.virtual_ns - *slowest) * job.share;
      job.paused = job.paused ? ahead > 0 : ahead > static_cast<double>(options_.tolerance_ns);
    }
    if (was_paused && !job.paused) job.grace = kGrace;
  }
}

void LeaseArbiter::step(std::int64_t elapsed_ns, const std::vector<Seen>& seen) {
  look(seen);
  charge(elapsed_ns);
  decide();
}

}  // namespace aliquot::core
