#include "core/placement.hpp"

#include <algorithm>
#include <limits>

namespace aliquot::core {
namespace {

bool model_matches(const Shape& shape, const GpuState& gpu) {
  return ((shape.models >> gpu.model) & 1U) != 0;
}

bool may_have(const Shape& shape, GpuIndex gpu) { return ((shape.devices >> gpu) & 1U) != 0; }

GpuLack lack_of(const Cluster& cluster, const Shape& shape, NodeIndex node, GpuIndex gpu) {
  const GpuState& state = cluster.gpus(node)[gpu];
  GpuLack lack{.gpu = gpu};
  if (!model_matches(shape, state)) {
    lack.lack = Lack::model;
    return lack;
  }
  const auto portion = portion_of(shape.what, state.memory, cluster.state(node).units);
  if (!portion) {
    lack.lack = Lack::too_small;
  } else if (!may_have(shape, gpu)) {
    lack.lack = Lack::closed;
  } else if (!state.usable) {
    lack.lack = Lack::unhealthy;
  } else if (state.whole) {
    lack.lack = Lack::held_whole;
  } else if (shape.kind == Shape::Kind::whole) {
    if (state.jobs > 0) {
      lack.lack = Lack::shared;
    } else if (!state.free()) {
      lack.lack = Lack::foreign;
    }
  } else if (portion->memory > state.memory_free) {
    lack.lack = Lack::memory;
    lack.memory_missing = portion->memory - state.memory_free;
  } else if (portion->compute > state.compute_free) {
    lack.lack = Lack::compute;
    lack.compute_missing = portion->compute - state.compute_free;
  } else if (portion->memory > state.memory_available()) {
    lack.lack = Lack::foreign;
    lack.memory_missing = portion->memory - state.memory_available();
  }
  return lack;
}

bool fits_when_empty(const Cluster& cluster, const Shape& shape, NodeIndex node) {
  const Node& host = cluster.node(node);
  if (shape.cpus > host.cpus || shape.memory > host.memory) return false;
  std::uint32_t fitting = 0;
  const auto gpus = cluster.gpus(node);
  for (GpuIndex gpu = 0; gpu < gpus.size(); ++gpu) {
    if (model_matches(shape, gpus[gpu]) && may_have(shape, gpu) &&
        portion_of(shape.what, gpus[gpu].memory, units_of(host))) {
      ++fitting;
    }
  }
  return fitting >= shape.count;
}

}  // namespace

bool find_candidates(const Cluster& cluster, const Shape& shape, NodeIndex node, Candidates& out) {
  out.node = node;
  out.gpus.clear();
  const NodeState& state = cluster.state(node);
  if (shape.memory > state.memory_free || surely_unfit(room_on(state), shape)) return false;
  if (shape.kind == Shape::Kind::no_gpu) return true;

  const auto gpus = cluster.gpus(node);
  const GpuUnits& units = cluster.state(node).units;
  for (GpuIndex gpu = 0; gpu < gpus.size(); ++gpu) {
    const GpuState& device = gpus[gpu];
    if (device.whole || !device.usable || !model_matches(shape, device) || !may_have(shape, gpu)) {
      continue;
    }
    if (shape.kind == Shape::Kind::whole) {
      if (device.free()) out.gpus.push_back(gpu);
      continue;
    }
    const auto portion = portion_of(shape.what, device.memory, units);
    if (portion && portion->compute <= device.compute_free &&
        portion->memory <= device.memory_available()) {
      out.gpus.push_back(gpu);
    }
  }
  return out.gpus.size() >= shape.count;
}

Refusal explain_refusal(const Cluster& cluster, const Shape& shape) {
  Refusal refusal;
  for (NodeIndex node = 0; node < cluster.size(); ++node) {
    const NodeState& state = cluster.state(node);
    NodeRefusal lack{.node = node, .curable = fits_when_empty(cluster, shape, node)};
    if (shape.cpus > state.cpus_free) lack.cpus_missing = shape.cpus - state.cpus_free;
    if (shape.memory > state.memory_free) lack.memory_missing = shape.memory - state.memory_free;
    if (shape.kind != Shape::Kind::no_gpu) {
      for (GpuIndex gpu = 0; gpu < cluster.gpus(node).size(); ++gpu) {
        lack.gpus.push_back(lack_of(cluster, shape, node, gpu));
        if (lack.gpus.back().lack == Lack::nothing) ++lack.gpus_fitting;
      }
    }
    refusal.curable = refusal.curable || lack.curable;
    refusal.nodes.push_back(std::move(lack));
  }
  return refusal;
}

bool ever_fits(const Cluster& cluster, const Shape& shape) {
  for (NodeIndex node = 0; node < cluster.size(); ++node) {
    if (fits_when_empty(cluster, shape, node)) return true;
  }
  return false;
}

std::optional<Placement> place_by_scan(const Cluster& cluster, const Shape& shape, Policy& policy) {
  policy.prepare(cluster);
  Candidates fit;
  std::optional<NodeIndex> best;
  float best_score = -std::numeric_limits<float>::infinity();
  for (NodeIndex node = 0; node < cluster.size(); ++node) {
    if (!find_candidates(cluster, shape, node, fit)) continue;
    const auto score = static_cast<float>(policy.score(cluster, shape, fit));
    if (!best || score > best_score) {
      best = node;
      best_score = score;
    }
  }
  if (!best) return std::nullopt;
  find_candidates(cluster, shape, *best, fit);
  return use_of(cluster, shape, *best, policy.choose(cluster, shape, fit));
}

Use use_of(const Cluster& cluster, const Shape& shape, NodeIndex node,
           std::span<const GpuIndex> gpus) {
  Use use{node, shape.cpus, shape.memory, {}};
  const Node& host = cluster.node(node);
  for (const GpuIndex gpu : gpus) {
    const auto portion = portion_on(shape.what, host, host.gpus[gpu]);
    if (!portion) std::abort();  // candidates always have one
    use.gpus.push_back({gpu, *portion, shape.kind == Shape::Kind::whole});
  }
  std::ranges::sort(use.gpus, {}, &GpuUse::gpu);
  return use;
}

}  // namespace aliquot::core
