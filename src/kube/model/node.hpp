// A node as the API server shows it: its name, what pods may use of its CPUs and memory, and what
// it says of its GPUs.
#pragma once

#include <boost/json/fwd.hpp>
#include <optional>
#include <string>

#include "base/result.hpp"
#include "base/units.hpp"
#include "kube/model/names.hpp"
#include "kube/model/node_gpus.hpp"

namespace aliquot::kube {

struct NodeFacts {
  std::string name;
  CpuMilli cpus;  // allocatable
  Bytes memory;
  std::optional<NodeGpus> gpus = {};
  std::string trouble = {};  // why `gpus` is empty although the node says something
  friend bool operator==(const NodeFacts&, const NodeFacts&) = default;
};

Result<NodeFacts> read_node(const boost::json::value& value, const Names& names);

}  // namespace aliquot::kube
