// What a cluster is made of: nodes and their GPUs, as configured or discovered. Descriptions only:
// what is free lives in Cluster, who holds what in Ledger.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/ids.hpp"
#include "base/units.hpp"

namespace aliquot::core {

enum class Health : std::uint8_t {
  ok,
  draining,  // running jobs go on, nothing new
  lost,      // fell off the bus, or the driver reports it broken
};

// One schedulable device with 10,000 units of compute of its own. A MIG slice is such a device too:
// it has its own UUID and memory, and names its profile. A request reaches slices only by naming
// that profile as its model, so plain requests never land on one.
struct Gpu {
  GpuId id;
  std::string model;
  Bytes memory;
  Health health = Health::ok;
  std::string mig_profile = {};  // e.g. "1g.10gb"; empty: not a slice
};

struct Node {
  NodeId id;
  CpuMilli cpus;
  Bytes memory;
  std::vector<Gpu> gpus = {};
  // Compute that may be granted on each GPU; kWholeGpu is no over-commit. Memory never is.
  Compute compute_limit = kWholeGpu;
  // How many tickets of --gres=mps:N and --gres=shard:N make one GPU.
  std::int64_t mps_per_gpu = 100;
  std::int64_t shards_per_gpu = 8;
};

// The model that a request's constraint is matched against: a slice's profile, or the GPU's model.
inline const std::string& model_name(const Gpu& gpu) {
  return gpu.mig_profile.empty() ? gpu.model : gpu.mig_profile;
}

inline constexpr std::size_t kMaxGpusPerNode = 64;
inline constexpr std::size_t kMaxModels = 64;

}  // namespace aliquot::core
