#include "cli/view/node_text.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <map>
#include <utility>

#include "base/number_ranges.hpp"
#include "cli/view/job_text.hpp"

namespace aliquot::cli {
namespace {

struct Model {
  std::int64_t count = 0;
  std::vector<std::int64_t> used;
};

std::map<std::string, Model> models_of(const api::NodeInfo& node) {
  std::map<std::string, Model> models;
  for (const auto& gpu : node.gpus) {
    auto& model = models[gres_type(gpu.model)];
    ++model.count;
    if (gpu_in_use(gpu)) model.used.push_back(gpu.index);
  }
  return models;
}

std::string mib_text(std::int64_t bytes) { return fmt::format("{}M", bytes / 1'048'576); }

}  // namespace

std::string_view compact_node_state(std::string_view state) {
  constexpr auto kShort =
      std::to_array<std::pair<std::string_view, std::string_view>>({{"mixed", "mix"},
                                                                    {"allocated", "alloc"},
                                                                    {"drained", "drain"},
                                                                    {"draining", "drng"},
                                                                    {"completing", "comp"},
                                                                    {"reserved", "resv"},
                                                                    {"unknown", "unk"}});
  for (const auto& [name, compact] : kShort) {
    if (name == state) return compact;
  }
  return state;
}

std::string_view node_base_state(const api::NodeInfo& node) {
  if (!node_is_drained(node)) return node.state;
  if (node.cpus_allocated == 0) return "idle";
  return node.cpus_allocated >= node.cpus ? "allocated" : "mixed";
}

bool node_is_drained(const api::NodeInfo& node) {
  return node.state == "drained" || node.state == "draining";
}

std::string scontrol_node_state(const api::NodeInfo& node) {
  std::string state(node_base_state(node));
  for (char& c : state) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  if (node_is_drained(node)) state += "+DRAIN";
  return state;
}

std::string node_gres(const api::NodeInfo& node) {
  std::string text;
  for (const auto& [name, model] : models_of(node)) {
    text += fmt::format("{}gpu:{}:{}", text.empty() ? "" : ",", name, model.count);
  }
  return text.empty() ? "(null)" : text;
}

std::string node_gres_used(const api::NodeInfo& node) {
  std::string text;
  for (auto& [name, model] : models_of(node)) {
    auto used = model.used;
    std::ranges::sort(used);
    text += fmt::format("{}gpu:{}:{}(IDX:{})", text.empty() ? "" : ",", name, used.size(),
                        used.empty() ? "N/A" : format_ranges(used));
  }
  return text.empty() ? "(null)" : text;
}

std::string node_gres_drained(const api::NodeInfo& node) {
  std::map<std::string, std::vector<std::int64_t>> drained;
  for (const auto& gpu : node.gpus) {
    if (!gpu.reason.empty()) drained[gres_type(gpu.model)].push_back(gpu.index);
  }
  std::string text;
  for (const auto& [name, gpus] : drained) {
    text += fmt::format("{}gpu:{}:{}(IDX:{})", text.empty() ? "" : ",", name, gpus.size(),
                        format_ranges(gpus));
  }
  return text.empty() ? "N/A" : text;
}

api::NodeInfo partition_part(api::NodeInfo node, const api::PartitionInfo& partition) {
  if (partition.gpu_count && std::ssize(node.gpus) > *partition.gpu_count) {
    node.gpus.resize(static_cast<std::size_t>(*partition.gpu_count));
  }
  if (partition.gpus.empty()) return node;
  std::erase_if(node.gpus, [&](const api::GpuInfo& gpu) {
    return std::ranges::find(partition.gpus, gpu.index) == partition.gpus.end();
  });
  return node;
}

std::string node_configured_tres(const api::NodeInfo& node, bool with_node) {
  auto text = fmt::format("cpu={},mem={}{},billing={}", node.cpus, mib_text(node.memory),
                          with_node ? ",node=1" : "", node.cpus);
  if (!node.gpus.empty()) text += fmt::format(",gres/gpu={}", node.gpus.size());
  for (const auto& [name, model] : models_of(node)) {
    text += fmt::format(",gres/gpu:{}={}", name, model.count);
  }
  return text;
}

std::string node_allocated_tres(const api::NodeInfo& node) {
  if (node.cpus_allocated == 0) return "";
  auto text = fmt::format("cpu={}", node.cpus_allocated);
  if (node.memory_allocated > 0) text += ",mem=" + memory_text(node.memory_allocated);
  std::size_t used = 0;
  std::string typed;
  for (const auto& [name, model] : models_of(node)) {
    used += model.used.size();
    if (!model.used.empty()) typed += fmt::format(",gres/gpu:{}={}", name, model.used.size());
  }
  if (used > 0) text += fmt::format(",gres/gpu={}{}", used, typed);
  return text;
}

bool gpu_in_use(const api::GpuInfo& gpu) {
  return gpu.whole || !gpu.jobs.empty() || gpu.memory_granted > 0 || gpu.compute_granted > 0;
}

}  // namespace aliquot::cli
