// The resource limits a job runs with: those of the process that submitted it, as the kernel has
// them, or the daemon's as it was started. Nothing a client sends raises one.
#pragma once

#include <sys/resource.h>

#include <cstdint>
#include <string>
#include <vector>

#include "api/types.hpp"
#include "base/ids.hpp"
#include "node/process_tree.hpp"

namespace aliquot::node {

struct ResourceLimit {
  int resource = 0;  // RLIMIT_NOFILE, …
  std::uint64_t soft = RLIM_INFINITY;
  std::uint64_t hard = RLIM_INFINITY;
  friend bool operator==(const ResourceLimit&, const ResourceLimit&) = default;
};

// All that the kernel has, of this process.
std::vector<ResourceLimit> own_limits();
// Of another, if it is that user's; empty: it has gone, or is another's by now.
std::vector<api::LimitInfo> limits_of(Pid pid, Uid uid);

// Hard limits are the submitter's; so are the soft ones that are propagated, and those that Slurm
// has no name for. The others, and all where the submitter's are unknown, are the usual ones.
std::vector<ResourceLimit> job_limits(const std::vector<ResourceLimit>& usual,
                                      const std::vector<api::LimitInfo>& submitters,
                                      const std::vector<std::string>& propagate);

}  // namespace aliquot::node
