// How one GPU shares its compute: a fluid model with an explicit clock, so that tests drive it
// without waiting. Groups (a process, or an MPS server with its clients) alternate equal time
// slices. Within a server's slice its clients run side by side, each at most at its active thread
// percentage, and where that is too much for the GPU in proportion to the length of their kernels.
// Copies between host and GPU are done by copy engines, beside all that. The constants follow
// measurements on an H200; tests/standin/compute_test.cpp holds the model to them. Memory bandwidth
// and clocks are not modelled. The caller holds the state's lock.
#pragma once

#include "standin/state/layout.hpp"

namespace aliquot::standin {

inline constexpr double kWindowNs = 1e9 / 6;        // over which utilisation is measured
inline constexpr double kSwitchEfficiency = 0.95;   // of time slicing between groups
inline constexpr double kCappedEfficiency = 0.945;  // of several clients with thread percentages
inline constexpr double kSpareBonus =
    0.64;  // a capped client gains while the rest of the GPU idles

// Brings the GPU up to `now`.
void advance(GpuCompute& gpu, double now);

// A lane for one stream, or -1 when there is none left.
[[nodiscard]] int open_lane(GpuCompute& gpu, int client, int group, double cap);
void close_lane(GpuCompute& gpu, int lane);
void drop_client(GpuCompute& gpu, int client);

// Of the kernels that the client has on the GPU or queued; 0: none.
[[nodiscard]] double longest_in_flight(const GpuCompute& gpu, int client);

// Appends work and returns the mark at which it is done. Of width 0: for a copy engine.
double submit(GpuCompute& gpu, int lane, double work_ns, double width);
[[nodiscard]] bool finished(const GpuCompute& gpu, int lane, double mark);
// Nanoseconds until the mark if nothing changes meanwhile.
[[nodiscard]] double eta(GpuCompute& gpu, int lane, double mark);

// Notes the time at which everything submitted so far is done; probe_time is 0 until then.
[[nodiscard]] std::uint64_t add_probe(GpuCompute& gpu, int lane);
[[nodiscard]] double probe_time(const GpuCompute& gpu, int lane, std::uint64_t sequence);

}  // namespace aliquot::standin
