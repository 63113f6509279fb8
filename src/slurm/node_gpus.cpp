#include "slurm/node_gpus.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <utility>

#include "base/hostlist.hpp"
#include "base/text.hpp"
#include "slurm/site_table.hpp"

namespace aliquot::slurm {

std::vector<GpuGroup> remembered_gpus(std::string_view gres_conf) {
  std::vector<GpuGroup> groups;
  for (const auto& line : lines_of_text(gres_conf)) {
    if (!line.starts_with(kRememberedGpus)) continue;
    if (auto group = parse_gpu_group(std::string_view(line).substr(kRememberedGpus.size()), "")) {
      groups.push_back(std::move(*group));
    }
  }
  return groups;
}

GpusByNode gpus_by_node(const std::vector<GpuGroup>& earlier, const std::vector<GpuGroup>& now) {
  GpusByNode nodes;
  const auto files_of = [&](const GpuGroup& told, const std::string& name) {
    for (const GpuGroup& group : earlier) {
      const bool same = group.model == told.model && group.count == told.count;
      if (same && std::ranges::count(group.nodes, name) > 0) return group.files;
    }
    return usual_files(told.count);
  };
  const auto add = [&](const GpuGroup& group, const std::string& name) {
    GpuGroup own = group;
    own.nodes = {name};
    if (own.files.empty()) own.files = files_of(group, name);
    nodes[name].push_back(std::move(own));
  };
  std::set<std::string> told;
  for (const GpuGroup& group : now) told.insert(group.nodes.begin(), group.nodes.end());
  for (const GpuGroup& group : earlier) {
    for (const auto& name : group.nodes) {
      if (!told.contains(name)) add(group, name);
    }
  }
  for (const GpuGroup& group : now) {
    for (const auto& name : group.nodes) add(group, name);
  }
  return nodes;
}

std::vector<GpuGroup> gather_gpus(const GpusByNode& nodes, const Site& site) {
  std::vector<GpuGroup> groups;
  for (const SiteNode& node : site.nodes) {
    const auto found = nodes.find(node.name);
    if (found == nodes.end()) continue;
    for (const GpuGroup& own : found->second) {
      auto same = std::ranges::find_if(groups, [&](const GpuGroup& group) {
        return group.model == own.model && group.count == own.count && group.memory == own.memory &&
               group.files == own.files;
      });
      if (same == groups.end()) {
        groups.push_back(own);
      } else {
        same->nodes.push_back(node.name);
      }
    }
  }
  return groups;
}

Result<std::vector<GpuGroup>> slots_of(const GpuGroup& group) {
  const auto files = TRY(expand_hostlist(group.files));
  if (std::ssize(files) != group.count) {
    return fail(Error::Code::invalid_argument,
                "{}: {} files for {} GPUs: write one for each, e.g. /dev/nvidia[0-{}]",
                format_gpu_group(group), files.size(), group.count, group.count - 1);
  }
  std::vector<GpuGroup> slots;
  for (std::int64_t i = 0; i < group.count; ++i) {
    slots.push_back({.nodes = group.nodes,
                     .model = slot_name(group.model, i),
                     .count = 1,
                     .memory = group.memory,
                     .files = files[static_cast<std::size_t>(i)]});
  }
  return slots;
}

std::string gres_of_node(std::string_view before, const std::vector<GpuGroup>& groups, Bytes unit) {
  std::vector<std::string> parts;
  for (const auto part : split_outside_brackets(before)) {
    const auto name = part.substr(0, part.find(':'));
    if (!part.empty() && name != "gpu" && name != "shard" && name != "mps")
      parts.emplace_back(part);
  }
  std::vector<std::string> ours;
  for (const GpuGroup& group : groups) {
    ours.push_back(fmt::format("gpu:{}:{}", group.model, group.count));
  }
  for (const GpuGroup& group : groups) {
    ours.push_back(
        fmt::format("shard:{}:{}", group.model, group.count * shards_of(group.memory, unit)));
  }
  ours.insert(ours.end(), parts.begin(), parts.end());
  return fmt::format("{}", fmt::join(ours, ","));
}

}  // namespace aliquot::slurm
