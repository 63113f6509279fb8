#include "slurm/settings.hpp"

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "base/text.hpp"
#include "base/toml_reader.hpp"

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
    const bool plain = std::ranges::all_of(to, [](char c) {
      return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
             c == '-' || c == '_' || c == '.' || c == ':';
    });
    if (!plain) return place.complain("letters, digits, '-', '_', '.' and ':' only");
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
    }
    return {};
  };
}

}  // namespace

Result<Settings> parse_settings(std::string_view text, std::string_view name) {
  Settings settings;
  auto& [share, agent, balancer, slurm] = settings;
  // A lambda may not capture what a structured binding named.
  Bytes& unit = share.unit;
  Compute& overcommit = share.overcommit;
  auto agent_readers = node::enforce_readers(agent.enforce);
  agent_readers.merge(TomlReaders{{"socket", path_into(agent.socket)},
                                  {"run_dir", path_into(agent.run_dir)},
                                  {"without", one_of(agent.without, {"refuse", "run"})},
                                  {"patience", number_into(agent.patience, 600)},
                                  {"simulate", text_into(agent.simulate)},
                                  {"node", name_into(agent.node)}});
  TRY(read_toml(text, name,
                {
                    {"share", toml_table({
                                  {"unit",
                                   [&unit](const TomlPlace& place) -> Result<void> {
                                     unit = TRY(place.size());
                                     // Fewer bytes make more shards than Slurm counts in 32 bits.
                                     if (unit < mib(1))
                                       return place.complain("expected 1M or more");
                                     return {};
                                   }},
                                  {"overcommit",
                                   [&overcommit](const TomlPlace& place) -> Result<void> {
                                     overcommit = TRY(place.factor(10));
                                     return {};
                                   }},
                                  {"mps_per_gpu", number_into(share.mps_per_gpu, 1'000'000)},
                                  {"shards_per_gpu", number_into(share.shards_per_gpu, 1'000'000)},
                                  {"partitions", patterns_into(share.partitions)},
                                  {"accounts", patterns_into(share.accounts)},
                                  {"reservations", patterns_into(share.reservations)},
                              })},
                    {"agent", toml_table(std::move(agent_readers))},
                    {"balancer", toml_table({
                                     {"mode", one_of(balancer.mode, {"spread", "pack", "off"})},
                                     {"host", name_into(balancer.host)},
                                     {"port", number_into(balancer.port, 65535)},
                                     {"state", path_into(balancer.state)},
                                 })},
                    {"slurm", toml_table({{"conf", path_into(slurm.conf)}})},
                }));
  return settings;
}

Result<Settings> load_settings(const std::string& path) {
  std::string file = path;
  if (file.empty()) {
    const char* variable = std::getenv("ALIQUOT_SLURM_CONFIG");
    file = variable != nullptr && *variable != '\0' ? variable : std::string(kSettingsPath);
    std::error_code error;
    if (file == kSettingsPath && !std::filesystem::exists(file, error)) return Settings{};
  }
  const std::string text = TRY(read_settings_file(file));
  return parse_settings(text, file);
}

std::string slurm_conf_path(const Settings& settings) {
  if (!settings.slurm.conf.empty()) return settings.slurm.conf;
  const char* variable = std::getenv("SLURM_CONF");
  return variable != nullptr && *variable == '/' ? variable : "/etc/slurm/slurm.conf";
}

}  // namespace aliquot::slurm
