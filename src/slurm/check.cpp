#include "slurm/check.hpp"

#include <dlfcn.h>
#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <boost/json.hpp>
#include <filesystem>
#include <map>
#include <set>

#include "base/counted.hpp"
#include "base/hostlist.hpp"
#include "base/size.hpp"
#include "base/text.hpp"
#include "gpu/trouble.hpp"
#include "net/client.hpp"
#include "slurm/admin_comment.hpp"
#include "slurm/agent/own_drain.hpp"
#include "slurm/balancer/weights.hpp"
#include "slurm/billing.hpp"
#include "slurm/munge.hpp"
#include "slurm/sample_text.hpp"
#include "slurm/samples.hpp"
#include "slurm/setup_files.hpp"

namespace aliquot::slurm {
namespace {

using Level = Check::Level;

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
  bool alike = true;
  for (const SitePartition& partition : site.partitions) {
    const auto entry = std::ranges::find(table.partitions, partition.name, &PartitionGpus::name);
    const auto weights = to_lower(partition.billing_weights);
    if (entry == table.partitions.end() || entry->models.empty()) continue;
    if (weights.find("gres/shard") == std::string::npos ||
        weights.find("gres/gpu") == std::string::npos) {
      without.push_back(partition.name);
      continue;
    }
    std::int64_t shards = 1;
    for (const GpuModel& model : table.models) {
      if (std::ranges::count(entry->models, model.name) > 0)
        shards = std::max(shards, model.shards);
    }
    if (bills_alike(weights, shards)) continue;
    alike = false;
    checks.push_back({"billing", Level::warn,
                      fmt::format("partition {}: {} bills a GPU otherwise than its {} shards",
                                  partition.name, partition.billing_weights, shards),
                      fmt::format("write GRES/gpu={},GRES/shard={} there, and limits in that",
                                  shards * kShardBill, kShardBill)});
  }
  if (without.empty() && alike) {
    checks.push_back({"billing", Level::ok, "shares and whole GPUs are billed alike"});
  } else if (!without.empty()) {
    checks.push_back(
        {"billing", Level::warn,
         fmt::format("partition {}: a limit on GPUs does not count shares",
                     fmt::join(without, ", ")),
         "aliquot slurm setup --billing --apply, and limit by MaxTRESPerUser=billing=…"});
  }
}

// What the node's agent sees and slurmctld does not.
void check_samples(const SlurmNode& node, const SiteSettings& settings,
                   std::vector<Check>& checks) {
  for (const GpuLoad& gpu : parse_sample_text(node.extra).value_or(std::vector<GpuLoad>())) {
    const std::string name = fmt::format("gpu{} of {}", gpu.index, node.name);
    if (!gpu.trouble.empty()) {
      checks.push_back({name, Level::fail, "broken: " + gpu::trouble_text(gpu.trouble),
                        "see nvidia-smi -q and dmesg there; reset or replace it, and restart "
                        "aliquot-agent: it undoes its drain"});
    }
    if (foreign_memory(gpu) < settings.share.unit) continue;
    checks.push_back({name, Level::warn,
                      fmt::format("processes of no job hold {} of it, the largest pid {} of {}",
                                  format_size(foreign_memory(gpu)), gpu.foreign.front().pid,
                                  gpu.foreign.front().user),
                      "shares that do not fit beside them do not start there; end them, or have "
                      "their owner submit them"});
  }
}

}  // namespace

std::vector<Check> check_files(const SetupInput& input, const ReadFile& read) {
  std::vector<Check> checks;
  auto site = read_site(input.slurm_conf, read);
  if (!site) {
    checks.push_back({"slurm.conf", Level::fail, site.error().message,
                      "set SLURM_CONF, or [slurm] conf in /etc/aliquot/slurm.toml"});
    return checks;
  }
  checks.push_back({"slurm.conf", Level::ok,
                    fmt::format("{}: {}, {}", input.slurm_conf, counted(site->nodes.size(), "node"),
                                counted(site->partitions.size(), "partition"))});
  if (input.version < kOldest) {
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
  auto plan = plan_setup(input, read);
  if (!plan) {
    checks.push_back({"setup", Level::fail, plan.error().message, "aliquot slurm setup"});
    return checks;
  }
  // slurmd fetches no Lua: that is slurmctld's.
  if (input.slurm_conf.starts_with("/run/slurm/")) {
    std::erase_if(plan->changes, [](const auto& change) { return change.path.ends_with(".lua"); });
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
                                 const SiteSettings& settings, const std::vector<GpuGroup>& gpus) {
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
  checks.push_back({"slurmctld", Level::ok, "answers: " + counted(nodes->size(), "node")});
  std::set<std::string> shared;
  for (const GpuGroup& group : gpus) shared.insert(group.nodes.begin(), group.nodes.end());
  std::vector<std::string> stale;
  std::vector<std::string> silent;
  std::map<std::string, std::vector<std::string>> versions;
  std::size_t fresh = 0;
  for (const SlurmNode& node : *nodes) {
    if (!shared.contains(node.name)) continue;
    // `IDLE*`: slurmctld has not heard of slurmd for a while, and is about to take it for down.
    if (node.state.ends_with('*') || node.state.find("NOT_RESPONDING") != std::string::npos) {
      silent.push_back(node.name);
    }
    if (const auto other = sample_version(node.extra); !other.empty()) {
      versions[std::string(other)].push_back(node.name);
    }
    for (const std::string_view bad : {"INVAL", "DRAIN", "DOWN", "FAIL"}) {
      if (node.state.find(bad) == std::string::npos) continue;
      checks.push_back(
          {"node " + node.name, Level::fail,
           fmt::format("{}{}{}", node.state, node.reason.empty() ? "" : ": ", node.reason),
           bad == "INVAL" ? "its GPUs are not those of slurm.conf: see slurmd's log, aliquot slurm "
                            "setup, then restart slurmd"
           : is_own_drain(node.reason)
               ? "see the log of aliquot-agent there: it undoes this drain by itself"
               : fmt::format(
                     "see slurmd's log there; then scontrol update nodename={} state=resume",
                     node.name)});
      break;
    }
    check_samples(node, settings, checks);
    if (node.gres.find("shard:") == std::string::npos) {
      checks.push_back(
          {"node " + node.name, Level::fail,
           fmt::format("slurmctld knows no shards of it ({})",
                       node.gres.empty() ? "no Gres" : node.gres),
           "restart slurmctld and slurmd: Gres is not taken over by reconfigure alone"});
    }
    const bool heard =
        node.extra.starts_with(kSampleMark) && node.weight % kWeightFactor != kBusyLevel;
    if (heard) {
      ++fresh;
    } else {
      stale.push_back(node.name);
    }
  }
  if (!silent.empty()) {
    checks.push_back({"slurmd", Level::fail,
                      fmt::format("that of {} does not answer slurmctld", fold_hostlist(silent)),
                      "systemctl restart slurmd there, and see its log; it then comes back by "
                      "itself, or by scontrol update nodename=… state=resume"});
  }
  for (const auto& [version, names] : versions) {
    checks.push_back({"versions", Level::warn,
                      fmt::format("Aliquot {} on {}, {} on the controller", version,
                                  fold_hostlist(names), own_version()),
                      "install the same there, plugin included, and restart aliquot-agent"});
  }
  if (settings.balancer.mode == "off") {
    checks.push_back({"balancer", Level::ok, "off by the settings"});
  } else if (fresh + stale.size() == 0) {
    checks.push_back({"balancer", Level::fail, "there is no node that shares its GPUs to hear of",
                      "aliquot slurm setup --apply, then restart slurmctld and slurmd"});
  } else if (stale.empty()) {
    checks.push_back({"balancer", Level::ok, "hears " + counted(fresh, "node")});
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
    const auto node = remarked_on(job.admin_comment, Remark::escape);
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
    // nvidia-smi rounds to whole MiB.
    if (found != memory.end() && found->second + mib(1) <= group.memory) {
      return {"GPUs of " + node, Level::fail,
              fmt::format("gres.conf gives each {} {} MiB, but there are {}", group.model,
                          group.memory / mib(1), found->second / mib(1)),
              fmt::format("aliquot slurm setup --gpus '{}={}:{}:{}' --apply", node, group.model,
                          group.count, found->second / mib(1))};
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
    return {"plugin", Level::fail,
            path +
                ", which plugstack.conf names, is not on this machine: srun, sbatch and slurmd "
                "complain of it here, and options such as --gpu-mem are unknown",
            "install Aliquot here too: login and CPU nodes need this file alone"};
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

AgentCheck check_agent(const std::string& node, const std::string& socket, Millis patience) {
  const std::string name = "agent of " + node;
  const auto failed = [&](std::string finding, const char* act = "start") {
    return AgentCheck{{name, Level::fail, std::move(finding),
                       fmt::format("systemctl {} aliquot-agent, and see its log", act)}};
  };
  auto client = net::Client::connect(socket);
  if (!client) return failed(client.error().message);
  // One that hangs, or was stopped, is connected to all the same.
  const auto answer = client->send("GET", "/v1/slurm/agent", {}, patience);
  if (!answer) return failed(answer.error().message, "restart");
  if (answer->status != 200) return failed(fmt::format("answers with status {}", answer->status));
  return read_agent(node, socket, answer->body);
}

AgentCheck read_agent(const std::string& node, const std::string& socket, std::string_view answer) {
  AgentCheck found{{"agent of " + node, Level::ok, "answers on " + socket}};
  boost::system::error_code error;
  const auto parsed = boost::json::parse({answer.data(), answer.size()}, error);
  const auto* object = error ? nullptr : parsed.if_object();
  if (object == nullptr) return found;
  const auto text = [](const boost::json::object& from, const char* key) {
    const auto* value = from.if_contains(key);
    const auto* string = value == nullptr ? nullptr : value->if_string();
    return string == nullptr ? std::string() : std::string(string->data(), string->size());
  };
  if (const auto version = text(*object, "version"); version != own_version()) {
    found.check = {found.check.name, Level::warn,
                   fmt::format("it is Aliquot {}, and here is {}", version, own_version()),
                   "systemctl restart aliquot-agent; jobs go on meanwhile"};
  }
  const auto* gpus = object->if_contains("gpus");
  if (gpus == nullptr || !gpus->is_array()) return found;
  found.devices.emplace();
  for (const auto& entry : gpus->get_array()) {
    const auto* gpu = entry.if_object();
    if (gpu == nullptr) continue;
    gpu::Device device;
    device.gpu.model = text(*gpu, "model");
    const auto* memory = gpu->if_contains("memory");
    const auto bytes = memory == nullptr ? 0 : memory->to_number<std::int64_t>(error);
    device.gpu.memory = Bytes(error ? 0 : bytes);
    found.devices->push_back(std::move(device));
  }
  return found;
}

std::string plugin_of(std::string_view plugstack) {
  for (const auto& line : lines_of_text(plugstack)) {
    if (line.starts_with('#')) continue;
    for (const auto word : split(line, ' ')) {
      if (word.ends_with("aliquot_spank.so")) return std::string(word);
    }
  }
  return "";
}

std::string expand_node(std::string_view pattern, std::string_view node) {
  std::string out(pattern);
  for (auto at = out.find("%n"); at != std::string::npos; at = out.find("%n", at + node.size())) {
    out.replace(at, 2, node);
  }
  return out;
}

}  // namespace aliquot::slurm
