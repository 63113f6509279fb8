// The monotonic clock, and waiting, where there is no Clock to hand in: in aliquot-stepd, and for
// the patience of a single call.
#pragma once

#include <time.h>

#include <cstdint>

namespace aliquot::node {

inline std::int64_t mono_ms() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * 1000 + now.tv_nsec / 1'000'000;
}

inline void sleep_ms(std::int64_t ms) {
  const timespec time{ms / 1000, ms % 1000 * 1'000'000};
  nanosleep(&time, nullptr);
}

}  // namespace aliquot::node
