// A trace of our own, for those who do not have a published one: a mixed cluster and a workload
// with knobs, both drawn from a seed. Alike in kind to what large shared GPU clusters report
// (several kinds of nodes with few to many CPUs per GPU, most jobs small, a long tail of large
// ones), a copy of none.
//
// Nodes: kinds drawn by weight, from eight-GPU training nodes to two-GPU nodes full of CPUs; each
// kind has one model. Pods, in this order of drawing: what they want of GPUs by the knobs; a
// share's size from a skewed list with awkward sizes in it (two of 600 m do not share a GPU); the
// number of GPUs of a large one; CPUs from a list around what the kind of pod uses; memory per CPU;
// and, for some, one or two models by how common they are.
#pragma once

#include <cstdint>
#include <vector>

#include "base/result.hpp"
#include "sim/trace.hpp"

namespace aliquot::sim {

struct SyntheticKnobs {
  std::uint64_t seed = 1;
  std::int64_t nodes = 1'200;
  std::int64_t pods = 8'000;
  // Per mille of all pods; what is left of 1,000 wants one whole GPU.
  std::int64_t share = 380;
  std::int64_t multi = 15;
  std::int64_t cpu_only = 120;
  // Per mille of the pods with GPUs that name models.
  std::int64_t spec = 100;
};

struct SyntheticTrace {
  std::vector<TraceNode> nodes;
  std::vector<TracePod> pods;
};

// At most a million nodes and ten million pods.
Result<SyntheticTrace> generate_trace(const SyntheticKnobs& knobs);

}  // namespace aliquot::sim
