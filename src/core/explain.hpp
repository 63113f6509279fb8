// A Refusal as sentences for the user who waits: what is missing on which GPU, which jobs hold it,
// and whether waiting helps. Words only; placement.hpp decides. Few GPUs are told one by one, many
// by how many share a reason and which comes closest.
#pragma once

#include <string>
#include <vector>

#include "core/ledger.hpp"
#include "core/placement.hpp"
#include "core/request.hpp"

namespace aliquot::core {

struct Explanation {
  // `No GPU has 8 GiB of memory free; this can start when jobs end` or `Never on this cluster: no
  // GPU has more than 24 GiB of memory`. Fits a column, a log line, an API field.
  std::string summary;
  // The same at length, each a full sentence: the headline, GPUs and nodes, what would cure it.
  std::vector<std::string> sentences;
};

// The refusal is of this request on this ledger's cluster, as it stands.
Explanation explain(const Ledger& ledger, const Request& request, const Refusal& refusal);

}  // namespace aliquot::core
