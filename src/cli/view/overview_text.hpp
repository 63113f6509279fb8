// `aliquot status`, `gpus` and `why` as text: one screen about the GPUs, mine and the others' jobs.
// Pure; the commands are overview.cpp's.
#pragma once

#include <cstdint>
#include <string>
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

std::string format_status(const api::ClusterInfo& cluster, const std::vector<api::JobInfo>& jobs,
                          const Looking& looking, const Paint& paint);
std::string format_gpus(const api::ClusterInfo& cluster, const std::vector<api::JobInfo>& jobs,
                        const Paint& paint);
std::string format_why(const api::WhyInfo& why, WallTime now, const Paint& paint);

// `[####......]`, ten wide, for 4 of 10; full beyond the whole.
std::string bar(std::int64_t part, std::int64_t whole);
// Shares of GPUs as a number: `1`, `1.25`.
std::string gpu_count(std::int64_t compute);

}  // namespace aliquot::cli
