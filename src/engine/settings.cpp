#include "engine/settings.hpp"

#include <toml++/toml.h>

#include <algorithm>
#include <fstream>
#include <functional>
#include <map>
#include <set>
#include <sstream>

#include "base/percent.hpp"
#include "base/size.hpp"
#include "base/text.hpp"
#include "core/policy.hpp"

namespace aliquot::engine {
namespace {

// Where something stands in the file, and how to complain about it.
class Place {
 public:
  Place(const toml::node& node, std::string_view file, std::string key)
      : node_(node), file_(file), key_(std::move(key)) {}

  [[nodiscard]] tl::unexpected<Error> complain(std::string_view what) const {
    return fail(Error::Code::invalid_argument, "{}:{}: {}: {}", file_, node_.source().begin.line,
                key_, what);
  }

  [[nodiscard]] Result<std::string> text() const {
    const auto* value = node_.as_string();
    if (value == nullptr) return complain("expected a text in quotes");
    return value->get();
  }
  [[nodiscard]] Result<bool> truth() const {
    const auto* value = node_.as_boolean();
    if (value == nullptr) return complain("expected true or false");
    return value->get();
  }
  [[nodiscard]] Result<std::int64_t> number(std::int64_t least, std::int64_t most) const {
    const auto* value = node_.as_integer();
    if (value == nullptr || value->get() < least || value->get() > most) {
      return complain(fmt::format("expected a whole number from {} to {}", least, most));
    }
    return value->get();
  }
  // Seconds as a number, or Slurm's way of writing times.
  [[nodiscard]] Result<TimeLimit> time() const {
    if (const auto* value = node_.as_integer(); value != nullptr) {
      const std::int64_t count = TRY(number(1, 1'000'000'000));
      return TimeLimit{seconds(count)};
    }
    const std::string written = TRY(text());
    const auto parsed = parse_time_limit(written);
    if (!parsed) return complain(parsed.error().message);
    return *parsed;
  }
  [[nodiscard]] Result<Millis> span() const {
    const TimeLimit limit = TRY(time());
    if (limit.unlimited() || *limit.length <= Millis(0))
      return complain("expected a length of time");
    return *limit.length;
  }
  [[nodiscard]] Result<Bytes> size() const {
    const std::string written = TRY(text());
    const auto parsed = parse_size(written);
    if (!parsed) return complain(parsed.error().message);
    if (*parsed <= Bytes(0)) return complain("expected more than nothing");
    return *parsed;
  }

 private:
  const toml::node& node_;
  std::string_view file_;
  std::string key_;
};

using Reader = std::function<Result<void>(const Place&)>;
using Readers = std::map<std::string, Reader, std::less<>>;

Result<void> read_table(const toml::table& table, const Readers& readers, std::string_view file,
                        const std::string& prefix) {
  for (const auto& [key, node] : table) {
    const std::string name = prefix + std::string(key.str());
    const Place place(node, file, name);
    const auto reader = readers.find(key.str());
    if (reader == readers.end()) {
      std::string known;
      for (const auto& [one, unused] : readers) known += (known.empty() ? "" : ", ") + one;
      return place.complain("there is no such setting; known here: " + known);
    }
    TRY(reader->second(place));
  }
  return {};
}

Result<Partition> read_partition(const toml::table& table, std::string_view file) {
  Partition partition;
  partition.is_default = false;
  bool named = false;
  bool default_given = false;
  TRY(read_table(table,
                 {
                     {"name",
                      [&](const Place& place) -> Result<void> {
                        partition.name = TRY(place.text());
                        named = true;
                        const bool plain =
                            !partition.name.empty() &&
                            std::ranges::all_of(partition.name, [](char c) {
                              return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                                     (c >= '0' && c <= '9') || c == '-' || c == '_' || c == '.';
                            });
                        if (!plain) return place.complain("letters, digits, '-', '_' and '.' only");
                        return {};
                      }},
                     {"default",
                      [&](const Place& place) -> Result<void> {
                        partition.is_default = TRY(place.truth());
                        return {};
                      }},
                     {"up",
                      [&](const Place& place) -> Result<void> {
                        partition.up = TRY(place.truth());
                        return {};
                      }},
                     {"max_time",
                      [&](const Place& place) -> Result<void> {
                        partition.max_time = TRY(place.time());
                        return {};
                      }},
                     {"default_time",
                      [&](const Place& place) -> Result<void> {
                        partition.default_time = TRY(place.time());
                        default_given = true;
                        return {};
                      }},
                 },
                 file, "partition."));
  const Place place(table, file, "partition");
  if (!named) return place.complain("a partition needs a name");
  if (!default_given) partition.default_time = partition.max_time;
  if (!partition.max_time.unlimited() &&
      (partition.default_time.unlimited() ||
       *partition.default_time.length > *partition.max_time.length)) {
    return place.complain("default_time is over max_time");
  }
  return partition;
}

Result<void> read_partitions(const toml::table& root, std::string_view file, Settings& settings) {
  const toml::node* node = root.get("partition");
  if (node == nullptr) return {};
  const toml::array* list = node->as_array();
  if (list == nullptr || !list->is_array_of_tables()) {
    return Place(*node, file, "partition").complain("write each as [[partition]]");
  }
  settings.partitions.clear();
  std::set<std::string> names;
  std::size_t defaults = 0;
  for (const toml::node& entry : *list) {
    Partition partition = TRY(read_partition(*entry.as_table(), file));
    const Place place(entry, file, "partition");
    if (!names.insert(partition.name).second) {
      return place.complain("there are two of the name " + quote(partition.name));
    }
    if (partition.is_default && ++defaults > 1) return place.complain("two are the default");
    settings.partitions.push_back(std::move(partition));
  }
  if (defaults == 0) settings.partitions.front().is_default = true;
  return {};
}

Reader text_into(std::string& to) {
  return [&to](const Place& place) -> Result<void> {
    to = TRY(place.text());
    return {};
  };
}
Reader span_into(Millis& to) {
  return [&to](const Place& place) -> Result<void> {
    to = TRY(place.span());
    return {};
  };
}
Reader number_into(std::int64_t& to, std::int64_t most) {
  return [&to, most](const Place& place) -> Result<void> {
    to = TRY(place.number(1, most));
    return {};
  };
}
Reader truth_into(bool& to) {
  return [&to](const Place& place) -> Result<void> {
    to = TRY(place.truth());
    return {};
  };
}
// What goes into LD_PRELOAD, where spaces and colons part names.
Reader library_into(std::string& to) {
  return [&to](const Place& place) -> Result<void> {
    to = TRY(place.text());
    if (!to.starts_with('/') || to.find_first_of(" :\t\n$") != std::string::npos) {
      return place.complain("expected a full path without spaces, colons and '$'");
    }
    return {};
  };
}
Reader size_into(std::optional<Bytes>& to) {
  return [&to](const Place& place) -> Result<void> {
    to = TRY(place.size());
    return {};
  };
}
Reader one_of(std::string& to, std::vector<std::string> allowed) {
  return [&to, allowed = std::move(allowed)](const Place& place) -> Result<void> {
    to = TRY(place.text());
    if (std::ranges::find(allowed, to) != allowed.end()) return {};
    std::string list;
    for (const std::string& one : allowed) list += (list.empty() ? "" : ", ") + one;
    return place.complain(quote(to) + " is none of " + list);
  };
}
Reader table_of(Readers readers, std::string_view file, const toml::table& root,
                const std::string& name) {
  return [readers = std::move(readers), file, &root, name](const Place& place) -> Result<void> {
    const toml::table* table = root.get_as<toml::table>(name);
    if (table == nullptr) return place.complain("expected a table: [" + name + "]");
    return read_table(*table, readers, file, name + ".");
  };
}

}  // namespace

Result<Settings> parse_settings(std::string_view text, std::string_view name) {
  try {
    const toml::table root = toml::parse(text, name);
    Settings settings;
    std::vector<std::string> policies;
    for (const core::PolicyInfo& policy : core::policies()) policies.emplace_back(policy.name);
    const auto table = [&](const std::string& key, Readers readers) {
      return table_of(std::move(readers), name, root, key);
    };
    TRY(read_table(
        root,
        {
            {"cluster", table("cluster", {{"name", text_into(settings.cluster)}})},
            {"node", table("node", {{"name", text_into(settings.node)},
                                    {"memory", size_into(settings.memory)},
                                    {"cpus",
                                     [&](const Place& place) -> Result<void> {
                                       settings.cpus = TRY(place.number(1, 1'000'000));
                                       return {};
                                     }}})},
            {"gpu",
             table("gpu", {{"simulate", text_into(settings.simulate)},
                           {"mps_per_gpu", number_into(settings.mps_per_gpu, 1'000'000)},
                           {"shards_per_gpu", number_into(settings.shards_per_gpu, 1'000'000)},
                           {"compute_overcommit",
                            [&](const Place& place) -> Result<void> {
                              settings.compute_limit = kWholeGpu * TRY(place.number(1, 100));
                              return {};
                            }}})},
            {"enforce", table("enforce", {{"enabled", truth_into(settings.enforce)},
                                          {"fault_domain",
                                           one_of(settings.fault_domain, {"gpu", "user", "job"})},
                                          {"escape", one_of(settings.escape, {"report", "kill"})},
                                          {"library", library_into(settings.library)}})},
            {"schedule", table("schedule", {{"policy", one_of(settings.policy, policies)}})},
            {"jobs", table("jobs", {{"memory_per_cpu", size_into(settings.memory_per_cpu)},
                                    {"gpus_per_user",
                                     [&](const Place& place) -> Result<void> {
                                       settings.gpus_per_user = TRY(place.number(1, 1'000'000));
                                       return {};
                                     }},
                                    {"kill_wait", span_into(settings.kill_wait)},
                                    {"min_job_age", span_into(settings.min_job_age)}})},
            {"monitor",
             table("monitor", {{"interval", span_into(settings.sample_interval)},
                               {"idle_interval", span_into(settings.idle_sample_interval)},
                               {"stale_after", span_into(settings.stale_after)}})},
            {"log", table("log", {{"level", one_of(settings.log_level,
                                                   {"debug", "info", "warning", "error"})},
                                  {"file", text_into(settings.log_file)}})},
            {"partition",
             [&](const Place&) -> Result<void> { return read_partitions(root, name, settings); }},
        },
        name, ""));
    return settings;
  } catch (const toml::parse_error& error) {
    return fail(Error::Code::invalid_argument, "{}:{}: {}", name, error.source().begin.line,
                error.description());
  }
}

Result<Settings> load_settings(const std::string& path) {
  std::ifstream file(path);
  if (!file) return fail(Error::Code::not_found, "cannot read the settings {}", quote(path));
  std::ostringstream text;
  text << file.rdbuf();
  return parse_settings(text.str(), path);
}

}  // namespace aliquot::engine
