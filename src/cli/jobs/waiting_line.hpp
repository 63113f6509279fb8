// What a waiting srun or salloc shows of its job on a terminal: its place in the queue, and when it
// may start. Text only.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "api/types.hpp"
#include "base/time.hpp"

namespace aliquot::cli {

// `srun: job 7: 2 jobs are before it; expected to start at 21:30:00, in 12:10`
std::string waiting_line(std::string_view command, const api::WhyInfo& why, WallTime now);

// So many characters (UTF-8) of it.
std::string cut_to_columns(std::string_view text, std::size_t columns);

}  // namespace aliquot::cli
