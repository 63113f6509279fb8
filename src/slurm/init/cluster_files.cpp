#include "slurm/init/cluster_files.hpp"

#include <algorithm>
#include <map>

#include "base/hostlist.hpp"
#include "base/text.hpp"
#include "slurm/conf_text.hpp"
#include "slurm/node_gpus.hpp"
#include "slurm/plain_name.hpp"

namespace aliquot::slurm {
namespace {

constexpr std::string_view kBeginCluster = "# BEGIN cluster, by 'aliquot slurm init'";
constexpr std::string_view kEndCluster = "# END cluster";
constexpr std::string_view kHeader = "# Written by 'aliquot slurm init'.\n";

std::string in_slurm(std::string_view name) { return fmt::format("{}/{}", kSlurmFolder, name); }

Result<std::optional<std::string>> read_optional(const ReadFile& read, const std::string& path) {
  auto text = read(path);
  if (text) return std::optional<std::string>(std::move(*text));
  if (text.error().code == Error::Code::not_found) return std::optional<std::string>{};
  return tl::make_unexpected(text.error());
}

// slurm.conf: what stands before our block, in it, and after it.
struct Parts {
  std::string before;
  std::string block;
  std::string after;
};
Result<Parts> take_apart(const std::optional<std::string>& text) {
  Parts parts;
  if (!text) return parts;
  const std::string own = TRY(own_text(*text, in_slurm("slurm.conf")));
  const auto begin = own.find(kBeginCluster);
  const auto end = own.find(kEndCluster, begin);
  if (begin == std::string::npos || end == std::string::npos) {
    return fail(
        Error::Code::already_exists,
        "{} is there and not init's: this machine has a Slurm. Share its GPUs with 'aliquot "
        "slurm setup', or move the file away for a new cluster",
        in_slurm("slurm.conf"));
  }
  const auto next = own.find('\n', end);
  parts.before = own.substr(0, begin);
  parts.block = own.substr(begin, end - begin);
  parts.after = next == std::string::npos ? "" : own.substr(next + 1);
  return parts;
}

struct Remembered {
  std::string cluster;
  std::vector<NodeLine> nodes;
};
Result<Remembered> remember(const std::string& block, std::string_view gres_conf) {
  Remembered known;
  for (const ConfLine& line : parse_conf_lines(lines_of_text(block))) {
    if (const auto name = line.get("ClusterName")) known.cluster = *name;
    if (!line.is_about("NodeName")) continue;
    std::string text;
    for (const auto& [key, value] : line.words) {
      if (key != "State") text += fmt::format("{}={} ", key, value);
    }
    for (NodeLine& node : TRY(parse_node_lines(text, in_slurm("slurm.conf")))) {
      known.nodes.push_back(std::move(node));
    }
  }
  for (const GpuGroup& group : remembered_gpus(gres_conf)) {
    for (NodeLine& node : known.nodes) {
      if (std::ranges::count(group.nodes, node.name) == 0) continue;
      GpuGroup own = group;
      own.nodes.clear();
      node.gpus.push_back(std::move(own));
    }
  }
  return known;
}

// Nodes that are alike share a line.
std::string node_lines(const std::vector<NodeLine>& nodes) {
  std::vector<std::pair<NodeLine, std::vector<std::string>>> kinds;
  for (const NodeLine& node : nodes) {
    auto same = std::ranges::find_if(kinds, [&](const auto& kind) {
      return kind.first.hardware == node.hardware && kind.first.gpus == node.gpus;
    });
    if (same == kinds.end()) same = kinds.insert(kinds.end(), {node, {}});
    same->second.push_back(node.name);
  }
  std::string text;
  for (const auto& [node, names] : kinds) {
    text += fmt::format("NodeName={} {} State=UNKNOWN\n", fold_hostlist(names), node.hardware);
  }
  return text;
}

// A job that says nothing of memory gets its CPUs' part of it, on whichever node.
std::string memory_lines(const std::vector<NodeLine>& nodes) {
  std::int64_t least = 0;
  for (const NodeLine& node : nodes) {
    if (node.memory == 0) return "SelectTypeParameters=CR_Core\n";
    const std::int64_t own = std::max<std::int64_t>(node.memory / node.cpus, 1);
    least = least == 0 ? own : std::min(least, own);
  }
  return fmt::format("SelectTypeParameters=CR_Core_Memory\nDefMemPerCPU={}\n", least);
}

std::string cluster_block(const std::string& cluster, const std::string& host,
                          const std::vector<NodeLine>& nodes) {
  return fmt::format(
      "{begin}\n"
      "ClusterName={cluster}\n"
      "SlurmctldHost={host}\n"
      "SlurmUser=slurm\n"
      "AuthType=auth/munge\n"
      "# Nodes fetch these files from here.\n"
      "SlurmctldParameters=enable_configless\n"
      "StateSaveLocation=/var/lib/slurm/slurmctld\n"
      "SlurmdSpoolDir=/var/lib/slurm/slurmd\n"
      "SlurmctldLogFile=/var/log/slurm/slurmctld.log\n"
      "SlurmdLogFile=/var/log/slurm/slurmd.log\n"
      "# A node that was away takes jobs again when it is back.\n"
      "ReturnToService=2\n"
      "MpiDefault=none\n"
      "ProctrackType=proctrack/cgroup\n"
      "TaskPlugin=task/affinity,task/cgroup\n"
      "JobAcctGatherType=jobacct_gather/cgroup\n"
      "SelectType=select/cons_tres\n"
      "{memory}"
      "PriorityType=priority/multifactor\n"
      "PriorityWeightFairshare=10000\n"
      "PriorityWeightAge=1000\n"
      "# What is in besteffort gives way to main, and starts again later.\n"
      "PreemptType=preempt/partition_prio\n"
      "PreemptMode=REQUEUE\n"
      "AccountingStorageType=accounting_storage/slurmdbd\n"
      "AccountingStorageHost={host}\n"
      "AccountingStorageEnforce=associations,limits,qos\n"
      "{nodes}"
      "PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP PriorityTier=10 "
      "PreemptMode=OFF QOS=main\n"
      "PartitionName=besteffort Nodes=ALL MaxTime=INFINITE State=UP PriorityTier=1 "
      "PreemptMode=REQUEUE QOS=besteffort\n"
      "{end}\n",
      fmt::arg("begin", kBeginCluster), fmt::arg("cluster", cluster), fmt::arg("host", host),
      fmt::arg("memory", memory_lines(nodes)), fmt::arg("nodes", node_lines(nodes)),
      fmt::arg("end", kEndCluster));
}

// slurmdbd comes to the database by its own user's name: there is no password.
std::string slurmdbd_conf(const std::string& host) {
  return fmt::format(
      "{}AuthType=auth/munge\n"
      "DbdHost={}\n"
      "SlurmUser=slurm\n"
      "LogFile=/var/log/slurm/slurmdbd.log\n"
      "StorageType=accounting_storage/mysql\n"
      "StorageHost=localhost\n"
      "StorageUser=slurm\n"
      "StorageLoc=slurm_acct_db\n",
      kHeader, host);
}

constexpr std::string_view kMariadbText =
    "# For slurmdbd, by 'aliquot slurm init'.\n"
    "[mysqld]\n"
    "innodb_buffer_pool_size=256M\n"
    "innodb_log_file_size=64M\n"
    "innodb_lock_wait_timeout=900\n";

class ClusterPlanner {
 public:
  ClusterPlanner(const ClusterInput& input, const ReadFile& read) : input_(input), read_(read) {}

  Result<ClusterFiles> plan() {
    const auto slurm_conf = TRY(read_optional(read_, in_slurm("slurm.conf")));
    const Parts parts = TRY(take_apart(slurm_conf));
    const auto gres = TRY(read_optional(read_, in_slurm("gres.conf")));
    TRY(know(TRY(remember(parts.block, gres.value_or("")))));
    std::string text =
        parts.before + cluster_block(files_.cluster, input_.host, files_.nodes) + parts.after;
    put(in_slurm("slurm.conf"), slurm_conf, std::move(text));
    TRY(put_slurmdbd_conf());
    const auto cgroup = TRY(read_optional(read_, in_slurm("cgroup.conf")));
    if (!cgroup) {
      put(in_slurm("cgroup.conf"), cgroup,
          fmt::format("{}ConstrainCores=yes\nConstrainRAMSpace=yes\n{}", kHeader,
                      input_.bare_cgroup2 ? "IgnoreSystemd=yes\n" : ""));
    }
    const auto mariadb = TRY(read_optional(read_, std::string(kMariadbConf)));
    put(std::string(kMariadbConf), mariadb, std::string(kMariadbText));
    TRY(share_gpus());
    for (auto& [path, change] : changes_) {
      if (change.before != change.after) files_.plan.changes.push_back(std::move(change));
    }
    return std::move(files_);
  }

 private:
  void put(const std::string& path, const std::optional<std::string>& before, std::string after) {
    changes_[path] = {path, before, std::move(after)};
  }

  Result<void> know(Remembered known) {
    files_.cluster = known.cluster.empty() ? "cluster" : known.cluster;
    if (!input_.cluster.empty()) {
      if (!is_plain_name(input_.cluster) || to_lower(input_.cluster) != input_.cluster) {
        return fail(Error::Code::invalid_argument,
                    "--cluster {}: use small letters, digits, '-' and '_'", quote(input_.cluster));
      }
      if (!known.cluster.empty() && known.cluster != input_.cluster) {
        return fail(Error::Code::failed_state,
                    "--cluster {}: this cluster is called {}, and its accounts stand under that "
                    "name: leave --cluster out",
                    input_.cluster, known.cluster);
      }
      files_.cluster = input_.cluster;
    }
    files_.nodes = std::move(known.nodes);
    for (const NodeLine& node : input_.nodes) {
      auto same = std::ranges::find(files_.nodes, node.name, &NodeLine::name);
      if (same == files_.nodes.end()) same = files_.nodes.insert(same, node);
      *same = node;
    }
    if (files_.nodes.empty()) {
      return fail(Error::Code::invalid_argument,
                  "no nodes are known: run 'aliquot slurm init --describe' on each node, put the "
                  "lines into a file, and give it with --nodes");
    }
    return {};
  }

  Result<void> put_slurmdbd_conf() {
    const std::string path = in_slurm("slurmdbd.conf");
    const auto before = TRY(read_optional(read_, path));
    if (before && !before->starts_with(kHeader)) {
      return fail(Error::Code::already_exists,
                  "{} is there and not init's: move it away for a new cluster", path);
    }
    // What the site has added since stays.
    if (!before) put(path, before, slurmdbd_conf(input_.host));
    return {};
  }

  // What setup remembers of the nodes' GPUs is all told anew: a node may have none any more.
  Result<void> forget_gpus() {
    const std::string path = in_slurm("gres.conf");
    const auto before = TRY(read_optional(read_, path));
    if (!before) return {};
    std::string rest;
    for (const auto& line : lines_of_text(*before)) {
      if (remembered_gpus(line).empty()) rest += line + "\n";
    }
    put(path, before, std::move(rest));
    return {};
  }

  // As setup does, on the files as they will be.
  Result<void> share_gpus() {
    SetupInput setup{.slurm_conf = in_slurm("slurm.conf"),
                     .settings = input_.settings,
                     .version = input_.version,
                     .gpus = {},
                     .plugin = input_.plugin,
                     .confine = true,
                     .billing = true};
    for (const NodeLine& node : files_.nodes) {
      for (GpuGroup group : node.gpus) {
        group.nodes = {node.name};
        files_.gpu_shards =
            std::max(files_.gpu_shards, shards_of(group.memory, input_.settings.share.unit));
        setup.gpus.push_back(std::move(group));
      }
    }
    if (setup.gpus.empty()) {
      files_.plan.notes.emplace_back("the nodes have no GPUs: nothing is shared");
      return {};
    }
    TRY(forget_gpus());
    auto ours = plan_setup(setup, [&](const std::string& path) -> Result<std::string> {
      const auto found = changes_.find(path);
      return found == changes_.end() ? read_(path) : Result<std::string>(*found->second.after);
    });
    if (!ours) return tl::make_unexpected(ours.error());
    for (FileChange& change : ours->changes) {
      const auto found = changes_.find(change.path);
      if (found != changes_.end()) change.before = found->second.before;
      changes_[change.path] = std::move(change);
    }
    const auto& conf = changes_.at(in_slurm("slurm.conf")).after;
    for (const ConfLine& line : parse_conf_lines(lines_of_text(conf.value_or("")))) {
      if (!line.is_about("PartitionName") || line.get("PartitionName") != "main") continue;
      files_.bill = gpu_bill(line.get("TRESBillingWeights").value_or(""));
    }
    files_.plan.notes = std::move(ours->notes);
    files_.plan.gpus = std::move(ours->gpus);
    return {};
  }

  const ClusterInput& input_;
  const ReadFile& read_;
  std::map<std::string, FileChange> changes_;
  ClusterFiles files_;
};

}  // namespace

std::int64_t user_billing(const ClusterFiles& files, std::int64_t gpus) {
  return gpus > 0 ? billing_limit(gpus, files.bill) : 0;
}

Result<ClusterFiles> plan_cluster(const ClusterInput& input, const ReadFile& read) {
  return ClusterPlanner(input, read).plan();
}

}  // namespace aliquot::slurm
