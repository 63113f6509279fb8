// What `aliquot doctor` looks at: each check says how it stands and, where it is not well, what to
// do. Looking changes nothing. The checks of the machine need no daemon.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "api/types.hpp"
#include "cli/common.hpp"
#include "cli/view/paint.hpp"

namespace aliquot::cli {

struct Check {
  enum class Level { ok, warn, fail };

  std::string name;
  Level level = Level::ok;
  std::string finding;
  std::string cure;  // what to do; empty where it is well
};

std::string_view to_string(Check::Level level);

// Files are looked for below `root`, which is empty but in tests.
std::vector<Check> check_machine(const std::string& root);
// Of what the daemon says, or why it says nothing.
std::vector<Check> check_daemon(const Answer<api::ClusterInfo>& cluster);

std::string format_checks(const std::vector<Check>& checks, const Paint& paint);
std::string checks_json(const std::vector<Check>& checks);
bool all_well(const std::vector<Check>& checks);  // nothing fails

}  // namespace aliquot::cli
