// What `aliquot slurm init` does besides writing files, as data: a list of commands in their order,
// each with how to see that it is done already. What is shown without --apply is this list, and
// --apply runs it; a second run finds everything done. Pure: the tool runs them.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace aliquot::slurm {

struct Step {
  std::string purpose;  // "the database of slurmdbd"; stands in messages
  std::vector<std::string> command;
  std::vector<std::string> done_by;  // it is done where this succeeds …
  std::string done_line = {};        // … and prints this line; empty: whatever it prints
  // A daemon that must start anew where one of its files has changed, whatever done_by says.
  std::string daemon = {};
  std::vector<std::string> until = {};  // afterwards: until this succeeds …
  std::string until_line = {};          // … and prints this line
  std::string log = {};                 // that tells why not
};

// How a machine starts its daemons.
struct Machine {
  bool systemd = true;
  std::string agent = "/usr/sbin/aliquot-agent";
  std::string balancer = "/usr/sbin/aliquot-balancer";
};

std::vector<std::string> controller_packages(bool also_node);
std::vector<std::string> node_packages();
std::vector<Step> package_steps(const std::vector<std::string>& packages);

struct ClusterSteps {
  std::string cluster;
  std::int64_t user_billing = 0;  // the most that a user has in main at a time; 0: as it is
  std::vector<std::string> users = {};
  bool shares = true;         // there are GPUs
  std::string own_node = {};  // the controller is this node as well
};
std::vector<Step> controller_steps(const ClusterSteps& cluster, const Machine& machine);

// A node fetches its files from the controller, and has none of its own.
std::vector<Step> node_steps(const std::string& node, const std::string& controller,
                             const Machine& machine);
// Where Debian's slurmd is told whom to ask; an own block in what the file has.
std::string slurmd_defaults(std::string_view before, std::string_view controller);
// Debian 12's unit waits for a slurm.conf that such a node never has.
inline constexpr std::string_view kSlurmdDropIn = "[Unit]\nConditionPathExists=\n";

// As a shell would take it.
std::string shell_line(const std::vector<std::string>& command);

// The daemon that reads a file, if it must start anew for it.
std::vector<std::string> daemons_of(std::string_view path);

}  // namespace aliquot::slurm
