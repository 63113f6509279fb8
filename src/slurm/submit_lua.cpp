#include "slurm/submit_lua.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <vector>

#include "base/text.hpp"
#include "slurm/site_settings.hpp"
#include "slurm/submit_lua_text.hpp"

namespace aliquot::slurm {
namespace {

// Whatever is not plainly harmless goes as a decimal escape, which every Lua reads alike.
std::string lua_string(std::string_view text) {
  std::string result = "\"";
  for (const char c : text) {
    const bool plain = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                       std::string_view(" _-.+*?[]!:/").find(c) != std::string_view::npos;
    if (plain) {
      result += c;
    } else {
      fmt::format_to(std::back_inserter(result), "\\{:03}", static_cast<unsigned char>(c));
    }
  }
  return result += '"';
}

std::string list_of(const std::vector<std::string>& texts) {
  std::vector<std::string> entries;
  entries.reserve(texts.size());
  for (const auto& text : texts) entries.push_back(lua_string(text));
  return fmt::format("{{{}}}", fmt::join(entries, ", "));
}

// The models of a partition, as the table of models spells them.
std::vector<std::string> spelled(const SiteTable& site, const PartitionGpus& partition) {
  std::vector<std::string> names;
  for (const auto& model : site.models) {
    if (std::ranges::any_of(partition.models, [&](const auto& name) {
          return equals_ignoring_case(name, model.name);
        })) {
      names.push_back(model.name);
    }
  }
  return names;
}

}  // namespace

std::string make_submit_lua(const SiteTable& site) {
  std::string text(kSubmitLuaMark);
  const auto add = [&]<class... Args>(fmt::format_string<Args...> format, Args&&... args) {
    fmt::format_to(std::back_inserter(text), format, std::forward<Args>(args)...);
  };
  add("\n-- job_submit.lua runs it last: dofile(\"/etc/slurm/aliquot_submit.lua\")\n\n");
  add("local site = {{\n");
  add("  overcommit = {}, -- compute promised on a GPU at most, in 1/10000\n", site.overcommit);
  add("  mps_per_gpu = {},\n  shards_per_gpu = {},\n", site.mps_per_gpu, site.shards_per_gpu);
  add("  whole_as_shards = {}, -- Slurm before 23.11.5\n", site.whole_as_shards);
  add("  default_partition = {},\n  models = {{\n", lua_string(site.default_partition));
  std::vector<std::string> all_models;
  for (const auto& model : site.models) {
    const auto name = lua_string(model.name);
    add("    [{}] = {{ name = {}, memory = {}, shards = {}, shard = {}, most_per_node = {} }},\n",
        name, name, model.memory, model.shards, shard_memory(model.memory, model.shards, 1),
        model.most_per_node);
    all_models.push_back(model.name);
  }
  add("  }},\n  all_models = {},\n  partitions = {{\n", list_of(all_models));
  for (const auto& partition : site.partitions) {
    add("    [{}] = {},\n", lua_string(partition.name), list_of(spelled(site, partition)));
  }
  const auto add_those = [&](std::string_view name, bool (*matches)(const PartitionGpus&)) {
    add("  }},\n  {} = {{\n", name);
    for (const auto& partition : site.partitions) {
      if (matches(partition)) add("    [{}] = true,\n", lua_string(partition.name));
    }
  };
  add("  }},\n  units = {{ -- of partitions that have their own\n");
  for (const auto& partition : site.partitions) {
    if (partition.share == PartitionShare{}) continue;
    const auto own = units_in(site, partition.name);
    add("    [{}] = {{ overcommit = {}, mps_per_gpu = {}, shards_per_gpu = {} }},\n",
        lua_string(partition.name), own.overcommit, own.mps_per_gpu, own.shards_per_gpu);
  }
  add("  }},\n  nodes = {{ -- where each GPU is a type of its own\n");
  for (const auto& [node, groups] : site.gpus_by_node) {
    add("    [{}] = {{", lua_string(node));
    for (const auto& group : groups) {
      add(" {{ model = {}, count = {} }},", lua_string(group.model), group.count);
    }
    add(" }},\n");
  }
  add("  }},\n  partition_nodes = {{\n");
  for (const auto& partition : site.partitions) {
    if (partition.nodes.empty()) continue;
    add("    [{}] = {},\n", lua_string(partition.name), list_of(partition.nodes));
  }
  add_those("unshared", [](const PartitionGpus& partition) { return !partition.shared; });
  add_those("foreign", [](const PartitionGpus& partition) { return partition.foreign; });
  add("  }},\n  gates = {{\n    partitions = {},\n    accounts = {},\n    reservations = {},\n",
      list_of(site.gates.partitions), list_of(site.gates.accounts),
      list_of(site.gates.reservations));
  add("  }},\n}}\n\n");
  return text += kSubmitLuaText;
}

}  // namespace aliquot::slurm
