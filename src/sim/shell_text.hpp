// How the shell prints what the core holds.
#pragma once

#include <string>

#include "base/time.hpp"
#include "core/ledger.hpp"

namespace aliquot::sim {

// `n1 gpu0=25%/6G gpu1=whole cpus=4 memory=8G`
std::string format_use(const core::Cluster& cluster, const core::Use& use);

// One line a node, and under it one a GPU.
std::string format_cluster(const core::Ledger& ledger, MonoTime now);

// One line a job: `job 7: ` and its use.
std::string format_jobs(const core::Ledger& ledger);

// `5s`, `0.5s`.
std::string format_length(Millis length);

}  // namespace aliquot::sim
