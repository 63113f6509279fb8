// The resource limits that Slurm knows by name, and its way of saying which of them go with a job:
// `--propagate`.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"

namespace aliquot {

struct LimitName {
  std::string_view name;  // NOFILE
  int resource = 0;       // RLIMIT_NOFILE
};
const std::vector<LimitName>& limit_names();

// ALL, NONE, or names with commas between them, with RLIMIT_ in front or without. The error is
// Slurm's.
Result<std::vector<std::string>> parse_propagate(std::string_view text);

}  // namespace aliquot
