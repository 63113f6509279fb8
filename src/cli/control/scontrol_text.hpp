// The records of `scontrol show`: `Key=Value` lines, as the newer Slurms write them, and what only
// we have (GpuShare=) after all standard keys. Text only.
#pragma once

#include <string>

#include "api/types.hpp"
#include "base/time.hpp"

namespace aliquot::cli {

struct ShowStyle {
  bool one_line = false;  // -o
  bool details = false;   // -d
};

// Each ends with its newline, and an empty line unless it is on one line.
std::string show_job(const api::JobInfo& job, const ShowStyle& style, WallTime now);
std::string show_step(const api::JobInfo& job, const api::StepInfo& step, const ShowStyle& style);
std::string show_node(const api::ClusterInfo& cluster, const ShowStyle& style);
std::string show_partition(const api::ClusterInfo& cluster, const api::PartitionInfo& partition,
                           const ShowStyle& style);
std::string show_config(const api::ClusterInfo& cluster, WallTime now);

}  // namespace aliquot::cli
