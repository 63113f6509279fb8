// One answer everywhere: (cluster, request) → Placement | Refusal. The filter is the same for every
// policy; the policy only ranks what fits. Refusal is a value: it says GPU by GPU what is missing
// and whether waiting can cure it.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "core/cluster.hpp"
#include "core/policy.hpp"

namespace aliquot::core {

using Placement = Use;

enum class Lack : std::uint8_t {
  nothing,     // this GPU would do
  model,       // not one of the models asked for
  closed,      // not one of the GPUs that the job may have
  unhealthy,   // draining or lost
  too_small,   // even empty it is smaller than the share
  held_whole,  // a job has it alone
  shared,      // asked for whole, but jobs share it
  memory,      // too little memory left
  compute,     // too little compute left
  foreign,     // processes outside every job sit on it
};

struct GpuLack {
  GpuIndex gpu = 0;
  Lack lack = Lack::nothing;
  Bytes memory_missing = {};
  Compute compute_missing = {};
};

struct NodeRefusal {
  NodeIndex node = 0;
  CpuMilli cpus_missing = {};
  Bytes memory_missing = {};
  std::uint32_t gpus_fitting = 0;
  bool curable = false;  // the empty, healthy node could hold it
  std::vector<GpuLack> gpus = {};
};

struct Refusal {
  bool curable = false;  // some node could hold it, empty and healthy
  std::vector<NodeRefusal> nodes;
};

// Why no node can hold this now. Looks at every node: for people, not for the hot path.
Refusal explain_refusal(const Cluster& cluster, const Shape& shape);

// Whether any node could hold it with nothing running and every GPU well.
bool ever_fits(const Cluster& cluster, const Shape& shape);

// Decides by looking at every node: for one machine, for snapshots, and as the model that the index
// is tested against.
std::optional<Placement> place_by_scan(const Cluster& cluster, const Shape& shape, Policy& policy);

// The use of `shape` on this node with these GPUs.
Use use_of(const Cluster& cluster, const Shape& shape, NodeIndex node,
           std::span<const GpuIndex> gpus);

}  // namespace aliquot::core
