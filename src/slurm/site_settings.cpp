#include "slurm/site_settings.hpp"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <utility>

#include "base/text.hpp"
#include "base/toml_reader.hpp"
#include "slurm/plain_name.hpp"

namespace aliquot::slurm {
namespace {

// A path that can stand in Slurm's files, where blanks, commas, '#' and quotes part words.
TomlReader path_into(std::string& to) {
  return [&to](const TomlPlace& place) -> Result<void> {
    to = TRY(place.text());
    if (!to.starts_with('/') || to.find_first_of(" \t\n,;#\"'\\$=") != std::string::npos) {
      return place.complain("expected a full path without blanks, quotes and any of , ; # \\ $ =");
    }
    return {};
  };
}

// Names as Slurm has them for nodes and hosts.
TomlReader name_into(std::string& to) {
  return [&to](const TomlPlace& place) -> Result<void> {
    to = TRY(place.text());
    if (!to.empty() && !is_plain_name(to, ":"))
      return place.complain("letters, digits, '-', '_', '.' and ':' only");
    return {};
  };
}

// Patterns that go into a Lua text and are matched there.
TomlReader patterns_into(std::vector<std::string>& to) {
  return [&to](const TomlPlace& place) -> Result<void> {
    to = TRY(place.texts());
    for (const std::string& pattern : to) {
      if (pattern.empty() || !is_plain_line(pattern)) {
        return place.complain(quote(pattern) + " is not a name or pattern");
      }
      const auto open = pattern.rfind('[');
      if (open != pattern.npos && pattern.find(']', open) == pattern.npos) {
        return place.complain(quote(pattern) + " has a [ without its ]");
      }
    }
    return {};
  };
}

// [partition.NAME]
Result<void> read_partitions(const TomlPlace& place, ShareSettings& share) {
  const auto* table = place.node().as_table();
  if (table == nullptr) return place.complain("expected a table: [partition.NAME]");
  for (const auto& [key, value] : *table) {
    const std::string name(key.str());
    const std::string shown = place.key() + "." + name;
    const TomlPlace entry(value, place.file(), shown);
    if (!is_plain_name(name)) return entry.complain("is not a partition's name");
    const auto* own = value.as_table();
    if (own == nullptr) return entry.complain("expected a table: [" + shown + "]");
    PartitionShare& to = share.by_partition[name];
    const auto count_into = [](std::optional<std::int64_t>& count) -> TomlReader {
      return [&count](const TomlPlace& at) -> Result<void> {
        count = TRY(at.number(1, 1'000'000));
        return {};
      };
    };
    TRY(read_toml_table(*own,
                        {{"overcommit",
                          [&to](const TomlPlace& at) -> Result<void> {
                            to.overcommit = TRY(at.factor(10));
                            return {};
                          }},
                         {"mps_per_gpu", count_into(to.mps_per_gpu)},
                         {"shards_per_gpu", count_into(to.shards_per_gpu)}},
                        place.file(), shown + "."));
  }
  return {};
}

}  // namespace

Result<SiteSettings> parse_settings(std::string_view text, std::string_view name) {
  SiteSettings settings;
  ShareSettings& share = settings.share;
  AgentSettings& agent = settings.agent;
  BalancerSettings& balancer = settings.balancer;
  Bytes& unit = share.unit;
  Compute& overcommit = share.overcommit;
  auto agent_readers = node::enforce_readers(agent.enforce);
  agent_readers.merge(TomlReaders{{"socket", path_into(agent.socket)},
                                  {"run_dir", path_into(agent.run_dir)},
                                  {"without", one_of(agent.without, {"refuse", "run"})},
                                  {"patience", number_into(agent.patience, 600)},
                                  {"simulate", text_into(agent.simulate)},
                                  {"node", name_into(agent.node)}});
  TRY(read_toml(
      text, name,
      {
          {"share", toml_table({
                        {"unit",
                         [&unit](const TomlPlace& place) -> Result<void> {
                           unit = TRY(place.size());
                           // Fewer bytes make more shards than Slurm counts in 32 bits.
                           if (unit < mib(1)) return place.complain("expected 1M or more");
                           return {};
                         }},
                        {"overcommit",
                         [&overcommit](const TomlPlace& place) -> Result<void> {
                           overcommit = TRY(place.factor(10));
                           return {};
                         }},
                        {"mps_per_gpu", number_into(share.mps_per_gpu, 1'000'000)},
                        {"shards_per_gpu", number_into(share.shards_per_gpu, 1'000'000)},
                        {"placement", one_of(share.placement, {"slurm", "aliquot"})},
                        {"partitions", patterns_into(share.partitions)},
                        {"accounts", patterns_into(share.accounts)},
                        {"reservations", patterns_into(share.reservations)},
                    })},
          {"partition", [&share](const TomlPlace& place) { return read_partitions(place, share); }},
          {"agent", toml_table(std::move(agent_readers))},
          {"balancer", toml_table({
                           {"mode", one_of(balancer.mode, {"spread", "pack", "off"})},
                           {"host", name_into(balancer.host)},
                           {"port", number_into(balancer.port, 65535)},
                           {"state", path_into(balancer.state)},
                       })},
          {"slurm", toml_table({{"conf", path_into(settings.slurm.conf)}})},
          {"page", show::listen_into(settings.page)},
          {"metrics", toml_table({{"users", truth_into(settings.user_metrics)}})},
      }));
  if (const auto page = show::check_listen(settings.page); !page) {
    return fail(page.error().code, "{}: {}", name, page.error().message);
  }
  return settings;
}

Result<SiteSettings> load_settings(const std::string& path) {
  std::string file = path;
  if (file.empty()) {
    const char* variable = std::getenv("ALIQUOT_SLURM_CONFIG");
    file = variable != nullptr && *variable != '\0' ? variable : std::string(kSettingsPath);
    std::error_code error;
    if (file == kSettingsPath && !std::filesystem::exists(file, error)) return SiteSettings{};
  }
  const std::string text = TRY(read_settings_file(file));
  return parse_settings(text, file);
}

std::string slurm_conf_path(const SiteSettings& settings) {
  if (!settings.slurm.conf.empty()) return settings.slurm.conf;
  const char* variable = std::getenv("SLURM_CONF");
  if (variable != nullptr && *variable == '/') return variable;
  // A node without files of its own has those that slurmd has fetched; as Slurm's commands look.
  constexpr const char* kOwn = "/etc/slurm/slurm.conf";
  constexpr const char* kFetched = "/run/slurm/conf/slurm.conf";
  return ::access(kOwn, F_OK) != 0 && ::access(kFetched, F_OK) == 0 ? kFetched : kOwn;
}

}  // namespace aliquot::slurm
