// What a node says of its GPUs: the annotation `aliquot.dev/gpus`, written by aliquot-kube-node and
// read by the scheduler, and the names of the devices that its kubelet hands out.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/ids.hpp"
#include "base/result.hpp"
#include "base/units.hpp"
#include "core/device.hpp"

namespace aliquot::kube {

struct NodeGpu {
  GpuId uuid;
  std::int64_t index = 0;
  std::string model;
  Bytes memory;  // that pods may use
  core::Health health = core::Health::ok;
  Bytes foreign;         // held by processes of no pod
  std::string mig = {};  // the profile of a slice; empty: it is none
  friend bool operator==(const NodeGpu&, const NodeGpu&) = default;
};

struct NodeGpus {
  Bytes unit = gib(1);  // what one of gpu-mem is
  Compute over_commit = kWholeGpu;
  // Whether `nvidia.com/gpu` is this node agent's, too; else it is somebody else's plugin.
  bool nvidia = false;
  std::vector<NodeGpu> gpus = {};
  friend bool operator==(const NodeGpus&, const NodeGpus&) = default;
};

// How many units of gpu-mem a GPU has.
inline std::int64_t units_of(const NodeGpu& gpu, Bytes unit) { return gpu.memory / unit; }

std::string write_node_gpus(const NodeGpus& gpus);
// Refuses what no node can be: no unit, two GPUs of one name, negative sizes, more GPUs than core
// can number. Fields it does not know are passed over.
Result<NodeGpus> read_node_gpus(std::string_view text);

// The name of unit `n` of a GPU for the kubelet; a whole GPU's is its UUID.
std::string device_id(const GpuId& gpu, std::int64_t unit);
// The GPU and the unit; no unit: the whole GPU. Nothing for what device_id never writes.
std::optional<std::pair<GpuId, std::optional<std::int64_t>>> parse_device_id(std::string_view id);

}  // namespace aliquot::kube
