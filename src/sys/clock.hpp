// The kernel's clocks as plain numbers, and waiting: for where there is no Clock to hand in
// (aliquot-stepd, Slurm's plugins) and for the patience of a single call. Needs libc alone.
#pragma once

#include <time.h>

#include <cstdint>

namespace aliquot::sys {

inline std::int64_t clock_ns(clockid_t clock) {
  timespec now{};
  ::clock_gettime(clock, &now);
  return std::int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

inline std::int64_t wall_ms() { return clock_ns(CLOCK_REALTIME) / 1'000'000; }
// Also counts while the machine sleeps.
inline std::int64_t boot_ms() { return clock_ns(CLOCK_BOOTTIME) / 1'000'000; }
inline std::int64_t mono_ns() { return clock_ns(CLOCK_MONOTONIC); }
inline std::int64_t mono_ms() { return mono_ns() / 1'000'000; }

inline void sleep_ms(std::int64_t ms) {
  const timespec time{ms / 1000, ms % 1000 * 1'000'000};
  ::nanosleep(&time, nullptr);
}

}  // namespace aliquot::sys
