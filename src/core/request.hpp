// What a job asks for, in the one vocabulary of all engines. Values only; request_parse.hpp reads
// them from what users write, Cluster turns them into a Shape it can match.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/units.hpp"
#include "core/device.hpp"

namespace aliquot::core {

// A part of one GPU by amount. What is not said follows in proportion on the GPU it lands on; at
// least one is said. An explicit zero is a real zero: it takes nothing of that kind.
struct Amounts {
  std::optional<Bytes> memory;
  std::optional<Compute> compute;
  friend bool operator==(const Amounts&, const Amounts&) = default;
};

// A part of one GPU in Slurm's counting: so many of the node's tickets per GPU.
struct Tickets {
  enum class Kind : std::uint8_t { mps, shard };
  Kind kind = Kind::mps;
  std::int64_t count = 0;
  friend bool operator==(const Tickets&, const Tickets&) = default;
};

// As users write it: `mps` or `shard`.
inline std::string_view name_of(Tickets::Kind kind) {
  return kind == Tickets::Kind::mps ? "mps" : "shard";
}

// The whole device, nobody else on it.
struct WholeGpu {
  friend bool operator==(const WholeGpu&, const WholeGpu&) = default;
};

// What is asked of one GPU.
using GpuPart = std::variant<WholeGpu, Amounts, Tickets>;

struct GpuRequest {
  std::int64_t count = 1;  // devices, or shares, each on a GPU of its own
  GpuPart what;
  std::vector<std::string> models;  // any of these; empty: any model that is not a MIG slice
  friend bool operator==(const GpuRequest&, const GpuRequest&) = default;
};

struct Request {
  std::optional<GpuRequest> gpus;
  CpuMilli cpus;
  Bytes memory;
  friend bool operator==(const Request&, const Request&) = default;
};

// What a share is on one particular GPU.
struct Portion {
  Bytes memory;
  Compute compute;
  friend bool operator==(const Portion&, const Portion&) = default;
};

// What a node says about each of its GPUs, beside their memory.
struct GpuUnits {
  Compute compute_limit = kWholeGpu;
  std::int64_t mps = 100;
  std::int64_t shards = 8;
};
inline std::int64_t tickets_of(const GpuUnits& units, Tickets::Kind kind) {
  return kind == Tickets::Kind::mps ? units.mps : units.shards;
}
inline GpuUnits units_of(const Node& node) {
  return {node.compute_limit, node.mps_per_gpu, node.shards_per_gpu};
}

// The portion that `what` means on a GPU with this memory; nothing when it is more than the whole
// GPU. A whole GPU is all of its memory and all compute that may be granted there.
std::optional<Portion> portion_of(const GpuPart& what, Bytes gpu_memory, const GpuUnits& units);
inline std::optional<Portion> portion_on(const GpuPart& what, const Node& node, const Gpu& gpu) {
  return portion_of(what, gpu.memory, units_of(node));
}

}  // namespace aliquot::core
