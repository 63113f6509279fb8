#include "base/clock.hpp"

#include <time.h>

#include <cstdint>
#include <cstdlib>

namespace aliquot {
namespace {

std::int64_t read_ms(clockid_t id) {
  timespec now{};
  if (clock_gettime(id, &now) != 0) std::abort();
  return std::int64_t{now.tv_sec} * 1'000 + now.tv_nsec / 1'000'000;
}

}  // namespace

WallTime SystemClock::wall() const { return WallTime(read_ms(CLOCK_REALTIME)); }
MonoTime SystemClock::mono() const { return MonoTime(read_ms(CLOCK_BOOTTIME)); }

void ManualClock::advance(Millis by) {
  if (by < Millis(0)) std::abort();
  wall_ += by;
  mono_ += by;
}

}  // namespace aliquot
