#include "core/policy/published.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/policy/makers.hpp"

namespace aliquot::core {
namespace published {
namespace {

// The node that is left with the least CPU and GPU, each weighing one half.
double best_fit(const Cluster& cluster, const Shape& shape, const Candidates& fit) {
  const auto cpu_left =
      static_cast<double>((cluster.state(fit.node).cpus_free - shape.cpus).value());
  const auto gpu_left =
      static_cast<double>(gpu_milli_free(cluster, fit.node) - gpu_milli_asked(cluster, shape, fit));
  return std::trunc(100 * (1 - 0.5 * cpu_left / kNodeCpuMilli - 0.5 * gpu_left / kNodeGpuMilli));
}

// The node whose free amounts are least in line with what is asked.
double dot_product(const Cluster& cluster, const Shape& shape, const Candidates& fit) {
  const auto part = [](std::int64_t amount, double whole) {
    return static_cast<double>(amount) / whole;
  };
  const double cpu = part(cluster.state(fit.node).cpus_free.value(), kNodeCpuMilli) *
                     part(shape.cpus.value(), kNodeCpuMilli);
  const double gpu = part(gpu_milli_free(cluster, fit.node), kNodeGpuMilli) *
                     part(gpu_milli_asked(cluster, shape, fit), kNodeGpuMilli);
  return std::trunc(100 * (1 - (cpu + gpu) / 2));
}

// Jobs of one size together: shares with shares, pairs of GPUs with pairs.
double gpu_clustering(const Cluster& cluster, const Shape& shape, const Candidates& fit) {
  if (shape.kind == Shape::Kind::no_gpu) return 0;
  const auto& counts = cluster.state(fit.node).jobs_by_gpus;
  const std::size_t kind = shape.kind == Shape::Kind::share
                               ? 0
                               : std::min(static_cast<std::size_t>(shape.count), counts.size() - 1);
  const unsigned all = std::accumulate(counts.begin(), counts.end(), 0U);
  const unsigned same = counts[kind];
  constexpr auto kFull = static_cast<std::int64_t>(kNodeGpuMilli);
  const std::int64_t fullness = 25 * (kFull - gpu_milli_free(cluster, fit.node)) / kFull;
  const auto score = [&](int base) { return static_cast<double>(base + fullness); };
  if (all == 0) return score(25);
  if (same == 0) return score(0);
  return score(same == all ? 75 : 50);
}

// Used GPUs before free GPUs of used nodes before free nodes.
double gpu_packing(const Cluster& cluster, const Shape& shape, const Candidates& fit) {
  constexpr std::int64_t kFreeNode = 33;
  constexpr std::int64_t kFreeGpu = 50;
  constexpr std::int64_t kUsedGpu = 100;
  if (shape.kind == Shape::Kind::no_gpu) return 0;
  const auto gpus = cluster.gpus(fit.node);
  const auto all = static_cast<std::int64_t>(gpus.size());
  const auto untouched = [](const GpuState& gpu) { return gpu.jobs == 0; };
  if (std::ranges::all_of(gpus, untouched)) {
    return static_cast<double>(std::max(kFreeNode - all, all));
  }
  std::int64_t opened = 0;
  std::int64_t left_percent = 0;
  for (const GpuIndex gpu : tightest(cluster, shape, fit)) {
    if (untouched(gpus[gpu])) ++opened;
    left_percent += milli(gpus[gpu].compute_free) / 10;
  }
  if (opened > 0) return static_cast<double>(std::max(kFreeGpu - opened, kFreeNode));
  return static_cast<double>(std::max(kUsedGpu - left_percent / 10, kFreeGpu));
}

// A policy that is a formula for nodes; of the GPUs it takes the tightest fit.
class Formula final : public Policy {
 public:
  using Score = double (*)(const Cluster&, const Shape&, const Candidates&);
  Formula(std::string_view name, Score formula) : Policy(name), formula_(formula) {}

  double score(const Cluster& cluster, const Shape& shape, const Candidates& fit) override {
    return formula_(cluster, shape, fit);
  }

 private:
  Score formula_;
};

}  // namespace
}  // namespace published

std::unique_ptr<Policy> make_best_fit(const Profile&) {
  return std::make_unique<published::Formula>("best-fit", published::best_fit);
}
std::unique_ptr<Policy> make_dot_product(const Profile&) {
  return std::make_unique<published::Formula>("dot-product", published::dot_product);
}
std::unique_ptr<Policy> make_gpu_clustering(const Profile&) {
  return std::make_unique<published::Formula>("gpu-clustering", published::gpu_clustering);
}
std::unique_ptr<Policy> make_gpu_packing(const Profile&) {
  return std::make_unique<published::Formula>("gpu-packing", published::gpu_packing);
}

}  // namespace aliquot::core
