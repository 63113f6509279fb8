#include "engine/partition.hpp"

#include <algorithm>
#include <optional>
#include <set>
#include <utility>

#include "base/text.hpp"
#include "base/toml_reader.hpp"
#include "core/device.hpp"

namespace aliquot::engine {
namespace {

constexpr std::int64_t kHighestTier = 65'533;  // as in Slurm

bool is_plain_name(std::string_view name) {
  return !name.empty() && std::ranges::all_of(name, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
           c == '_' || c == '.';
  });
}

// Which, or how many.
Result<void> read_gpus(const TomlPlace& place, Partition& partition) {
  if (place.node().is_integer()) {
    partition.gpu_count = TRY(place.number(1, core::kMaxGpusPerNode));
    return {};
  }
  auto& gpus = partition.gpus;
  gpus = TRY(place.numbers(0, core::kMaxGpusPerNode - 1));
  std::ranges::sort(gpus);
  if (gpus.empty()) return place.complain("name at least one GPU, or leave it out for all");
  if (std::ranges::adjacent_find(gpus) != gpus.end()) return place.complain("a GPU stands twice");
  return {};
}

Result<Partition> read_partition(const toml::table& table, std::string_view file,
                                 const std::string& prefix, std::string name) {
  Partition partition{.name = std::move(name), .is_default = false};
  TomlReaders readers{
      {"default", truth_into(partition.is_default)},
      {"up", truth_into(partition.up)},
      {"max_time", read_into(partition.max_time, &TomlPlace::time)},
      {"default_time", read_into(partition.own_default_time, &TomlPlace::time)},
      {"users", read_into(partition.users, &TomlPlace::texts)},
      {"groups", read_into(partition.groups, &TomlPlace::texts)},
      {"gpus", [&](const TomlPlace& place) -> Result<void> { return read_gpus(place, partition); }},
      {"qos", text_into(partition.qos)},
      {"preempt",
       [&](const TomlPlace& place) -> Result<void> {
         std::string word;
         TRY(one_of(word, {"off", "requeue", "cancel"})(place));
         partition.preempt = parse_preempt_mode(word).value_or(PreemptMode::off);
         return {};
       }},
      {"grace_time", span_into(partition.grace)},
      {"tier", number_into(partition.tier, kHighestTier, 0)},
      {"job_factor", number_into(partition.job_factor, kHighestTier, 0)},
  };
  const bool named = !partition.name.empty();
  if (!named) readers.emplace("name", text_into(partition.name));
  TRY(read_toml_table(table, readers, file, prefix + "."));
  const TomlPlace place(table, file, prefix);
  if (!named && partition.name.empty()) return place.complain("a partition needs a name");
  if (!is_plain_name(partition.name)) {
    return place.complain("the name " + quote(partition.name) +
                          " may have letters, digits, '-', '_' and '.' only");
  }
  if (partition.own_default_time && is_longer(*partition.own_default_time, partition.max_time)) {
    return place.complain("default_time is over max_time");
  }
  return partition;
}

}  // namespace

bool is_longer(const TimeLimit& a, const TimeLimit& b) {
  return !b.unlimited() && (a.unlimited() || *a.length > *b.length);
}

std::string_view to_string(PreemptMode mode) {
  return mode == PreemptMode::requeue ? "REQUEUE" : mode == PreemptMode::cancel ? "CANCEL" : "OFF";
}

std::optional<PreemptMode> parse_preempt_mode(std::string_view word) {
  for (const PreemptMode mode : {PreemptMode::off, PreemptMode::requeue, PreemptMode::cancel}) {
    if (equals_ignoring_case(word, to_string(mode))) return mode;
  }
  return std::nullopt;
}

std::vector<Partition> usual_partitions() {
  return {{},
          {.name = "besteffort", .is_default = false, .tier = 0, .preempt = PreemptMode::requeue}};
}

Result<std::vector<Partition>> read_partitions(const TomlPlace& place) {
  struct Entry {
    const toml::table* table;
    std::string prefix;
    std::string name;
  };
  std::vector<Entry> entries;
  const std::string_view how = "write each as [partition.NAME]";
  if (const toml::table* named = place.node().as_table(); named != nullptr) {
    for (const auto& [key, node] : *named) {
      const std::string name(key.str());
      if (!node.is_table()) return place.complain(how);
      entries.push_back({node.as_table(), place.key() + "." + name, name});
    }
    // A table is sorted by its keys; whoever wrote it had an order in mind.
    std::ranges::stable_sort(entries, {},
                             [](const Entry& one) { return one.table->source().begin.line; });
  } else if (const toml::array* list = place.node().as_array();
             list != nullptr && list->is_array_of_tables()) {
    for (const toml::node& node : *list) entries.push_back({node.as_table(), place.key(), ""});
  } else {
    return place.complain(how);
  }

  std::vector<Partition> partitions;
  std::set<std::string> names;
  std::size_t defaults = 0;
  for (Entry& entry : entries) {
    Partition partition =
        TRY(read_partition(*entry.table, place.file(), entry.prefix, std::move(entry.name)));
    const TomlPlace here(*entry.table, place.file(), entry.prefix);
    if (!names.insert(partition.name).second) {
      return here.complain("there are two of the name " + quote(partition.name));
    }
    if (partition.is_default && ++defaults > 1) return here.complain("two are the default");
    partitions.push_back(std::move(partition));
  }
  if (partitions.empty()) return place.complain(how);
  if (defaults == 0) partitions.front().is_default = true;
  return partitions;
}

}  // namespace aliquot::engine
