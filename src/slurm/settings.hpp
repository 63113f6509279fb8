// Every setting of the Slurm side, with a default for each: /etc/aliquot/slurm.toml, read by the
// node agent, the balancer and `aliquot slurm setup` alike, so that one file can be copied to every
// machine of a cluster. Whatever is unknown, of the wrong type or out of range is refused with its
// line.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "base/units.hpp"
#include "node/enforce_settings.hpp"

namespace aliquot::slurm {

inline constexpr std::string_view kSettingsPath = "/etc/aliquot/slurm.toml";

// What a share is, and who may ask for one.
struct ShareSettings {
  Bytes unit = gib(1);              // of GPU memory: what one shard stands for
  Compute overcommit = kWholeGpu;   // compute promised on one GPU at most
  std::int64_t mps_per_gpu = 100;   // what users' mps:P counts in
  std::int64_t shards_per_gpu = 8;  // what users' shard:K counts in
  // Shares only there; shell patterns; none: everywhere.
  std::vector<std::string> partitions = {};
  std::vector<std::string> accounts = {};
  std::vector<std::string> reservations = {};
  friend bool operator==(const ShareSettings&, const ShareSettings&) = default;
};

struct AgentSettings {
  std::string socket = "/run/aliquot/agent.sock";
  std::string run_dir = "/run/aliquot/agent";
  std::string without =
      "refuse";                // agent does not answer: "refuse" the task, or "run" it unlimited
  std::int64_t patience = 15;  // s; so long a step waits for the agent
  node::EnforceSettings enforce = {};
  std::string simulate = {};  // "h200:4": stand-in GPUs
  std::string node = {};      // NodeName; empty: the host's short name
  friend bool operator==(const AgentSettings&, const AgentSettings&) = default;
};

struct BalancerSettings {
  std::string mode = "spread";  // "spread", "pack", "off"
  std::string host = {};        // where it listens; empty: slurm.conf's SlurmctldHost
  std::int64_t port = 6821;     // UDP
  std::string state = "/var/lib/aliquot/balancer.json";
  friend bool operator==(const BalancerSettings&, const BalancerSettings&) = default;
};

struct SlurmSettings {
  std::string conf = {};  // empty: $SLURM_CONF or /etc/slurm/slurm.conf
  friend bool operator==(const SlurmSettings&, const SlurmSettings&) = default;
};

struct Settings {
  ShareSettings share;
  AgentSettings agent;
  BalancerSettings balancer;
  SlurmSettings slurm;
  friend bool operator==(const Settings&, const Settings&) = default;
};

// `name` stands in messages: "/etc/aliquot/slurm.toml:7: …".
Result<Settings> parse_settings(std::string_view text, std::string_view name);

// `path` as the user gave it with --config, where a file that is not there is an error; empty:
// $ALIQUOT_SLURM_CONFIG or /etc/aliquot/slurm.toml, where one that is not there means the defaults.
Result<Settings> load_settings(const std::string& path);

// Where slurm.conf is, by the settings, $SLURM_CONF, or Slurm's default.
std::string slurm_conf_path(const Settings& settings);

// How many shards a GPU of this memory has: as many as it has units, less a few, so that the parts
// people ask for come out even (four quarters of 139 shards do not fit, of 120 they do). They are
// then a little larger than the unit: shard_memory(). At least 1, so that a GPU smaller than the
// unit is whole.
constexpr std::int64_t shards_of(Bytes gpu_memory, Bytes unit) {
  const std::int64_t units = gpu_memory / unit;
  const std::int64_t twenties = units - units % 20;
  if (twenties * 100 >= units * 85) return twenties < 1 ? 1 : twenties;
  return units < 4 ? (units < 1 ? 1 : units) : units - units % 4;
}

// Of so many of a GPU's shards; all of them are all of it.
constexpr Bytes shard_memory(Bytes gpu_memory, std::int64_t all, std::int64_t shards) {
  return shards >= all ? gpu_memory : Bytes(gpu_memory.value() / all * shards);
}

}  // namespace aliquot::slurm
