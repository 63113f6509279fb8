// Time as values: lengths in milliseconds, and points on two clocks that must not be mixed: the
// wall clock (may jump, survives a reboot) and the monotonic one (never jumps, means nothing after
// a reboot). Reading a clock is clock.hpp's.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>

#include "base/units.hpp"

namespace aliquot {

using Millis = Quantity<struct MillisTag>;

constexpr Millis seconds(std::int64_t n) { return Millis(1'000) * n; }
constexpr Millis minutes(std::int64_t n) { return seconds(60) * n; }
constexpr Millis hours(std::int64_t n) { return minutes(60) * n; }
constexpr Millis days(std::int64_t n) { return hours(24) * n; }

template <class Tag>
class TimePoint {
 public:
  constexpr TimePoint() = default;
  constexpr explicit TimePoint(Millis since_start) : since_start_(since_start) {}
  constexpr explicit TimePoint(std::int64_t ms) : since_start_(ms) {}

  // Milliseconds since 1970 (WallTime) or since some start (MonoTime).
  [[nodiscard]] constexpr std::int64_t ms() const { return since_start_.value(); }

  friend constexpr auto operator<=>(TimePoint, TimePoint) = default;
  friend constexpr Millis operator-(TimePoint a, TimePoint b) {
    return a.since_start_ - b.since_start_;
  }
  friend constexpr TimePoint operator+(TimePoint a, Millis b) {
    return TimePoint(a.since_start_ + b);
  }
  friend constexpr TimePoint operator-(TimePoint a, Millis b) {
    return TimePoint(a.since_start_ - b);
  }
  constexpr TimePoint& operator+=(Millis b) { return *this = *this + b; }

 private:
  Millis since_start_;
};

using WallTime = TimePoint<struct WallTimeTag>;
using MonoTime = TimePoint<struct MonoTimeTag>;

}  // namespace aliquot

template <class Tag>
struct std::hash<aliquot::TimePoint<Tag>> {
  std::size_t operator()(aliquot::TimePoint<Tag> point) const noexcept {
    return std::hash<std::int64_t>{}(point.ms());
  }
};

template <class Tag>
struct fmt::formatter<aliquot::TimePoint<Tag>> : fmt::formatter<std::int64_t> {
  auto format(aliquot::TimePoint<Tag> point, fmt::format_context& context) const {
    return formatter<std::int64_t>::format(point.ms(), context);
  }
};
