// `aliquot status`, `gpus` and `why` as text: one screen about the GPUs, mine and the others' jobs.
// Pure; the commands are overview.cpp's.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "api/types.hpp"
#include "base/time.hpp"
#include "cli/view/paint.hpp"

namespace aliquot::cli {

struct Looking {
  std::uint32_t uid = 0;
  std::string user;
  WallTime now;
};

// The jobs of an answer by their ids.
using JobsById = std::map<std::int64_t, const api::JobInfo*>;
JobsById by_id(const std::vector<api::JobInfo>& jobs);

std::string format_status(const api::ClusterInfo& cluster, const std::vector<api::JobInfo>& jobs,
                          const Looking& looking, const Paint& paint);
std::string format_gpus(const api::ClusterInfo& cluster, const std::vector<api::JobInfo>& jobs,
                        const Paint& paint);
// id: as it was asked.
std::string format_why(const api::WhyInfo& why, std::string_view id, WallTime now,
                       const Paint& paint);

// What the caller was not allowed to see of a cluster, in lines.
std::string unseen(const api::ClusterInfo& cluster, const Paint& paint);
// One machine's, or all of a cluster.
std::vector<const api::NodeInfo*> nodes_of(const api::ClusterInfo& cluster);
// `GPUs 18/24 in use · 6 free · free nodes 1/7 · 24 x h200 on 7 nodes`
std::string usage_line(const api::ClusterInfo& cluster, const Paint& paint);
// ` 35%`, `  ? ` where nobody knows.
std::string busy_text(const api::ClusterInfo& cluster, const api::GpuInfo& gpu);
// `1,2,3`, `-`; pods by their names, as long as they are few: `team/a,team/b,+3`.
std::string jobs_on(const api::GpuInfo& gpu, const JobsById& jobs);
// `jobs`, on Kubernetes `pods`.
std::string_view jobs_word(const api::ClusterInfo& cluster);
// `80G`, `1.5G`, `512M`
std::string gib_text(std::int64_t bytes);

// `[####......]`, ten wide, for 4 of 10; full beyond the whole.
std::string bar(std::int64_t part, std::int64_t whole);
// Shares of GPUs as a number: `1`, `1.25`.
std::string gpu_count(std::int64_t compute);

}  // namespace aliquot::cli
