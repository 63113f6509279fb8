#include "slurm/check.hpp"

#include <dlfcn.h>
#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>

#include "base/hostlist.hpp"
#include "base/size.hpp"
#include "base/text.hpp"
#include "net/client.hpp"
#include "slurm/agent/found_grant.hpp"
#include "slurm/munge.hpp"
#include "slurm/plugins/drain.h"
#include "slurm/setup_files.hpp"

namespace aliquot::slurm {
namespace {

using Level = Check::Level;

// Weights that the balancer sets end in 0…100, or in this where a node is not heard of.
constexpr std::uint32_t kWeightStep = 1000;
constexpr std::uint32_t kStale = 101;

bool has_item(std::string_view list, std::string_view item) {
  const auto parts = split(list, ',');
  return std::ranges::any_of(parts, [&](auto part) { return equals_ignoring_case(part, item); });
}

// What counts shares and whole GPUs together, and what stops them from being counted.
void check_accounting(const Site& site, const SiteTable& table, std::vector<Check>& checks) {
  const auto type = site.get("AccountingStorageType").value_or("");
  if (!type.ends_with("slurmdbd")) {
    checks.push_back({"accounting", Level::warn, "no slurmdbd: Slurm enforces no limits per user",
                      "where users must not take all GPUs, set up slurmdbd"});
    return;
  }
  const auto tres = site.get("AccountingStorageTRES").value_or("");
  if (has_item(tres, "gres/gpu") && has_item(tres, "gres/shard")) {
    checks.push_back({"accounting", Level::ok, "gres/gpu and gres/shard are accounted"});
  } else {
    checks.push_back({"accounting", Level::fail,
                      "AccountingStorageTRES lacks gres/gpu or gres/shard",
                      "aliquot slurm setup --apply, then restart slurmctld"});
  }
  std::vector<std::string> without;
  for (const SitePartition& partition : site.partitions) {
    const auto entry = std::ranges::find(table.partitions, partition.name, &Partition::name);
    const auto weights = to_lower(partition.billing_weights);
    if (entry == table.partitions.end() || entry->models.empty()) continue;
    if (weights.find("gres/shard") == std::string::npos ||
        weights.find("gres/gpu") == std::string::npos) {
      without.push_back(partition.name);
    }
  }
  if (without.empty()) {
    checks.push_back({"billing", Level::ok, "shares and whole GPUs are billed alike"});
  } else {
    checks.push_back(
        {"billing", Level::warn,
         fmt::format("partition {}: a limit on GPUs does not count shares",
                     fmt::join(without, ", ")),
         "aliquot slurm setup --billing --apply, and limit by MaxTRESPerUser=billing=…"});
  }
}

}  // namespace

std::string_view to_string(Check::Level level) {
  switch (level) {
    case Level::ok:
      return "ok";
    case Level::warn:
      return "warn";
    case Level::fail:
      return "FAIL";
  }
  return "?";
}

std::vector<Check> check_files(const SetupInput& input, const ReadFile& read) {
  std::vector<Check> checks;
  auto site = read_site(input.slurm_conf, read);
  if (!site) {
    checks.push_back({"slurm.conf", Level::fail, site.error().message,
                      "set SLURM_CONF, or [slurm] conf in /etc/aliquot/slurm.toml"});
    return checks;
  }
  checks.push_back({"slurm.conf", Level::ok,
                    fmt::format("{}: {} nodes, {} partitions", input.slurm_conf, site->nodes.size(),
                                site->partitions.size())});
  if (input.version < SlurmVersion{22, 5, 0}) {
    checks.push_back({"version", Level::fail,
                      fmt::format("Slurm {} has no gres/shard", to_string(input.version)),
                      "Slurm 22.05 or newer is needed"});
  } else if (input.version < kMixingFixed) {
    checks.push_back({"version", Level::ok,
                      fmt::format("Slurm {}: whole GPUs are booked as all of their shards (newer "
                                  "than 23.11.4 needs it no more)",
                                  to_string(input.version))});
  } else {
    checks.push_back({"version", Level::ok, fmt::format("Slurm {}", to_string(input.version))});
  }
  const auto plan = plan_setup(input, read);
  if (!plan) {
    checks.push_back({"setup", Level::fail, plan.error().message, "aliquot slurm setup"});
    return checks;
  }
  for (const FileChange& change : plan->changes) {
    checks.push_back({"setup", Level::fail, fmt::format("{} is not as it should be", change.path),
                      "aliquot slurm setup shows what is missing, with --apply it is done"});
  }
  if (plan->changes.empty()) {
    checks.push_back(
        {"setup", Level::ok,
         "gres.conf, job_submit.lua, plugstack.conf, cgroup.conf and slurm.conf are as "
         "setup writes them"});
  }
  for (const auto& note : plan->notes) {
    if (!note.starts_with("Slurm ")) checks.push_back({"setup", Level::warn, note, "see there"});
  }
  if (input.confine &&
      !equals_ignoring_case(site->get("ProctrackType").value_or("proctrack/cgroup"),
                            "proctrack/cgroup")) {
    checks.push_back({"proctrack", Level::warn, "ProctrackType is not proctrack/cgroup",
                      "with it no process of a job outlives the job"});
  }
  check_accounting(*site, make_site_table(*site, plan->gpus, input.settings, input.version),
                   checks);
  return checks;
}

std::vector<Check> check_cluster(const Result<std::vector<SlurmNode>>& nodes,
                                 const Result<std::vector<SlurmPartition>>& partitions,
                                 const Settings& settings, const std::vector<GpuGroup>& gpus) {
  std::vector<Check> checks;
  if (!nodes) {
    checks.push_back(
        {"slurmctld", Level::fail, nodes.error().message, "scontrol ping; see SlurmctldLogFile"});
    return checks;
  }
  if (!partitions) {
    checks.push_back({"slurmctld", Level::fail, partitions.error().message, "scontrol ping"});
    return checks;
  }
  checks.push_back({"slurmctld", Level::ok, fmt::format("answers: {} nodes", nodes->size())});
  std::set<std::string> shared;
  for (const GpuGroup& group : gpus) shared.insert(group.nodes.begin(), group.nodes.end());
  std::vector<std::string> stale;
  std::size_t fresh = 0;
  for (const SlurmNode& node : *nodes) {
    if (!shared.contains(node.name)) continue;
    for (const std::string_view bad : {"INVAL", "DRAIN", "DOWN", "FAIL", "NOT_RESPONDING"}) {
      if (node.state.find(bad) == std::string::npos) continue;
      checks.push_back(
          {"node " + node.name, Level::fail,
           fmt::format("{}{}{}", node.state, node.reason.empty() ? "" : ": ", node.reason),
           bad == "INVAL" ? "its GPUs are not those of slurm.conf: see slurmd's log, aliquot slurm "
                            "setup, then restart slurmd"
           : node.reason == ALIQUOT_DRAIN_SILENT || node.reason == ALIQUOT_DRAIN_UNFIT
               ? "see the log of aliquot-agent there: it undoes this drain by itself"
               : fmt::format(
                     "see slurmd's log there; then scontrol update nodename={} state=resume",
                     node.name)});
      break;
    }
    if (node.gres.find("shard:") == std::string::npos) {
      checks.push_back(
          {"node " + node.name, Level::fail,
           fmt::format("slurmctld knows no shards of it ({})",
                       node.gres.empty() ? "no Gres" : node.gres),
           "restart slurmctld and slurmd: Gres is not taken over by reconfigure alone"});
    }
    const bool heard = node.extra.starts_with("aliquot:") && node.weight % kWeightStep != kStale;
    if (heard) {
      ++fresh;
    } else {
      stale.push_back(node.name);
    }
  }
  if (settings.balancer.mode == "off") {
    checks.push_back({"balancer", Level::ok, "off by the settings"});
  } else if (stale.empty()) {
    checks.push_back({"balancer", Level::ok, fmt::format("hears {} nodes", fresh)});
  } else {
    checks.push_back({"balancer", Level::fail,
                      fmt::format("no fresh samples of {}", fold_hostlist(stale)),
                      "is aliquot-balancer running on the controller, aliquot-agent there, and UDP "
                      "port " +
                          std::to_string(settings.balancer.port) + " open between them?"});
  }
  return checks;
}

Check check_escapes(const Result<std::vector<SlurmJob>>& jobs) {
  if (!jobs) return {"escapes", Level::fail, jobs.error().message, "scontrol ping"};
  std::vector<std::string> found;
  for (const SlurmJob& job : *jobs) {
    const auto node = escaped_on(job.admin_comment);
    if (node && job.state == "RUNNING") found.push_back(fmt::format("{} on {}", job.id, *node));
  }
  if (found.empty()) return {"escapes", Level::ok, "every job is within its share"};
  return {"escapes", Level::fail,
          fmt::format("processes of jobs use a GPU outside of their share: job {}",
                      fmt::join(found, ", job ")),
          "does slurmd there load aliquot_spank.so (aliquot slurm check on that node)? Its agent's "
          "log says which processes"};
}

Check check_gpus(const std::string& node, const std::vector<gpu::Device>& devices,
                 const std::vector<GpuGroup>& gpus) {
  std::map<std::string, std::int64_t> here;
  std::map<std::string, Bytes> memory;
  for (const gpu::Device& device : devices) {
    const std::string& model = core::model_name(device.gpu);
    ++here[model];
    const auto least = memory.try_emplace(model, device.gpu.memory).first;
    least->second = std::min(least->second, device.gpu.memory);
  }
  std::map<std::string, std::int64_t> told;
  for (const GpuGroup& group : gpus) {
    if (std::ranges::count(group.nodes, node) == 0) continue;
    told[group.model] += group.count;
    const auto found = memory.find(group.model);
    if (found != memory.end() && found->second < group.memory) {
      return {"GPUs of " + node, Level::fail,
              fmt::format("gres.conf gives each {} {}, but there are {}", group.model,
                          format_size(group.memory), format_size(found->second)),
              fmt::format("aliquot slurm setup --gpus '{}={}:{}:{}B' --apply", node, group.model,
                          group.count, found->second)};
    }
  }
  const auto words = [](const std::map<std::string, std::int64_t>& counts) {
    std::vector<std::string> parts;
    for (const auto& [model, count] : counts) parts.push_back(fmt::format("{} {}", count, model));
    return parts.empty() ? std::string("none") : fmt::format("{}", fmt::join(parts, ", "));
  };
  if (here == told) return {"GPUs of " + node, Level::ok, words(here)};
  return {"GPUs of " + node, Level::fail,
          fmt::format("gres.conf says {}, there are {}", words(told), words(here)),
          "aliquot slurm setup --apply on that node, or look why GPUs are missing (nvidia-smi)"};
}

Check check_munge(const std::string& socket) {
  const auto credential = munge_text("aliquot", socket);
  const std::string start =
      socket.empty() ? "systemctl start munge" : "start munged with --socket=" + socket;
  if (!credential) return {"munge", Level::fail, credential.error().message, start};
  const auto message = unmunge_text(*credential, socket);
  if (!message) return {"munge", Level::fail, message.error().message, "see munged's log"};
  return {"munge", Level::ok, socket.empty() ? "answers" : "answers on " + socket};
}

Check check_plugin(const std::string& path, const SlurmVersion& version) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) {
    return {"plugin", Level::fail, path + " is not there", "install the package for the nodes"};
  }
  // It is loaded to be asked: only where it is safe to. It stays, as it brings a C++ runtime of its
  // own along that does not unload cleanly.
  if (const auto safe = check_path(path, ""); !safe) {
    return {"plugin", Level::fail, safe.error().message, "it runs as root in every job"};
  }
  void* library = ::dlopen(path.c_str(), RTLD_LAZY | RTLD_LOCAL);
  if (library == nullptr) {
    const char* why = ::dlerror();
    return {"plugin", Level::fail,
            fmt::format("{} does not load: {}", path, why == nullptr ? "?" : why),
            "install the one that was built for this Slurm"};
  }
  const auto* number = static_cast<const unsigned*>(::dlsym(library, "plugin_version"));
  const unsigned built = number == nullptr ? 0 : *number;
  const int major = static_cast<int>(built >> 16U);
  const int minor = static_cast<int>((built >> 8U) & 0xFFU);
  if (major != version.major || minor != version.minor) {
    return {"plugin", Level::fail,
            fmt::format("{} was built for Slurm {}.{:02}, here is {}", path, major, minor,
                        to_string(version)),
            "install the one that was built for this Slurm"};
  }
  return {"plugin", Level::ok, path};
}

Check check_agent(const std::string& node, const std::string& socket) {
  const std::string name = "agent of " + node;
  const std::string cure = "systemctl start aliquot-agent, and see its log";
  auto client = net::Client::connect(socket);
  if (!client) return {name, Level::fail, client.error().message, cure};
  const auto answer = client->send("GET", "/v1/slurm/agent");
  if (!answer) return {name, Level::fail, answer.error().message, cure};
  if (answer->status != 200) {
    return {name, Level::fail, fmt::format("answers with status {}", answer->status), cure};
  }
  return {name, Level::ok, "answers on " + socket};
}

std::string expand_node(std::string_view pattern, std::string_view node) {
  std::string out(pattern);
  for (auto at = out.find("%n"); at != std::string::npos; at = out.find("%n", at + node.size())) {
    out.replace(at, 2, node);
  }
  return out;
}

}  // namespace aliquot::slurm
