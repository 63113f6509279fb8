// Every setting of the Slurm side, with a default for each: /etc/aliquot/slurm.toml, read by the
// node agent, the balancer and `aliquot slurm setup` alike, so that one file can be copied to every
// machine of a cluster. Whatever is unknown, of the wrong type or out of range is refused with its
// line.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "base/units.hpp"
#include "node/enforce_settings.hpp"
#include "show/door.hpp"

namespace aliquot::slurm {

inline constexpr std::string_view kSettingsPath = "/etc/aliquot/slurm.toml";

// What of it is otherwise in one partition.
struct PartitionShare {
  std::optional<Compute> overcommit = {};
  std::optional<std::int64_t> mps_per_gpu = {};
  std::optional<std::int64_t> shards_per_gpu = {};
  friend bool operator==(const PartitionShare&, const PartitionShare&) = default;
};

// What a share is, and who may ask for one.
struct ShareSettings {
  Bytes unit = gib(1);              // of GPU memory: what a shard of a large GPU stands for
  Compute overcommit = kWholeGpu;   // compute promised on one GPU at most
  std::int64_t mps_per_gpu = 100;   // what users' mps:P counts in
  std::int64_t shards_per_gpu = 8;  // what users' shard:K counts in
  std::string placement = "slurm";  // who chooses the GPU of a node: "slurm", "aliquot"
  // Shares only there; shell patterns; none: everywhere.
  std::vector<std::string> partitions = {};
  std::vector<std::string> accounts = {};
  std::vector<std::string> reservations = {};
  std::map<std::string, PartitionShare, std::less<>> by_partition = {};  // [partition.NAME]
  friend bool operator==(const ShareSettings&, const ShareSettings&) = default;

  // As it is for jobs of these partitions; of several, the one that promises least of a GPU.
  [[nodiscard]] ShareSettings in(std::string_view names) const;
  // The most compute that jobs of any partition are promised of a GPU together.
  [[nodiscard]] Compute most_compute() const;
  // The same on a node of these partitions; in none, as it is everywhere.
  [[nodiscard]] Compute most_compute(const std::vector<std::string>& of) const;
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

struct SiteSettings {
  ShareSettings share;
  AgentSettings agent;
  BalancerSettings balancer;
  SlurmSettings slurm;
  show::Listen page = {};    // where an agent serves its node's page and /metrics
  bool user_metrics = true;  // whether /metrics has users and accounts
  friend bool operator==(const SiteSettings&, const SiteSettings&) = default;
};

// `name` stands in messages: "/etc/aliquot/slurm.toml:7: …".
Result<SiteSettings> parse_settings(std::string_view text, std::string_view name);

// `path` as the user gave it with --config, where a file that is not there is an error; empty:
// $ALIQUOT_SLURM_CONFIG or /etc/aliquot/slurm.toml, where one that is not there means the defaults.
Result<SiteSettings> load_settings(const std::string& path);

// Where slurm.conf is: by the settings, $SLURM_CONF, or where Slurm's commands look.
std::string slurm_conf_path(const SiteSettings& settings);

// Thirds, fifths, eighths and tenths of so many come out even, and all that these make.
inline constexpr std::int64_t kEvenShards = 120;

// How many shards a GPU of this memory has: a multiple of 120, as many as it has units at most, and
// 120 at least. So the parts people ask for fit as often as they should, on a small card as on a
// large one; a shard is then as much memory as that makes: shard_memory().
constexpr std::int64_t shards_of(Bytes gpu_memory, Bytes unit) {
  const std::int64_t units = gpu_memory / unit;
  return units < kEvenShards ? kEvenShards : units - units % kEvenShards;
}

// Of so many of a GPU's shards; all of them are all of it.
constexpr Bytes shard_memory(Bytes gpu_memory, std::int64_t all, std::int64_t shards) {
  return shards >= all ? gpu_memory : Bytes(gpu_memory.value() / all * shards);
}

}  // namespace aliquot::slurm
