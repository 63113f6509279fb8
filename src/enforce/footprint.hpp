// How much memory a graph's allocation nodes need together. The driver lets an allocation have the
// place of an earlier one where that is large enough and its free comes before on every path
// (measured); this does the same, so that a thousand allocations that follow each other need one.
#pragma once

#include "enforce/driver.hpp"
#include "enforce/grant.hpp"

namespace aliquot::enforce {

struct Footprint {
  std::uint64_t bytes[ALIQUOT_MAX_GPUS];
  bool kept[ALIQUOT_MAX_GPUS];  // something is not freed by the graph itself
  CUdevice device[ALIQUOT_MAX_GPUS];
};

void add_footprint(CUgraph graph, Footprint* out);

}  // namespace aliquot::enforce
