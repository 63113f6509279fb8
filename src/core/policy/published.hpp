// The yardsticks of the published policies: a node of 128 CPUs and 8 GPUs counts as full size, and
// a GPU has 1,000 milli.
#pragma once

#include "core/policy.hpp"

namespace aliquot::core::published {

inline constexpr double kNodeCpuMilli = 128'000;
inline constexpr double kNodeGpuMilli = 8'000;
inline constexpr double kGpuMilli = 1'000;
inline constexpr std::int64_t kComputePerMilli = 10;

inline std::int64_t milli(Compute compute) { return compute.value() / kComputePerMilli; }

// Compute left on the node's usable GPUs.
inline std::int64_t gpu_milli_free(const Cluster& cluster, NodeIndex node) {
  std::int64_t sum = 0;
  for (const GpuState& gpu : cluster.gpus(node)) {
    if (gpu.usable) sum += milli(gpu.compute_free);
  }
  return sum;
}

// What the request asks of this node's GPUs, all of its parts together.
inline std::int64_t gpu_milli_asked(const Cluster& cluster, const Shape& shape,
                                    const Candidates& fit) {
  if (shape.kind == Shape::Kind::no_gpu) return 0;
  const Node& host = cluster.node(fit.node);
  const auto portion = portion_on(shape.what, host, host.gpus[fit.gpus.front()]);
  return portion ? shape.count * milli(portion->compute) : 0;
}

}  // namespace aliquot::core::published
