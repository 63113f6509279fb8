// A cluster and a workload as the public GPU traces write them: a list of nodes and a list of pods.
// Text in, values out; what is not understood is refused with file, line and column. Turning them
// into nodes and requests of the core is workload.hpp's.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "base/units.hpp"

namespace aliquot::sim {

inline constexpr std::int64_t kMilliPerGpu = 1'000;

struct TraceNode {
  std::string name;
  CpuMilli cpus;
  Bytes memory;
  std::int64_t gpus = 0;
  std::string model;  // of its GPUs
  friend bool operator==(const TraceNode&, const TraceNode&) = default;
};

struct TracePod {
  std::string name;
  CpuMilli cpus;
  Bytes memory;
  std::int64_t gpus = 0;
  std::int64_t gpu_milli = 0;       // of each GPU; less than 1,000 only on one GPU
  std::vector<std::string> models;  // any of these; empty: any
  friend bool operator==(const TracePod&, const TracePod&) = default;
};

// Thousandths of GPUs that the pod asks for, over all of them. Several GPUs are whole ones.
[[nodiscard]] inline std::int64_t requested_milli(const TracePod& pod) {
  return pod.gpus == 1 ? pod.gpu_milli : pod.gpus * kMilliPerGpu;
}

// Columns sn, cpu_milli, memory_mib, gpu, model. `name` is what messages call the text.
Result<std::vector<TraceNode>> parse_nodes(std::string_view text, std::string_view name);

// Columns name, cpu_milli, memory_mib, num_gpu, gpu_milli and, where there is one, gpu_spec: models
// with `|` between them.
Result<std::vector<TracePod>> parse_pods(std::string_view text, std::string_view name);

// The same tables as text; the parsers read them back.
std::string format_nodes(const std::vector<TraceNode>& nodes);
std::string format_pods(const std::vector<TracePod>& pods);

}  // namespace aliquot::sim
