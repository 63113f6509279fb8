// `aliquot slurm check`.
#include <grp.h>
#include <pwd.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <boost/json.hpp>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <future>

#include "base/text.hpp"
#include "slurm/check.hpp"
#include "slurm/lua_check.hpp"
#include "slurm/node_conf.hpp"
#include "slurm/node_gpus.hpp"
#include "slurm/setup_files.hpp"
#include "slurm/tool/commands.hpp"
#include "slurm/tool/silence.hpp"
#include "slurm/view/limits.hpp"
#include "sys/host_name.hpp"
#include "sys/program.hpp"
#include "sys/system_clock.hpp"

namespace aliquot::slurm {
namespace {

using Level = Check::Level;

constexpr int kUnknown = 3;  // of try-lua: nothing could be tried
constexpr Millis kPatience = seconds(5);

// The nodes that this machine is, by slurm.conf. In a sandbox that is all of them.
std::vector<std::string> nodes_here(const Site& site, const SiteSettings& settings) {
  std::vector<std::string> names;
  const std::string host = sys::short_host_name();
  for (const SiteNode& node : site.nodes) {
    const bool here = settings.agent.node.empty() ? node.name == host || node.host == host
                                                  : node.name == settings.agent.node;
    if (here) names.push_back(node.name);
  }
  return names;
}

void check_here(const Site& site, const SiteSettings& settings, const std::vector<GpuGroup>& gpus,
                std::vector<Check>& checks) {
  std::vector<std::string> names;
  for (const std::string& name : nodes_here(site, settings)) {
    const bool shares = std::ranges::any_of(
        gpus, [&](const auto& group) { return std::ranges::count(group.nodes, name) > 0; });
    if (shares) names.push_back(name);
  }
  // All at once: several that do not answer take no longer than one.
  std::vector<std::future<AgentCheck>> agents;
  for (const std::string& name : names) {
    agents.push_back(std::async(std::launch::async, [&settings, name] {
      return check_agent(name, expand_node(settings.agent.socket, name));
    }));
  }
  for (std::size_t i = 0; i < names.size(); ++i) {
    const std::string& name = names[i];
    auto agent = agents[i].get();
    checks.push_back(std::move(agent.check));
    // The agent knows; the driver is asked where there is none, and the machine is one node alone.
    if (agent.devices) {
      auto found = check_gpus(name, *agent.devices, gpus);
      if (found.level != Level::ok || names.size() == 1) checks.push_back(std::move(found));
    } else if (names.size() == 1) {
      const auto devices = find_gpus(settings.agent.simulate);
      checks.push_back(devices ? check_gpus(name, *devices, gpus)
                               : Check{"GPUs of " + name, Level::fail, devices.error().message,
                                       "install the driver, or take the node's GPUs out of "
                                       "gres.conf"});
    }
  }
}

// What the limits of users count.
void check_counted(SlurmClient& client, const std::vector<SlurmNode>& nodes,
                   const std::vector<SlurmPartition>& partitions, const SiteSettings& settings,
                   std::vector<Check>& checks) {
  const Snapshot snapshot{client.version(), nodes, {}, partitions};
  const auto qos = output_of(
      {"sacctmgr", "-nP", "show", "qos", "format=Name,MaxTRESPU,MaxTRESPA,GrpTRES,MaxTRES"});
  if (qos.empty()) return;
  const auto associations =
      output_of({"sacctmgr", "-nP", "show", "assoc", "format=Account,User,GrpTRES,MaxTRES"});
  for (auto& check : check_limits(qos, associations, gpu_worth(snapshot, settings))) {
    checks.push_back(std::move(check));
  }
}

// Loads job_submit.lua in a process of its own, as slurmctld's user.
void check_submit_lua(const Site& site, std::vector<Check>& checks) {
  const std::string path = site.folder() + "/job_submit.lua";
  const auto plugin = find_lua_plugin(site.get("PluginDir").value_or(""));
  if (plugin.empty() || ::access(path.c_str(), R_OK) != 0) return;
  const auto own = sys::own_program().string();
  const auto ended = sys::run_program(
      {.file = own,
       .argv = {own, "try-lua", "--user", site.get("SlurmUser").value_or("root"), plugin, path}},
      sys::Streams::apart, "", seconds(10));
  if (ended.status == kDone) {
    checks.push_back({"job_submit.lua", Level::ok, "loads as slurmctld loads it"});
  } else if (ended.status != kUnknown) {
    const auto why = split(ended.out, '\n').front();
    checks.push_back(
        {"job_submit.lua", Level::fail,
         why.empty() ? "slurmctld would not come to its end in 10 s"
                     : fmt::format("slurmctld would not start with it: {}", why),
         "correct " + path + "; slurmctld goes on with what it has until it restarts"});
  }
}

int try_lua(const std::string& user, const std::string& plugin, const std::string& path) {
  if (::geteuid() == 0) {
    const passwd* entry = ::getpwnam(user.c_str());
    if (entry == nullptr || ::initgroups(user.c_str(), entry->pw_gid) != 0 ||
        ::setgid(entry->pw_gid) != 0 || ::setuid(entry->pw_uid) != 0) {
      return kUnknown;
    }
  }
  const auto done = try_submit_lua(path, lua_libraries(read_conf_file(plugin).value_or("")));
  if (done) return kDone;
  if (done.error().code == Error::Code::unsupported) return kUnknown;
  fmt::print("{}\n", done.error().message);
  return kFailed;
}

std::vector<Check> look(const SiteOptions& options) {
  std::vector<Check> checks;
  auto settings = load_settings(options.config);
  if (!settings) {
    checks.push_back({"settings", Level::fail, settings.error().message,
                      settings.error().code == Error::Code::not_found
                          ? "name the file where it is (--config), or none"
                          : "correct that line"});
    return checks;
  }
  const std::string slurm_conf = find_slurm_conf(options, *settings);
  const auto version = find_version(options.slurm_version);
  if (!version) {
    checks.push_back({"version", Level::fail, version.error().message,
                      options.slurm_version.empty()
                          ? "install Slurm"
                          : "write the version as 'slurmctld -V' says it, or nothing"});
    return checks;
  }
  if (!options.plugin.empty() && ::access(options.plugin.c_str(), R_OK) != 0) {
    checks.push_back({"plugin", Level::fail,
                      fmt::format("--plugin {}: {}", options.plugin, std::strerror(errno)),
                      "name aliquot_spank.so where it is, or nothing"});
    return checks;
  }
  ::setenv("SLURM_CONF", slurm_conf.c_str(), 1);  // for sacctmgr
  SetupInput input{.slurm_conf = slurm_conf,
                   .settings = *settings,
                   .version = *version,
                   .gpus = {},
                   .plugin = find_plugin(options.plugin),
                   .confine = !options.no_confine,
                   .billing = false};
  // What plugstack.conf names counts: where it is not installed there is one line about that.
  const auto site = read_site(slurm_conf, read_conf_file);
  const auto plugstack = site ? read_conf_file(site->plugstack_path()).value_or("") : "";
  if (const auto named = plugin_of(plugstack); !named.empty() && options.plugin.empty()) {
    input.plugin = named;
  }
  checks = check_files(input, read_conf_file);
  if (!site) return checks;
  const auto gres = read_conf_file(site->folder() + "/gres.conf");
  const auto gpus = remembered_gpus(gres.value_or(""));
  check_submit_lua(*site, checks);
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
  const auto nodes = (*client)->nodes();
  if (!nodes) {
    checks.push_back(
        {"slurmctld", Level::fail, nodes.error().message, "scontrol ping; see SlurmctldLogFile"});
    return checks;  // each further question would wait as long
  }
  const auto partitions = (*client)->partitions();
  for (auto& check : check_cluster(nodes, partitions, *settings, gpus)) {
    checks.push_back(std::move(check));
  }
  const bool accounted = site->get("AccountingStorageType").value_or("").ends_with("slurmdbd");
  if (partitions && accounted && !gpus.empty()) {
    check_counted(**client, *nodes, *partitions, *settings, checks);
  }
  checks.push_back(check_escapes((*client)->jobs()));
  return checks;
}

std::string label(Level level) {
  return level == Level::fail ? "FAIL" : std::string(to_string(level));
}

std::string as_json(const std::vector<Check>& checks) {
  boost::json::array list;
  for (const Check& check : checks) {
    list.push_back({{"name", check.name},
                    {"level", label(check.level)},
                    {"finding", check.finding},
                    {"cure", check.cure}});
  }
  return boost::json::serialize(
      boost::json::object{{"well", all_well(checks)}, {"checks", std::move(list)}});
}

// An agent that has had its time.
bool was_waited_for(const Check& check) {
  return check.finding.find("does not answer within") != std::string::npos;
}

// Agents and samples take a moment after a start: nobody is told of what is well a second later.
bool may_come(const std::vector<Check>& checks) {
  return std::ranges::any_of(checks, [](const Check& check) {
    return check.level == Level::fail &&
           ((check.name.starts_with("agent of ") && !was_waited_for(check)) ||
            check.finding.starts_with("no fresh samples"));
  });
}

int check(const SiteOptions& options, bool json) {
  auto checks = look(options);
  const sys::SystemClock clock;
  const auto patience = clock.mono() + kPatience;
  while (may_come(checks) && clock.mono() < patience) {
    ::usleep(500'000);
    checks = look(options);
  }
  fmt::print("{}", json ? as_json(checks) + "\n" : format_checks(checks, [](Level level) {
               return fmt::format("{:<5}", label(level));
             }));
  return all_well(checks) ? kDone : kFailed;
}

}  // namespace

int check_site() { return check({}, false); }

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
  // For check_submit_lua() alone.
  auto* lua = parent.add_subcommand("try-lua")->group("");
  const auto words = std::make_shared<std::vector<std::string>>();
  const auto user = std::make_shared<std::string>();
  lua->add_option("--user", *user);
  lua->add_option("files", *words)->expected(2);
  lua->callback([&invocation, words, user] {
    invocation.run = [words, user] { return try_lua(*user, words->at(0), words->at(1)); };
  });
}

}  // namespace aliquot::slurm
