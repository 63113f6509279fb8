// Where the time comes from: an interface, handed in, so that tests and the simulator decide what
// time it is. The real one is sys/system_clock.hpp's.
#pragma once

#include <cstdlib>

#include "base/time.hpp"

namespace aliquot {

class Clock {
 public:
  Clock() = default;
  Clock(const Clock&) = delete;
  Clock& operator=(const Clock&) = delete;
  virtual ~Clock() = default;

  [[nodiscard]] virtual WallTime wall() const = 0;
  [[nodiscard]] virtual MonoTime mono() const = 0;
};

// Stands still until it is moved. Not for several threads.
class ManualClock final : public Clock {
 public:
  explicit ManualClock(WallTime start = WallTime()) : wall_(start) {}

  [[nodiscard]] WallTime wall() const override { return wall_; }
  [[nodiscard]] MonoTime mono() const override { return mono_; }

  // Both clocks go on; by must not be negative.
  void advance(Millis by) {
    if (by < Millis(0)) std::abort();
    wall_ += by;
    mono_ += by;
  }
  // The wall clock alone is set, as an administrator or NTP does.
  void set_wall(WallTime now) { wall_ = now; }

 private:
  WallTime wall_;
  MonoTime mono_;
};

}  // namespace aliquot
