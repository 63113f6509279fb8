#include "core/flight_watch.hpp"

#include <algorithm>

namespace aliquot::core {
namespace {

constexpr double kLongestLaunch = 10e9;
// A process whose counters stand still for so long is doing something else.
constexpr double kSilent = 1e9;
constexpr std::int64_t kFresh = 10'000'000;
// A launch that was passing the gate when it closed is counted a little later.
constexpr std::int64_t kLate = 5'000'000;
// The library looks at every fourth launch only: on average so many more are over than it says.
constexpr double kUnseen = 1.5;

}  // namespace

bool FlightWatch::look(std::int64_t now, const Counters& counters, bool paused) {
  const auto [launched, completed, in_wait, looked_ns] = counters;
  const bool was_flying = launched_ > completed_;
  // The first count after a pause may be old, so it does not tell how long a launch takes.
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
  // Without a limit in time: there are queues of seconds and kernels of minutes.
  if (in_wait) return true;
  if (launched <= completed) return false;
  // The library has just looked itself.
  if (looked_ns != 0 && now - looked_ns < kFresh) return true;
  const bool guess = paused && !news_while_paused_;
  const double flying = std::max(static_cast<double>(launched - completed) - kUnseen, 1.0);
  return static_cast<double>(now - moved_ns_) <= std::max(each_ns_ * flying, guess ? 0 : kSilent);
}

}  // namespace aliquot::core
