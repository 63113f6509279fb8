#include "slurm/balancer/weights.hpp"

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "base/text.hpp"

namespace aliquot::slurm {
namespace {

// What the node's own weight is, given the one it has now.
std::uint32_t base_of(const WeighedNode& node, const Bases& bases) {
  const auto known = bases.find(node.name);
  if (known != bases.end()) {
    return made_of(node.weight, known->second) ? known->second : node.weight;
  }
  // We have lost our memory, but our mark is on the node.
  if (node.marked && node.weight >= kWeightFactor && node.weight % kWeightFactor <= kBusyLevel) {
    return node.weight / kWeightFactor;
  }
  return node.weight;
}

}  // namespace

Result<BalanceMode> parse_balance_mode(std::string_view text) {
  if (text == "spread") return BalanceMode::spread;
  if (text == "pack") return BalanceMode::pack;
  if (text == "off") return BalanceMode::off;
  return fail(Error::Code::invalid_argument, "mode {}: write spread, pack or off", quote(text));
}

std::uint32_t make_weight(std::uint32_t base, std::uint32_t level) {
  return std::min(base, kMostBase) * kWeightFactor + std::min(level, kBusyLevel);
}

bool made_of(std::uint32_t weight, std::uint32_t base) {
  return weight == base ||
         (weight >= make_weight(base, 0) && weight <= make_weight(base, kBusyLevel));
}

std::uint32_t utilisation_step(Compute utilisation, std::optional<std::uint32_t> before) {
  const auto load = std::clamp(utilisation, Compute(0), kWholeGpu).value();
  if (load > 0 && before && std::abs(load - std::int64_t{*before} * 100) <= kSlack) return *before;
  return static_cast<std::uint32_t>((load + 50) / 100);
}

Plan plan_weights(const std::vector<WeighedNode>& nodes, const Loads& loads, Memory memory,
                  const PlanInput& input) {
  Plan plan;
  for (const auto& node : nodes) {
    const auto base = base_of(node, memory.bases);
    plan.memory.bases[node.name] = base;

    std::optional<std::uint32_t> level;  // absent: as it is
    const auto load = loads.find(node.name);
    if (!node.gpus) {
      level = 0;
    } else if (load != loads.end() && input.now - load->second.heard <= kStaleAfter) {
      const auto before = memory.steps.find(node.name);
      const auto step = utilisation_step(
          load->second.utilisation,
          before == memory.steps.end() ? std::nullopt : std::optional(before->second));
      plan.memory.steps[node.name] = step;
      level = input.mode == BalanceMode::pack ? 100 - step : step;
    } else if (!input.patient || load != loads.end() || node.weight < make_weight(base, 0)) {
      level = kBusyLevel;
    }

    const auto wanted = input.mode == BalanceMode::off ? base
                        : level                        ? make_weight(base, *level)
                                                       : node.weight;
    if (wanted != node.weight) plan.changes[wanted].push_back(node.name);
  }
  plan.bases_changed = plan.memory.bases != memory.bases;
  return plan;
}

}  // namespace aliquot::slurm
