// `aliquot slurm init`: a cluster from nothing, on Debian.
#include <netdb.h>
#include <pwd.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <iostream>
#include <iterator>

#include "base/hostlist.hpp"
#include "base/text.hpp"
#include "node/service.hpp"
#include "slurm/conf_text.hpp"
#include "slurm/init/cluster_files.hpp"
#include "slurm/init/node_line.hpp"
#include "slurm/plain_name.hpp"
#include "slurm/setup_files.hpp"
#include "slurm/tool/commands.hpp"
#include "slurm/tool/init_steps.hpp"
#include "sys/file.hpp"
#include "sys/host_name.hpp"
#include "sys/program.hpp"

namespace aliquot::slurm {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kLargestInput = 1UL << 20U;
constexpr const char* kMungeKey = "/etc/munge/munge.key";

struct InitOptions {
  std::string config;
  std::string nodes;
  std::string cluster;
  std::string users;
  std::int64_t user_gpus = 0;
  std::string join;
  std::string key;
  bool describe = false;
  bool apply = false;
};

// A file, or "-": what comes in.
Result<std::string> read_input(const std::string& path, std::string_view what) {
  std::string text;
  if (path == "-") {
    text.assign(std::istreambuf_iterator<char>(std::cin), {});
  } else {
    auto read = sys::read_whole(fs::absolute(path), kLargestInput);
    if (!read) {
      return fail(read.error().code, "{}: {}: give a file, or - for what comes in", what,
                  read.error().message);
    }
    text = std::move(*read);
  }
  if (text.empty() || text.size() > kLargestInput) {
    return fail(Error::Code::invalid_argument, "{} {}: {}", what, quote(path),
                text.empty() ? "there is nothing in it" : "is far too large");
  }
  return text;
}

bool resolves(const std::string& host) {
  addrinfo* found = nullptr;
  const bool known = ::getaddrinfo(host.c_str(), nullptr, nullptr, &found) == 0;
  if (found != nullptr) ::freeaddrinfo(found);
  return known;
}

Result<void> check_name(const std::string& host, std::string_view whose) {
  if (is_plain_name(host) && host.size() <= 255 && resolves(host)) return {};
  return fail(Error::Code::not_found,
              "the name of {}, {}, is not known here: put its address into /etc/hosts, or into the "
              "name server",
              whose, quote(host));
}

Result<void> check_machine(bool apply) {
  if (!fs::exists("/etc/debian_version") || sys::find_in_path("apt-get", "/usr/bin:/bin").empty()) {
    return fail(Error::Code::unsupported,
                "init knows Debian alone: install Slurm as this system does, and share its GPUs "
                "with 'aliquot slurm setup'");
  }
  if (apply && ::geteuid() != 0) {
    return fail(Error::Code::permission_denied, "--apply needs root: it installs packages");
  }
  return {};
}

Machine this_machine() {
  const auto part = [](const char* name) {
    const fs::path file = fs::path("sbin") / name;
    return node::find_part({fs::path("../..") / file, fs::path("..") / file, name},
                           fs::path("/usr") / file)
        .lexically_normal()
        .string();
  };
  return {.systemd = fs::is_directory("/run/systemd/system"),
          .agent = part("aliquot-agent"),
          .balancer = part("aliquot-balancer")};
}

std::vector<CpuPlace> cpus_here() {
  std::vector<CpuPlace> cpus;
  const fs::path all = "/sys/devices/system/cpu";
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(all, error)) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with("cpu") || !is_digits(std::string_view(name).substr(3))) continue;
    const auto package = sys::read_whole(entry.path() / "topology/physical_package_id");
    const auto siblings = sys::read_whole(entry.path() / "topology/thread_siblings_list");
    if (package && siblings) cpus.push_back({*package, *siblings});  // one that is off has neither
  }
  return cpus;
}

std::int64_t memory_here() {
  return static_cast<std::int64_t>(::sysconf(_SC_PHYS_PAGES)) * ::sysconf(_SC_PAGESIZE) /
         (1LL << 20);
}

Result<NodeLine> describe_here(const SiteSettings& settings) {
  NodeLine node;
  node.name = settings.agent.node.empty() ? sys::short_host_name() : settings.agent.node;
  node.hardware = describe_hardware(cpus_here(), memory_here());
  const auto devices = find_gpus(settings.agent.simulate);
  // No driver: a node without GPUs.
  if (!devices && devices.error().code != Error::Code::unsupported) {
    return tl::make_unexpected(devices.error());
  }
  if (devices) node.gpus = group_gpus(*devices);
  return node;
}

// Slurm's version; where it is yet to be installed, the one that will be.
Result<SlurmVersion> version_to_be() {
  if (auto version = find_version("")) return version;
  const std::string policy = output_of({"apt-cache", "policy", "slurmctld"}, seconds(30));
  const auto candidate = policy.find("Candidate:");
  if (candidate != std::string::npos) {
    if (const auto version = parse_slurm_version(policy.substr(candidate))) return *version;
  }
  return fail(Error::Code::not_found,
              "apt knows no package slurmctld: run 'apt-get update', or add a Debian mirror to "
              "/etc/apt/sources.list");
}

Result<std::vector<std::string>> users_of(const std::string& list) {
  std::vector<std::string> users;
  for (const auto user : split(list, ',')) {
    if (user.empty()) continue;
    users.emplace_back(user);
    if (::getpwnam(users.back().c_str()) == nullptr) {
      return fail(Error::Code::not_found,
                  "--users: there is no user {} here: add it first, with the same uid on every "
                  "machine",
                  quote(user));
    }
  }
  return users;
}

Result<ClusterFiles> plan_files(const InitOptions& options, const SiteSettings& settings,
                                const std::vector<NodeLine>& nodes) {
  ClusterInput input;
  input.cluster = options.cluster;
  input.host = sys::short_host_name();
  input.nodes = nodes;
  input.settings = settings;
  input.version = TRY(version_to_be());
  input.plugin = find_plugin("");
  input.bare_cgroup2 = !this_machine().systemd && fs::exists("/sys/fs/cgroup/cgroup.controllers");
  return plan_cluster(input, read_conf_file);
}

// Whether nodes that run already have files that are old now.
bool is_new_to_nodes(const ClusterFiles& files) {
  return std::ranges::any_of(files.plan.changes, [](const FileChange& change) {
    return change.before &&
           (change.path.ends_with("/slurm.conf") || change.path.ends_with("/gres.conf"));
  });
}

// What comes after it; nothing where every node is there already.
std::string what_is_next(const ClusterFiles& files, const std::string& host) {
  std::vector<std::string> names;
  for (const NodeLine& node : files.nodes) {
    if (node.name != host) names.push_back(node.name);
  }
  const std::string all = fold_hostlist(names);
  const auto there = output_of(
      {"sinfo", "-h", "-N", "-n", all, "-t", "idle,mix,alloc,comp", "-o", "%n"}, seconds(20));
  std::erase_if(names, [&](const auto& name) {
    return ("\n" + there).find("\n" + name + "\n") != std::string::npos;
  });
  if (names.empty()) return "";
  return fmt::format(
      "Now let the nodes join, here where ssh gets there as root, else on each node with the key "
      "as a file:\n"
      "  for n in {}; do ssh $n aliquot slurm init --join {} --key - --apply <{}; done\n"
      "and then look at all of it: aliquot slurm check\n",
      fmt::join(names, " "), host, kMungeKey);
}

int say_end(const StepRunner& runner, bool apply) {
  if (runner.changes() == 0) {
    fmt::print("Nothing to change.\n");
  } else if (!apply) {
    fmt::print("Nothing was changed: do it with --apply.\n");
  }
  return kDone;
}

Result<int> init_controller(const InitOptions& options, const SiteSettings& settings) {
  const std::string host = sys::short_host_name();
  TRY(check_machine(options.apply));
  TRY(check_name(host, "this machine"));
  std::vector<NodeLine> told;
  if (!options.nodes.empty()) {
    const std::string text = TRY(read_input(options.nodes, "--nodes"));
    told = TRY(parse_node_lines(text, options.nodes == "-" ? "stdin" : options.nodes));
  }
  StepRunner runner(options.apply);
  // On a fresh machine apt may know nothing yet.
  if (options.apply && !version_to_be())
    TRY(runner.steps({package_steps(controller_packages(false)).front()}));
  // Before anything is done: what is wrong is said at once.
  ClusterFiles files = TRY(plan_files(options, settings, told));
  for (const NodeLine& node : files.nodes) TRY(check_name(node.name, "a node"));
  if (options.user_gpus > 0 && files.gpu_shards == 0) {
    return fail(Error::Code::invalid_argument, "--user-gpus: the nodes have no GPUs");
  }
  const bool also_node = std::ranges::find(files.nodes, host, &NodeLine::name) != files.nodes.end();
  const ClusterSteps cluster{.cluster = files.cluster,
                             .user_billing = user_billing(files, options.user_gpus),
                             .users = TRY(users_of(options.users)),
                             .shares = files.gpu_shards > 0,
                             .own_node = also_node ? host : ""};
  TRY(runner.steps(package_steps(controller_packages(also_node))));
  // Packages have brought files of their own.
  files = TRY(plan_files(options, settings, told));
  TRY(runner.files(files.plan));
  TRY(runner.steps(controller_steps(cluster, this_machine())));
  for (const std::string& note : files.plan.notes) fmt::print("note: {}\n", note);
  if (is_new_to_nodes(files)) {
    fmt::print("note: nodes that run already learn of it when slurmd is restarted there\n");
  }
  say_end(runner, options.apply);
  if (!options.apply) return kDone;
  const std::string next = what_is_next(files, host);
  if (!next.empty()) {
    fmt::print("The cluster {} is up on {}. {}", files.cluster, host, next);
    return kDone;
  }
  return files.gpu_shards > 0 ? check_site() : kDone;
}

Result<int> join(const InitOptions& options, const SiteSettings& settings) {
  TRY(check_machine(options.apply));
  TRY(check_name(options.join, "the controller"));
  const std::string node =
      settings.agent.node.empty() ? sys::short_host_name() : settings.agent.node;
  if (options.join == sys::short_host_name() || options.join == sys::host_name()) {
    return fail(Error::Code::invalid_argument,
                "--join {}: this is {}: give its line with --nodes, and it is a node of its own",
                options.join, options.join);
  }
  if (fs::exists(fs::path(kSlurmFolder) / "slurm.conf")) {
    return fail(Error::Code::already_exists,
                "{}/slurm.conf is there: this machine has a Slurm; move the file away, so that it "
                "can join another",
                kSlurmFolder);
  }
  std::string key;
  if (!options.key.empty()) {
    key = TRY(read_input(options.key, "--key"));
    if (key.size() < 32) {
      return fail(Error::Code::invalid_argument, "--key {}: this is no key of munge: give {} of {}",
                  quote(options.key), kMungeKey, options.join);
    }
  }
  const std::string defaults = "/etc/default/slurmd";
  const auto before = read_conf_file(defaults);
  if (key.empty() && (!before || !has_ours(*before))) {
    return fail(Error::Code::invalid_argument,
                "--join needs the key of {}: on {}: ssh {} aliquot slurm init --join {} --key - "
                "--apply <{}",
                options.join, options.join, node, options.join, kMungeKey);
  }
  TRY(own_text(before.value_or(""), defaults));
  const Machine machine = this_machine();
  StepRunner runner(options.apply);
  TRY(runner.steps(package_steps(node_packages())));
  if (!key.empty()) TRY(runner.secret(kMungeKey, key, "munge"));
  SetupPlan files;
  const auto add = [&](const std::string& path, const std::string& text) -> Result<void> {
    const auto now = read_conf_file(path);
    if (!now && now.error().code != Error::Code::not_found) {
      return tl::make_unexpected(now.error());
    }
    if (now && *now == text) return {};
    files.changes.push_back({path, now ? std::optional(*now) : std::nullopt, text});
    return {};
  };
  TRY(add(defaults, slurmd_defaults(read_conf_file(defaults).value_or(""), options.join)));
  if (machine.systemd) {
    TRY(add("/etc/systemd/system/slurmd.service.d/aliquot.conf", std::string(kSlurmdDropIn)));
  }
  TRY(runner.files(files));
  TRY(runner.steps(node_steps(node, options.join, machine)));
  say_end(runner, options.apply);
  if (options.apply) {
    const std::string state = output_of({"sinfo", "-h", "-n", node, "-o", "%T, GRES %G"});
    fmt::print("{} is a node of {}: {}\n", node, options.join, state.substr(0, state.find('\n')));
  }
  return kDone;
}

Result<int> init(const InitOptions& options) {
  const SiteSettings settings = TRY(load_settings(options.config));
  if (options.describe) {
    fmt::print("{}\n", format_node_line(TRY(describe_here(settings))));
    return kDone;
  }
  return options.join.empty() ? init_controller(options, settings) : join(options, settings);
}

}  // namespace

void add_init(CLI::App& parent, Invocation& invocation) {
  auto* command = parent.add_subcommand(
      "init",
      "A whole Slurm with shared GPUs on bare Debian machines: on the controller, then on each "
      "node; shows it, and changes nothing without --apply");
  const auto options = std::make_shared<InitOptions>();
  command->add_option("--config", options->config, "The settings (/etc/aliquot/slurm.toml)");
  auto* nodes = command->add_option(
      "--nodes", options->nodes,
      "FILE with a line for each node, as --describe prints it there; '-': from stdin. "
      "Remembered from then on");
  auto* cluster =
      command->add_option("--cluster", options->cluster, "The name of the cluster (cluster)");
  auto* users = command->add_option("--users", options->users, "A,B,…: who may submit jobs");
  auto* user_gpus =
      command
          ->add_option("--user-gpus", options->user_gpus,
                       "The GPUs' worth that each user has in the partition main at most; more in "
                       "besteffort")
          ->check([](const std::string& text) {
            const auto gpus = parse_digits(text);
            return gpus && *gpus >= 1 && *gpus <= 100'000
                       ? ""
                       : quote(text) + " is no whole number from 1 to 100000";
          });
  auto* describe = command->add_flag("--describe", options->describe,
                                     "On a node: print its line for --nodes; changes nothing");
  auto* joining = command->add_option("--join", options->join,
                                      "CONTROLLER: on a node: make it one of that cluster's");
  auto* key = command->add_option("--key", options->key,
                                  "FILE: the controller's /etc/munge/munge.key; '-': from stdin");
  command->add_flag("--apply", options->apply, "Do it")->excludes(describe);
  key->needs(joining);
  for (auto* other : {nodes, cluster, users, user_gpus}) {
    joining->excludes(other);
    describe->excludes(other);
  }
  describe->excludes(joining);
  command->callback([&invocation, options] {
    invocation.run = [options] {
      const auto status = init(*options);
      return status ? *status : complain(status.error().message);
    };
  });
}

}  // namespace aliquot::slurm
