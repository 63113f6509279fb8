#include "core/lease.hpp"

#include <algorithm>
#include <bit>
#include <optional>

namespace aliquot::core {
namespace {

// Active in so many of the last 32 steps: 90 %. It stays backlogged until it has idled for half of
// them: a moment between two batches must not cost it what it is owed.
constexpr int kBacklogged = 29;
constexpr int kIdling = 16;
// A job whose gate was just opened needs a moment to wake up.
constexpr int kGrace = 3;

constexpr double kLongestLaunch = 10e9;
// Whose counters stand still for so long has something else to do.
constexpr double kSilent = 1e9;
// A launch that was on its way through when the gate closed says so later.
constexpr std::int64_t kLate = 5'000'000;
// The library looks at every fourth launch: so many more are over than it says, on average.
constexpr double kUnseen = 1.5;

}  // namespace

bool FlightWatch::look(std::int64_t now, std::uint64_t launched, std::uint64_t completed,
                       bool paused) {
  const bool was_flying = launched_ > completed_;
  // The first news after a pause may be old: the time it took says nothing.
  if (paused_ && !paused) completed_ns_ = 0;
  if (completed > completed_) {
    if (paused && paused_ && now - paused_ns_ > kLate) news_while_paused_ = true;
    if (was_flying && completed_ns_ != 0) {
      const double each =
          static_cast<double>(now - completed_ns_) / static_cast<double>(completed - completed_);
      each_ns_ += (std::min(each, kLongestLaunch) - each_ns_) / (learned_ ? 4 : 1);
      learned_ = true;
    }
    completed_ns_ = now;
  }
  if (!was_flying && launched > completed) completed_ns_ = now;
  if (launched != launched_ || completed != completed_) moved_ns_ = now;
  if (paused && !paused_) paused_ns_ = now;
  launched_ = launched;
  completed_ = completed;
  paused_ = paused;
  if (launched <= completed) return false;
  const bool guess = paused && !news_while_paused_;
  const double flying = std::max(static_cast<double>(launched - completed) - kUnseen, 1.0);
  return static_cast<double>(now - moved_ns_) <= std::max(each_ns_ * flying, guess ? 0 : kSilent);
}

// Out of proportion: the GPU is full, and of two that use it one gets half as much again as the
// other, for its share. The other may not want more: then turns make nobody wait, and end.
bool ProportionWatch::out_of_proportion(std::int64_t now, const std::vector<Used>& used) const {
  constexpr double kFull = 0.8;
  constexpr double kUses = 0.02;
  constexpr double kUneven = 1.5;
  const double passed = static_cast<double>(now - before_ns_);
  double all = 0;
  double least = 0;
  double most = 0;
  for (const Used& one : used) {
    const auto before = before_.find(one.job);
    if (before == before_.end()) continue;
    const double busy = static_cast<double>(one.gpu_ns - before->second) / passed;
    const double served = busy / one.share;
    all += busy;
    most = std::max(most, served);
    if (busy >= kUses && (least == 0 || served < least)) least = served;
  }
  return all >= kFull && least > 0 && most > least * kUneven;
}

bool ProportionWatch::look(std::int64_t now, const std::vector<Used>& used, bool paused) {
  constexpr std::int64_t kWindow = 500'000'000;
  constexpr std::int64_t kUseless = 2'000'000'000;
  constexpr std::int64_t kFirstRest = 5'000'000'000;
  constexpr std::int64_t kLongestRest = 60'000'000'000;
  if (turns_) {
    if (paused) {
      helped_ns_ = now;
      rest_ns_ = 0;
    }
    if (now - helped_ns_ <= kUseless) return true;
    turns_ = false;
    uneven_before_ = false;
    rest_ns_ = std::clamp(rest_ns_ * 2, kFirstRest, kLongestRest);
    not_before_ns_ = now + rest_ns_;
    before_ns_ = 0;
  }
  if (before_ns_ != 0 && now - before_ns_ < kWindow) return false;
  // Twice: what the jobs measure is an estimate.
  const bool uneven = before_ns_ != 0 && now >= not_before_ns_ && out_of_proportion(now, used);
  turns_ = uneven && uneven_before_;
  uneven_before_ = uneven;
  if (turns_) helped_ns_ = now;
  before_.clear();
  for (const Used& one : used) before_[one.job] = one.gpu_ns;
  before_ns_ = now;
  return turns_;
}

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
  for (auto& [id, job] : jobs_) {
    job.backlogged = std::popcount(job.history) >= (job.backlogged ? kIdling : kBacklogged);
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
    if (!job.backlogged) continue;
    slowest = slowest ? std::min(*slowest, job.virtual_ns) : job.virtual_ns;
  }
  for (auto& [id, job] : jobs_) {
    const bool was_paused = job.paused;
    if (!slowest) {
      // Nobody is short of anything: all start level when somebody is.
      job.virtual_ns = 0;
      job.paused = false;
    } else {
      if (!job.backlogged) job.virtual_ns = std::max(job.virtual_ns, *slowest);
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
