#include <algorithm>

#include "core/policy/all.hpp"

namespace aliquot::core {
namespace {

// The GPU that is really least busy by its last sample. A sample knows nothing of the jobs started
// since, so what is granted counts as used at once: otherwise a burst would land on one GPU. A
// stale sample reads as busy.
class LeastUtilised final : public Policy {
 public:
  [[nodiscard]] std::string_view name() const override { return "least-utilised"; }

  double score(const Cluster& cluster, const Shape& shape, const Candidates& fit) override {
    double load = 0;
    for (const GpuIndex gpu : choose(cluster, shape, fit)) load += load_of(cluster, fit.node, gpu);
    return -load - static_cast<double>(cluster.state(fit.node).jobs) / kJobsPerNode;
  }

  std::vector<GpuIndex> choose(const Cluster& cluster, const Shape& shape,
                               const Candidates& fit) override {
    std::vector<GpuIndex> order = fit.gpus;
    std::ranges::stable_sort(order, {},
                             [&](GpuIndex gpu) { return load_of(cluster, fit.node, gpu); });
    order.resize(shape.count);
    return order;
  }

 private:
  // Below one job on the GPU: decides only between GPUs alike.
  static constexpr double kJobsPerNode = 65'536'000;

  static double load_of(const Cluster& cluster, NodeIndex node, GpuIndex gpu) {
    const GpuState& state = cluster.gpus(node)[gpu];
    const Compute granted = cluster.node(node).compute_limit - state.compute_free;
    // Whole basis points first, then the number of jobs.
    return static_cast<double>(std::max(state.utilisation, granted).value()) +
           static_cast<double>(std::min(state.jobs, 999U)) / 1'000;
  }
};

}  // namespace

std::unique_ptr<Policy> make_least_utilised() { return std::make_unique<LeastUtilised>(); }

}  // namespace aliquot::core
