#include "cli/view/sinfo_fields.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>

#include "base/slurm_time.hpp"
#include "cli/users.hpp"
#include "cli/view/node_text.hpp"

namespace aliquot::cli {
namespace {

using Context = ViewContext;
using Out = std::string;

TimeLimit limit_of(std::optional<std::int64_t> ms) {
  return ms ? TimeLimit{Millis(*ms)} : kUnlimited;
}

enum class NodeUse { allocated, idle, other };
NodeUse node_use(const api::NodeInfo& node) {
  if (node_is_drained(node) && node.cpus_allocated == 0) return NodeUse::other;
  if (node.state == "down") return NodeUse::other;
  return node.cpus_allocated > 0 || node.state == "mixed" || node.state == "allocated"
             ? NodeUse::allocated
             : NodeUse::idle;
}

void node_counts(Out& out, const NodeRow& row, const Context&) {
  if (row.no_node) {
    out += "0/0/0/0";
    return;
  }
  const auto use = node_use(row.cluster->node);
  out += use == NodeUse::allocated ? "1/0/0/1" : use == NodeUse::idle ? "0/1/0/1" : "0/0/1/1";
}

void cpu_counts(Out& out, const NodeRow& row, const Context&) {
  if (row.no_node) {
    out += "0/0/0/0";
    return;
  }
  const auto& node = row.cluster->node;
  const auto rest = node.cpus - node.cpus_allocated;
  const bool usable = !node_is_drained(node) && node.state != "down";
  out += fmt::format("{}/{}/{}/{}", node.cpus_allocated, usable ? rest : 0, usable ? 0 : rest,
                     node.cpus);
}

void partition_name(Out& out, const NodeRow& row, const Context&) {
  out += row.partition->name;
  if (row.partition->is_default) out += '*';
}

void default_time(Out& out, const NodeRow& row, const Context&) {
  const auto ms = row.partition->default_time_ms;
  // The longest there is, is no default of its own.
  out += ms && ms != row.partition->max_time_ms ? format_time_limit(limit_of(ms), TimeStyle::sinfo)
                                                : "n/a";
}

void reason(Out& out, const NodeRow& row, const Context&) {
  if (row.gpu != nullptr) {
    out += fmt::format("gpu {}: {}", row.gpu->index, row.gpu->reason);
    return;
  }
  out += row.cluster->node.reason.empty() ? "none" : row.cluster->node.reason;
}

void reason_user(Out& out, const NodeRow& row, const Context&) {
  const auto& user = row.gpu != nullptr ? row.gpu->reason_user : row.cluster->node.reason_user;
  out += user.empty() ? "Unknown" : user;
}

void reason_user_long(Out& out, const NodeRow& row, const Context& context) {
  const auto before = out.size();
  reason_user(out, row, context);
  if (const auto uid = find_user(out.substr(before))) out += fmt::format("({})", uid->value());
}

void reason_time(Out& out, const NodeRow& row, const Context&) {
  const auto ms = row.gpu != nullptr ? row.gpu->reason_ms : row.cluster->node.reason_ms;
  out += ms == 0 ? "Unknown" : shown_time(WallTime(ms));
}

// clang-format off
#define TEXT(expression) [](Out& out, const NodeRow& row, const Context&) { (void)row; out += expression; }
#define OF_NODE(otherwise, expression) [](Out& out, const NodeRow& row, const Context&) { if (row.no_node) out += otherwise; else out += expression; }
#define NUMBER(expression) [](Out& out, const NodeRow& row, const Context&) { (void)row; out += fmt::format("{}", expression); }

constexpr auto kSinfoFields = std::to_array<ViewField<NodeRow>>({
    {'S', "AllocNodes", "ALLOCNODES", TEXT("all")},
    {0, "AllocMem", "ALLOCMEM", NUMBER(row.cluster->node.memory_allocated / 1'048'576)},
    {'a', "Available", "AVAIL", TEXT(row.partition->up ? "up" : "down")},
    {'V', "Cluster", "CLUSTER", TEXT("N/A")},
    {0, "Comment", "COMMENT", TEXT("(null)")},
    {'Y', "Cores", "CORES", NUMBER(row.cluster->node.cpus)},
    {'c', "CPUs", "CPUS", NUMBER(row.cluster->node.cpus)},
    {'O', "CPUsLoad", "CPU_LOAD", TEXT("N/A")},
    {'C', "CPUsState", "CPUS(A/I/O/T)", cpu_counts},
    {'L', "DefaultTime", "DEFAULTTIME", default_time},
    {'d', "Disk", "TMP_DISK", TEXT('0')},
    {0, "Extra", "EXTRA", TEXT("(null)")},
    {'f', "Features", "AVAIL_FEATURES", TEXT("(null)")},
    {'b', "features_act", "ACTIVE_FEATURES", TEXT("(null)")},
    {'e', "FreeMem", "FREE_MEM", NUMBER((row.cluster->node.memory - row.cluster->node.memory_allocated) / 1'048'576)},
    {'G', "Gres", "GRES", TEXT(node_gres(row.cluster->node))},
    {0, "GresUsed", "GRES_USED", TEXT(node_gres_used(row.cluster->node))},
    {'g', "Groups", "GROUPS", TEXT(row.partition->groups.empty() ? "all" : fmt::format("{}", fmt::join(row.partition->groups, ",")))},
    {'B', "MaxCPUsPerNode", "MAX_CPUS_PER_NODE", TEXT("UNLIMITED")},
    {'m', "Memory", "MEMORY", NUMBER(row.cluster->node.memory / 1'048'576)},
    {'D', "Nodes", "NODES", OF_NODE('0', '1')},
    {'o', "NodeAddr", "NODE_ADDR", OF_NODE("", row.cluster->node.name)},
    {'A', "NodeAI", "NODES(A/I)", [](Out& out, const NodeRow& row, const Context&) {
       const auto use = row.no_node ? NodeUse::other : node_use(row.cluster->node);
       out += use == NodeUse::allocated ? "1/0" : use == NodeUse::idle ? "0/1" : "0/0";
     }},
    {'F', "NodeAIOT", "NODES(A/I/O/T)", node_counts},
    {'n', "NodeHost", "HOSTNAMES", OF_NODE("", row.cluster->node.name)},
    {'N', "NodeList", "NODELIST", OF_NODE("", row.cluster->node.name)},
    {'h', "OverSubscribe", "OVERSUBSCRIBE", TEXT("NO")},
    {'P', "Partition", "PARTITION", partition_name},
    {'R', "PartitionName", "PARTITION", TEXT(row.partition->name)},
    {0, "Port", "PORT", TEXT('0')},
    {'M', "PreemptMode", "PREEMPT_MODE", TEXT(row.partition->preempt_mode)},
    {'I', "PriorityJobFactor", "PRIO_JOB_FACTOR", NUMBER(row.partition->job_factor)},
    {'p', "PriorityTier", "PRIO_TIER", NUMBER(row.partition->tier)},
    {'E', "Reason", "REASON", reason},
    {'r', "Root", "ROOT", TEXT("no")},
    {'s', "Size", "JOB_SIZE", TEXT("1-infinite")},
    {'t', "StateCompact", "STATE", OF_NODE("n/a", compact_node_state(row.cluster->node.state))},
    {0, "StateComplete", "STATECOMPLETE", OF_NODE("n/a", row.cluster->node.state)},
    {'T', "StateLong", "STATE", OF_NODE("n/a", row.cluster->node.state)},
    {'X', "Sockets", "SOCKETS", TEXT('1')},
    {'z', "SocketCoreThread", "S:C:T", TEXT(fmt::format("1:{}:1", row.cluster->node.cpus))},
    {'Z', "Threads", "THREADS", TEXT('1')},
    {'l', "Time", "TIMELIMIT", TEXT(format_time_limit(limit_of(row.partition->max_time_ms), TimeStyle::sinfo))},
    {'H', "Timestamp", "TIMESTAMP", reason_time},
    {'u', "User", "USER", reason_user},
    {'U', "UserLong", "USER", reason_user_long},
    {'v', "Version", "VERSION", TEXT(row.cluster->daemon_version)},
    {'w', "Weight", "WEIGHT", TEXT('1')},
});

#undef TEXT
#undef OF_NODE
#undef NUMBER
// clang-format on

// Wide enough for the header at least.
std::size_t widest_partition(const std::vector<const api::PartitionInfo*>& partitions) {
  std::size_t width = 9;
  for (const auto* partition : partitions) {
    width = std::max(width, partition->name.size() + (partition->is_default ? 1 : 0));
  }
  return width;
}

}  // namespace

std::span<const ViewField<NodeRow>> sinfo_fields() { return kSinfoFields; }

std::string sinfo_format(SinfoView view, const api::ClusterInfo& cluster,
                         const std::vector<const api::PartitionInfo*>& partitions) {
  const auto partition = widest_partition(partitions);
  const auto node = std::max<std::size_t>(9, cluster.node.name.size());
  switch (view) {
    case SinfoView::usual:
      return fmt::format("%{}P %.5a %.10l %.6D %.6t %N", partition);
    case SinfoView::longer:
      return fmt::format("%{}P %.5a %.10l %.10s %.4r %.8h %.10g %.6D %.11T %N", partition);
    case SinfoView::by_node:
      return fmt::format("%{}N %.6D %.{}P %6t", node, partition);
    case SinfoView::by_node_longer:
      return fmt::format("%{}N %.6D %.{}P %.11T %4c %.8z %.6m %.8d %.6w %.8f %20E", node,
                         partition);
    case SinfoView::summary:
      return fmt::format("%{}P %.5a %.10l %.16F %N", partition);
    case SinfoView::reasons:
      return "%20E %9u %19H %N";
    case SinfoView::longer_reasons:
      return "%20E %12U %19H %6t %N";
  }
  return {};
}

std::string format_sinfo(const Listing<NodeRow>& listing, const api::ClusterInfo& cluster,
                         const std::vector<const api::PartitionInfo*>& partitions,
                         const SinfoRows& rows, const ViewContext& context) {
  std::string out;
  if (rows.header) listing.append_header(out);
  // All rows are about the one node, so two rows with the same text become one.
  std::vector<std::string> seen;
  const auto add = [&](const NodeRow& row) {
    std::string line;
    listing.append_row(line, row, context);
    if (!rows.by_node && std::ranges::find(seen, line) != seen.end()) return;
    out += line;
    seen.push_back(std::move(line));
  };
  for (const auto* partition : partitions) {
    if (!rows.reasons || !cluster.node.reason.empty())
      add({&cluster, partition, nullptr, rows.no_node});
    for (const auto& gpu : cluster.node.gpus) {
      if (rows.reasons && !gpu.reason.empty()) add({&cluster, partition, &gpu});
    }
  }
  return out;
}

}  // namespace aliquot::cli
