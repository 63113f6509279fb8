// What a node is made of, as one line that `aliquot slurm init --describe` prints there and `init
// --nodes` reads on the controller: Slurm's own words for a node, and its GPUs in setup's.
//
//   NodeName=n1 CPUs=64 Boards=1 SocketsPerBoard=2 CoresPerSocket=16 ThreadsPerCore=2
//   RealMemory=499712 Gpus=h200:4:143156M:/dev/nvidia[0-3]
//
// Pure.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "slurm/site.hpp"

namespace aliquot::slurm {

struct NodeLine {
  std::string name;
  std::string hardware;             // "CPUs=64 … RealMemory=499712"
  std::int64_t cpus = 1;            // as the hardware says
  std::int64_t memory = 0;          // MiB; 0: not said
  std::vector<GpuGroup> gpus = {};  // of this node alone
  friend bool operator==(const NodeLine&, const NodeLine&) = default;
};

// Lines as above, one for each node or for several that are alike (`NodeName=n[1-4] …`); comments
// and empty lines are left out. `from` stands in messages.
Result<std::vector<NodeLine>> parse_node_lines(std::string_view text, std::string_view from);
std::string format_node_line(const NodeLine& node);

// A CPU as Linux lists it: the package it is in, and the threads of its core.
struct CpuPlace {
  std::string package;
  std::string siblings;
};
// Of the memory 1/32 is left out: a new kernel may find a little less, and Slurm drains a node that
// has less than it was told.
std::string describe_hardware(const std::vector<CpuPlace>& cpus, std::int64_t memory_mib);

}  // namespace aliquot::slurm
