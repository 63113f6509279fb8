#include "base/check.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace aliquot {

std::string_view to_string(Check::Level level) {
  switch (level) {
    case Check::Level::ok:
      return "ok";
    case Check::Level::warn:
      return "warn";
    case Check::Level::fail:
      return "fail";
  }
  return "?";
}

bool all_well(const std::vector<Check>& checks) {
  return std::ranges::find(checks, Check::Level::fail, &Check::level) == checks.end();
}

std::string format_checks(const std::vector<Check>& checks,
                          const std::function<std::string(Check::Level)>& label) {
  std::string out;
  for (const auto& check : checks) {
    out += fmt::format("{} {:<18} {}\n", label(check.level), check.name, check.finding);
    if (!check.cure.empty()) out += fmt::format("      {:<18} -> {}\n", "", check.cure);
  }
  return out;
}

}  // namespace aliquot
