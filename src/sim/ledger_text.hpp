// A ledger's grants as text, so that a session of the simulator can be kept and gone back to. One
// line a grant, by names and UUIDs, so that it outlives a change in the order of nodes and GPUs:
//   job 7 node n1 cpus 2000 memory 1073741824 share GPU-… 8589934592 2500 whole GPU-…
#pragma once

#include <string>
#include <string_view>

#include "base/result.hpp"
#include "core/ledger.hpp"

namespace aliquot::sim {

std::string format_ledger(const core::Ledger& ledger);
// Grants everything in `text` on `cluster`, which holds nothing yet.
Result<core::Ledger> parse_ledger(core::Cluster cluster, std::string_view text);

}  // namespace aliquot::sim
