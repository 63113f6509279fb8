// What `aliquot doctor` checks. Each check has a finding and, if something is wrong, what to do.
// The checks change nothing. Those of the machine need no daemon.
#pragma once

#include <string>
#include <vector>

#include "api/types.hpp"
#include "base/check.hpp"
#include "cli/daemon_client.hpp"
#include "cli/view/paint.hpp"

namespace aliquot::cli {

// `state` is where the daemon that answers keeps its state; empty: none answers, and one of the
// caller's would keep it in the usual place.
std::vector<Check> check_machine(const std::string& state);
// Checks what the daemon answered, or why it did not.
std::vector<Check> check_daemon(const Reply<api::ClusterInfo>& cluster);

std::string format_checks(const std::vector<Check>& checks, const Paint& paint);
std::string checks_json(const std::vector<Check>& checks);

}  // namespace aliquot::cli
