// What squeue can print of a job or a step, and in which order: the tables behind -o, -O and -S.
#pragma once

#include <compare>
#include <span>
#include <string_view>
#include <vector>

#include "api/types.hpp"
#include "base/result.hpp"
#include "cli/view/listing.hpp"

namespace aliquot::cli {

inline constexpr std::string_view kSqueueFormat = "%.18i %.9P %.8j %.8u %.2t %.10M %.6D %R";
inline constexpr std::string_view kSqueueLong = "%.18i %.9P %.8j %.8u %.8T %.10M %.9l %.6D %R";
inline constexpr std::string_view kSqueueStart = "%.18i %.9P %.8j %.8u %.2t %.19S %.6D %20Y %R";
inline constexpr std::string_view kSqueueSteps = "%.15i %.8j %.9P %.8u %.9M %N";
inline constexpr std::string_view kSqueueSort = "P,t,-p";

std::span<const ViewField<api::JobInfo>> squeue_fields();

// A step with the job it belongs to; neither is owned.
struct StepRow {
  const api::JobInfo* job = nullptr;
  const api::StepInfo* step = nullptr;
};
std::span<const ViewField<StepRow>> squeue_step_fields();

// `P,t,-p`: letters of -o, a minus turning the order around. Equal jobs stay in the order of their
// ids.
struct SortKey {
  std::strong_ordering (*compare)(const api::JobInfo& a, const api::JobInfo& b);
  bool descending;
};
Result<std::vector<SortKey>> parse_sort_keys(std::string_view text);
void sort_jobs(std::vector<api::JobInfo>& jobs, const std::vector<SortKey>& keys);

}  // namespace aliquot::cli
