// Which weight every node should have, from how busy its GPUs are. Slurm gives a job the nodes of
// least weight among those that can hold it, so weights are all it takes to steer. Pure: samples,
// weights and the time go in, changes come out; reconciler.hpp talks to Slurm.
//
// A node's weight is its base times 1000 plus a level from 0 to 101. The base is the site's own
// Weight= and always counts first. The level is the mean utilisation of the node's GPUs in percent
// (spread) or 100 less that (pack). A node that has not been heard of lately counts as busy in
// either: 101. Nodes without GPUs have level 0.
//
// slurmctld forgets our weights when it is restarted or reconfigured, and an administrator may set
// others. So a weight that is neither the base nor one that we could have made of it is a new base.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "base/time.hpp"
#include "base/units.hpp"

namespace aliquot::slurm {

enum class BalanceMode : std::uint8_t { spread, pack, off };
Result<BalanceMode> parse_balance_mode(std::string_view text);

inline constexpr Millis kStaleAfter = seconds(3);
inline constexpr std::uint32_t kWeightFactor = 1'000;
inline constexpr std::uint32_t kBusyLevel = 101;
// Larger bases are taken for this one: Slurm's weights end at 2^32, and its last two values mean
// something else.
inline constexpr std::uint32_t kMostBase = 4'294'966;
// By so much the utilisation must have moved for the level to follow it, in 1/10,000.
inline constexpr std::int64_t kSlack = 200;

// A node as slurmctld has it now.
struct WeighedNode {
  std::string name;
  std::uint32_t weight = 1;
  bool gpus = true;
  bool marked = false;  // its `extra` bears our mark
};

// What was last heard of a node: the mean over its GPUs.
struct NodeLoad {
  Compute utilisation;
  MonoTime heard;
};

using Bases = std::map<std::string, std::uint32_t, std::less<>>;
using Loads = std::map<std::string, NodeLoad, std::less<>>;
// Utilisation in percent as it counts now, of nodes lately heard of.
using Steps = std::map<std::string, std::uint32_t, std::less<>>;

// What is remembered from one decision to the next.
struct Memory {
  Bases bases = {};
  Steps steps = {};
};

struct Plan {
  Memory memory;
  bool bases_changed = false;                                 // must be stored before acting
  std::map<std::uint32_t, std::vector<std::string>> changes;  // new weight -> nodes
  [[nodiscard]] bool empty() const { return changes.empty(); }
};

struct PlanInput {
  BalanceMode mode = BalanceMode::spread;
  MonoTime now;
  // Soon after the start a node not yet heard of keeps the weight it has from us.
  bool patient = false;
};

Plan plan_weights(const std::vector<WeighedNode>& nodes, const Loads& loads, Memory memory,
                  const PlanInput& input);

// The weight of a node of this base at this level; never overflows.
std::uint32_t make_weight(std::uint32_t base, std::uint32_t level);
// Whether we could have made this weight of this base.
bool made_of(std::uint32_t weight, std::uint32_t base);
// 0 to 100; `before` stays while the utilisation is near it. Idle is always 0.
std::uint32_t utilisation_step(Compute utilisation, std::optional<std::uint32_t> before);

}  // namespace aliquot::slurm
