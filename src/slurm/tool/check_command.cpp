// `aliquot slurm check`.
#include <fcntl.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <boost/json.hpp>
#include <filesystem>

#include "slurm/check.hpp"
#include "slurm/endpoint.hpp"
#include "slurm/setup_files.hpp"
#include "slurm/tool/commands.hpp"

namespace aliquot::slurm {
namespace {

namespace fs = std::filesystem;
using Level = Check::Level;

// The nodes that this machine is, by slurm.conf. In a sandbox that is all of them.
std::vector<std::string> nodes_here(const Site& site, const Settings& settings) {
  std::vector<std::string> names;
  const std::string host = short_host_name();
  for (const SiteNode& node : site.nodes) {
    const bool here = settings.agent.node.empty() ? node.name == host || node.host == host
                                                  : node.name == settings.agent.node;
    if (here) names.push_back(node.name);
  }
  return names;
}

void check_here(const Site& site, const Settings& settings, const std::vector<GpuGroup>& gpus,
                std::vector<Check>& checks) {
  std::vector<std::string> names;
  for (const std::string& name : nodes_here(site, settings)) {
    const bool shares = std::ranges::any_of(
        gpus, [&](const auto& group) { return std::ranges::count(group.nodes, name) > 0; });
    if (shares) names.push_back(name);
  }
  for (const std::string& name : names) {
    checks.push_back(check_agent(name, expand_node(settings.agent.socket, name)));
  }
  // Several nodes on one machine have no GPUs of their own to look at.
  if (names.size() != 1) return;
  const auto devices = find_gpus(settings.agent.simulate);
  if (!devices) {
    checks.push_back({"GPUs of " + names.front(), Level::fail, devices.error().message,
                      "install the driver, or take the node's GPUs out of gres.conf"});
  } else {
    checks.push_back(check_gpus(names.front(), *devices, gpus));
  }
}

// libslurm says on stderr, line by line, what it then also returns: not while this lives.
class Silence {
 public:
  Silence() : kept_(::fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 3)) {
    const int null = ::open("/dev/null", O_WRONLY | O_CLOEXEC);
    if (null < 0) return;
    ::dup2(null, STDERR_FILENO);
    ::close(null);
  }
  Silence(const Silence&) = delete;
  Silence& operator=(const Silence&) = delete;
  ~Silence() {
    if (kept_ < 0) return;
    ::dup2(kept_, STDERR_FILENO);
    ::close(kept_);
  }

 private:
  int kept_;
};

std::vector<Check> look(const SiteOptions& options) {
  std::vector<Check> checks;
  auto settings = load_settings(options.config);
  if (!settings) {
    checks.push_back({"settings", Level::fail, settings.error().message, "correct that line"});
    return checks;
  }
  const std::string slurm_conf = options.slurm_conf.empty()
                                     ? slurm_conf_path(*settings)
                                     : fs::absolute(options.slurm_conf).string();
  const auto version = find_version(options.slurm_version);
  if (!version) {
    checks.push_back({"version", Level::fail, version.error().message, "install Slurm"});
    return checks;
  }
  const SetupInput input{.slurm_conf = slurm_conf,
                         .settings = *settings,
                         .version = *version,
                         .gpus = {},
                         .plugin = find_plugin(options.plugin),
                         .confine = !options.no_confine,
                         .billing = false};
  checks = check_files(input, read_conf_file);
  const auto site = read_site(slurm_conf, read_conf_file);
  if (!site) return checks;
  const auto gres = read_conf_file(site->folder() + "/gres.conf");
  const auto gpus = remembered_gpus(gres.value_or(""));
  checks.push_back(check_munge(munge_socket(*site)));
  if (!input.plugin.empty()) checks.push_back(check_plugin(input.plugin, *version));
  check_here(*site, *settings, gpus, checks);
  const Silence silence;
  const auto client = open_client({}, slurm_conf);
  if (!client) {
    checks.push_back({"slurmctld", Level::fail, client.error().message,
                      "install the package that was built for this Slurm"});
    return checks;
  }
  for (auto& check : check_cluster((*client)->nodes(), (*client)->partitions(), *settings, gpus)) {
    checks.push_back(std::move(check));
  }
  checks.push_back(check_escapes((*client)->jobs()));
  return checks;
}

std::string as_json(const std::vector<Check>& checks, bool well) {
  boost::json::array list;
  for (const Check& check : checks) {
    list.push_back({{"name", check.name},
                    {"level", to_string(check.level)},
                    {"finding", check.finding},
                    {"cure", check.cure}});
  }
  return boost::json::serialize(boost::json::object{{"well", well}, {"checks", std::move(list)}});
}

int check(const SiteOptions& options, bool json) {
  const auto checks = look(options);
  const bool well =
      std::ranges::none_of(checks, [](const Check& check) { return check.level == Level::fail; });
  if (json) {
    fmt::print("{}\n", as_json(checks, well));
    return well ? kDone : kFailed;
  }
  for (const Check& check : checks) {
    fmt::print("{:<5} {:<18} {}\n", to_string(check.level), check.name, check.finding);
    if (!check.cure.empty()) fmt::print("      {:<18} -> {}\n", "", check.cure);
  }
  return well ? kDone : kFailed;
}

}  // namespace

void add_check(CLI::App& parent, Invocation& invocation) {
  auto* command = parent.add_subcommand(
      "check", "What is wrong with shared GPUs here, and what to do about it");
  const auto options = std::make_shared<SiteOptions>();
  const auto json = std::make_shared<bool>(false);
  add_site_options(*command, *options);
  command->add_flag("--json", *json, "Print one JSON object");
  command->callback([&invocation, options, json] {
    invocation.run = [options, json] { return check(*options, *json); };
  });
}

}  // namespace aliquot::slurm
