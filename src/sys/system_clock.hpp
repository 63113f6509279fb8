// The machine's clocks as a Clock. The monotonic one also counts while the machine sleeps, as time
// limits should.
#pragma once

#include "base/clock.hpp"
#include "sys/clock.hpp"

namespace aliquot::sys {

class SystemClock final : public Clock {
 public:
  [[nodiscard]] WallTime wall() const override { return WallTime(wall_ms()); }
  [[nodiscard]] MonoTime mono() const override { return MonoTime(boot_ms()); }
};

}  // namespace aliquot::sys
