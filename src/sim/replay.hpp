// One replay: the published protocol on the real core. Nodes stand in a drawn order, so that ties
// between them are broken at random; pods only arrive. Each is tried once. Single-threaded; nothing
// is shared between replays but the workload, which is only read, and Progress.
#pragma once

#include <atomic>
#include <cstdint>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "base/time.hpp"
#include "sim/order.hpp"
#include "sim/workload.hpp"

namespace aliquot::sim {

// Looked at and moved by the replays of several threads.
struct Progress {
  std::atomic<bool> stop = false;               // set by whoever no longer wants the result
  std::atomic<std::int64_t> arrived_milli = 0;  // GPUs asked for so far, over all replays
};

// The allocation while the arrived ratio rounds to `arrived` percent.
struct Point {
  std::int64_t arrived = 0;
  double allocated = 0;  // percent of the GPUs, mean over those steps
};

struct ReplayResult {
  std::vector<Point> points;
  std::int64_t decisions = 0;
  std::int64_t placed = 0;
  std::int64_t cpu_ns = 0;  // of everything but reading the trace and setting up the nodes
  bool stopped = false;     // Progress::stop was set: the points are not to be used
};

// Where the allocation is reported for a replay up to `arrived` percent: 90, 95, 100, 110, 120 and
// 130 where it goes that far, and its end.
std::vector<std::int64_t> points_up_to(std::int64_t arrived);

// `order` was drawn for the same workload, up to `arrived` percent.
Result<ReplayResult> replay(const Workload& workload, std::string_view policy, const Order& order,
                            std::int64_t arrived, Progress& progress);

}  // namespace aliquot::sim
