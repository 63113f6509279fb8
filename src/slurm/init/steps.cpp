#include "slurm/init/steps.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "slurm/conf_text.hpp"
#include "slurm/plain_name.hpp"

namespace aliquot::slurm {
namespace {

using Words = std::vector<std::string>;

// Brings libslurm, through which ours talk to Slurm: its own package has another name in each
// Debian.
const char* const kLibslurm = "libslurm-dev";
const char* const kLogs = "/var/log/slurm/";

// A daemon of Debian's: started anew, and at every start of the machine.
void add_daemon(std::vector<Step>& steps, const Machine& machine, Step step) {
  const std::string name = step.daemon;
  step.purpose = name;
  if (machine.systemd) {
    step.command = {"systemctl", "restart", name};
    steps.push_back({.purpose = name + " at every start",
                     .command = {"systemctl", "enable", name},
                     .done_by = {"systemctl", "is-enabled", "--quiet", name}});
  } else if (step.command.empty()) {
    step.command = {"service", name, "restart"};
  }
  if (step.until.empty()) {
    step.until = step.done_by;
    step.until_line = step.done_line;
  }
  steps.push_back(std::move(step));
}

// One of ours: it goes to the background by itself.
void add_ours(std::vector<Step>& steps, const Machine& machine, const std::string& name,
              const std::string& program) {
  add_daemon(steps, machine,
             {.purpose = {},
              .command = {"start-stop-daemon", "--start", "--oknodo", "--exec", program},
              .done_by = {"pidof", name},
              .daemon = name,
              .log = fmt::format("/var/log/{}.log", name)});
}

void add_folder(std::vector<Step>& steps, const std::string& path) {
  steps.push_back({.purpose = "the folder " + path,
                   .command = {"install", "-d", "-o", "slurm", "-g", "slurm", "-m", "755", path},
                   .done_by = {"test", "-d", path}});
}

Step sacctmgr(std::string purpose, const Words& what, const Words& seen_by, std::string line) {
  Step step{.purpose = std::move(purpose),
            .command = {"sacctmgr", "-i", "-Q"},
            .done_by = {"sacctmgr", "-n", "-P", "show"},
            .done_line = std::move(line)};
  step.command.insert(step.command.end(), what.begin(), what.end());
  step.done_by.insert(step.done_by.end(), seen_by.begin(), seen_by.end());
  return step;
}

void add_accounts(std::vector<Step>& steps, const ClusterSteps& cluster) {
  steps.push_back(sacctmgr("the cluster in the accounts", {"add", "cluster", cluster.cluster},
                           {"cluster", "format=cluster"}, cluster.cluster));
  steps.push_back(sacctmgr(
      "the account 'users'",
      {"add", "account", "users", "cluster=" + cluster.cluster, "Description=users",
       "Organization=" + cluster.cluster},
      {"assoc", "cluster=" + cluster.cluster, "account=users", "format=account,user"}, "users|"));
  for (const char* qos : {"main", "besteffort"}) {
    steps.push_back(sacctmgr(fmt::format("the QOS of the partition {}", qos), {"add", "qos", qos},
                             {"qos", "format=name"}, qos));
  }
  if (cluster.user_billing > 0) {
    const auto limit = fmt::format("billing={}", cluster.user_billing);
    steps.push_back(sacctmgr("what a user may have in main at a time",
                             {"modify", "qos", "main", "set", "MaxTRESPerUser=" + limit},
                             {"qos", "main", "format=maxtrespu"}, limit));
  }
  for (const std::string& user : cluster.users) {
    steps.push_back(sacctmgr(
        "the user " + user, {"add", "user", user, "account=users", "cluster=" + cluster.cluster},
        {"assoc", "cluster=" + cluster.cluster, "user=" + user, "format=account"}, "users"));
  }
}

void add_slurmd(std::vector<Step>& steps, const std::string& node, const std::string& controller,
                const Machine& machine) {
  add_folder(steps, "/var/lib/slurm/slurmd");
  add_folder(steps, "/var/log/slurm");
  Words start{"sh", "-c",
              "start-stop-daemon --stop --quiet --oknodo --retry TERM/5/KILL/5 --exec "
              "/usr/sbin/slurmd; start-stop-daemon --start --exec /usr/sbin/slurmd" +
                  (controller.empty() ? "" : " -- --conf-server " + controller)};
  add_daemon(steps, machine,
             {.purpose = {},
              .command = std::move(start),  // Debian's script wants a slurm.conf, as its unit does
              // slurmctld takes a while to see that one is gone.
              .done_by = {"sh", "-c",
                          "pidof slurmd >/dev/null && sinfo -h -n " + node +
                              " -t idle,mix,alloc,comp -o %n"},
              .done_line = node,
              .daemon = "slurmd",
              .log = fmt::format("{}slurmd.log", kLogs)});
}

}  // namespace

std::vector<std::string> controller_packages(bool also_node) {
  Words names{"munge",
              "mariadb-server",
              "slurmctld",
              "slurmdbd",
              "slurm-client",
              "slurm-wlm-basic-plugins",
              "slurm-wlm-mysql-plugin",
              kLibslurm};
  if (also_node) names.emplace_back("slurmd");
  return names;
}

std::vector<std::string> node_packages() {
  return {"munge", "slurmd", "slurm-client", "slurm-wlm-basic-plugins", kLibslurm};
}

std::vector<Step> package_steps(const std::vector<std::string>& packages) {
  Step step{.purpose = "the packages",
            .command = {"apt-get", "-q", "-y", "--no-install-recommends", "install"},
            .done_by = {"dpkg-query", "-W", "-f", "${db:Status-Status}"}};
  step.command.insert(step.command.end(), packages.begin(), packages.end());
  // All of them in one word: what is not installed says so in between.
  for (const auto& name : packages) {
    step.done_by.push_back(name);
    step.done_line += "installed";
  }
  Step lists = step;
  lists.purpose = "the lists of packages";
  lists.command = {"apt-get", "-q", "update"};
  return {std::move(lists), std::move(step)};
}

std::vector<Step> controller_steps(const ClusterSteps& cluster, const Machine& machine) {
  std::vector<Step> steps;
  steps.push_back({.purpose = "the key of munge",
                   .command = {"runuser", "-u", "munge", "--", "mungekey", "--create"},
                   .done_by = {"test", "-s", "/etc/munge/munge.key"}});
  add_folder(steps, "/var/lib/slurm/slurmctld");
  add_folder(steps, "/var/log/slurm");
  steps.push_back(
      {.purpose = "slurmdbd.conf for slurm's eyes alone",
       .command = {"sh", "-c",
                   "chown slurm: /etc/slurm/slurmdbd.conf && chmod 600 "
                   "/etc/slurm/slurmdbd.conf"},
       .done_by = {"find", "/etc/slurm/slurmdbd.conf", "-user", "slurm", "-perm", "600"},
       .done_line = "/etc/slurm/slurmdbd.conf"});
  add_daemon(steps, machine,
             {.purpose = {},
              .command = {},
              .done_by = {"munge", "-n"},
              .daemon = "munge",
              .log = "/var/log/munge/munged.log"});
  add_daemon(steps, machine,
             {.purpose = {},
              .command = {},
              .done_by = {"mariadb", "-e", "select 1"},
              .daemon = "mariadb"});
  steps.push_back(
      {.purpose = "the database of slurmdbd",
       .command = {"mariadb", "-e",
                   "create database if not exists slurm_acct_db; create user if not "
                   "exists slurm@localhost identified via unix_socket; grant all on "
                   "slurm_acct_db.* to slurm@localhost"},
       .done_by = {"runuser", "-u", "slurm", "--", "mariadb", "slurm_acct_db", "-e", "select 1"}});
  add_daemon(steps, machine,
             {.purpose = {},
              .command = {},
              .done_by = {"sacctmgr", "-n", "-P", "show", "cluster", "format=cluster"},
              .daemon = "slurmdbd",
              .log = fmt::format("{}slurmdbd.log", kLogs)});
  add_accounts(steps, cluster);
  add_daemon(steps, machine,
             {.purpose = {},
              .command = {},
              .done_by = {"sinfo", "-h", "-p", "main", "-o", "%R"},
              .done_line = "main",
              .daemon = "slurmctld",
              .log = fmt::format("{}slurmctld.log", kLogs)});
  if (!cluster.own_node.empty()) add_slurmd(steps, cluster.own_node, "", machine);
  if (cluster.shares) {
    add_ours(steps, machine, "aliquot-balancer", machine.balancer);
    if (!cluster.own_node.empty()) add_ours(steps, machine, "aliquot-agent", machine.agent);
  }
  return steps;
}

std::vector<Step> node_steps(const std::string& node, const std::string& controller,
                             const Machine& machine) {
  std::vector<Step> steps;
  if (machine.systemd) {
    steps.push_back({.purpose = "systemd's units",
                     .command = {"systemctl", "daemon-reload"},
                     .done_by = {"systemctl", "show", "-P", "NeedDaemonReload", "slurmd"},
                     .done_line = "no"});
  }
  add_daemon(steps, machine,
             {.purpose = {},
              .command = {},
              .done_by = {"munge", "-n"},
              .daemon = "munge",
              .log = "/var/log/munge/munged.log"});
  add_slurmd(steps, node, controller, machine);
  add_ours(steps, machine, "aliquot-agent", machine.agent);
  return steps;
}

std::string slurmd_defaults(std::string_view before, std::string_view controller) {
  ConfEdit edit(without_ours(before), CommentStyle{});
  edit.append(fmt::format("SLURMD_OPTIONS=\"--conf-server {}\"", controller));
  return edit.text();
}

std::string shell_line(const std::vector<std::string>& command) {
  std::string line;
  for (const auto& word : command) {
    if (!line.empty()) line += ' ';
    if (is_plain_name(word, "/:=,%@+")) {
      line += word;
      continue;
    }
    line += '\'';
    for (const char c : word) line += c == '\'' ? std::string("'\\''") : std::string(1, c);
    line += '\'';
  }
  return line;
}

std::vector<std::string> daemons_of(std::string_view path) {
  if (path.ends_with(".cnf")) return {"mariadb"};
  if (path.ends_with("/slurmdbd.conf")) return {"slurmdbd"};
  if (path.ends_with("/munge.key")) return {"munge"};
  // A controller may be a node as well.
  if (path.starts_with("/etc/slurm/")) return {"slurmctld", "slurmd"};
  return {"slurmd"};
}

}  // namespace aliquot::slurm
