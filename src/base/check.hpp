// One thing that somebody looked at, how it stands and, where it is not well, what to do: for
// `aliquot doctor` and `aliquot slurm check`.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace aliquot {

struct Check {
  enum class Level { ok, warn, fail };

  std::string name;
  Level level = Level::ok;
  std::string finding;
  std::string cure = {};  // what to do; empty where it is well
};

std::string_view to_string(Check::Level level);

bool all_well(const std::vector<Check>& checks);  // nothing fails

// For people: a line for each check, and one more for what to do. `label` writes a level, five
// columns wide.
std::string format_checks(const std::vector<Check>& checks,
                          const std::function<std::string(Check::Level)>& label);

}  // namespace aliquot
