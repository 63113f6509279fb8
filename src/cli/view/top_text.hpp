// `aliquot top` as text: the GPUs with what is granted and what is really used, and the jobs that
// run, with their share and their measured use, busiest first. Pure; the screen is top.cpp's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "api/types.hpp"
#include "cli/view/overview_text.hpp"
#include "cli/view/paint.hpp"

namespace aliquot::cli {

// What was measured of a job; empty if it cannot be told apart from other jobs on its GPU.
struct JobUse {
  std::optional<std::int64_t> utilisation = {};  // 1/10,000 of a GPU, the mean over its GPUs
  std::optional<std::int64_t> memory = {};       // bytes on all of them
};
JobUse use_of(const api::JobInfo& job, const api::ClusterInfo& cluster);

std::string format_top(const api::Overview& overview, const Looking& looking, const Paint& paint);

// The first lines and columns of a text that may hold colours: what fits on a screen.
std::string clip(std::string_view text, std::size_t lines, std::size_t columns);

}  // namespace aliquot::cli
