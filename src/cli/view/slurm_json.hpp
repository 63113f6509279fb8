// `--json` of squeue, sinfo and sacct: Slurm's own keys (those of its v0.0.38 schema that a single
// machine can answer), and ours beside them, `gpu_share` and `reason_detail`.
#pragma once

#include <string>
#include <vector>

#include "api/types.hpp"
#include "base/time.hpp"

namespace aliquot::cli {

std::string squeue_json(const std::vector<api::JobInfo>& jobs, const std::string& cluster);
std::string sinfo_json(const api::ClusterInfo& cluster);
std::string sacct_json(const std::vector<api::JobInfo>& jobs, const std::string& cluster,
                       WallTime now);

}  // namespace aliquot::cli
