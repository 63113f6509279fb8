// What a node's agent has measured, read from its /metrics (node/agent_metrics.cpp writes them):
// how busy and how full GPUs are, and what containers use. Any text: what is not understood is
// passed over.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>

#include "base/ids.hpp"
#include "base/time.hpp"
#include "base/units.hpp"

namespace aliquot::kube {

struct GpuFigures {
  std::optional<Bytes> used = {};
  std::optional<Compute> utilisation = {};
  friend bool operator==(const GpuFigures&, const GpuFigures&) = default;
};

struct ContainerFigures {
  std::optional<Bytes> used = {};
  std::optional<Millis> gpu_time = {};
  friend bool operator==(const ContainerFigures&, const ContainerFigures&) = default;
};

struct NodeFigures {
  std::map<GpuId, GpuFigures> gpus;
  // By namespace, pod and container.
  std::map<std::tuple<std::string, std::string, std::string>, ContainerFigures> containers;
};

NodeFigures read_figures(std::string_view metrics);

}  // namespace aliquot::kube
