#include <algorithm>

#include "core/policy/all.hpp"

namespace aliquot::core {
namespace {

// The GPU with the fewest jobs, and among equals the node with the fewest: a burst spreads evenly.
class LeastOccupied final : public Policy {
 public:
  [[nodiscard]] std::string_view name() const override { return "least-occupied"; }

  double score(const Cluster& cluster, const Shape& shape, const Candidates& fit) override {
    double jobs = 0;
    for (const GpuIndex gpu : choose(cluster, shape, fit)) jobs += cluster.gpus(fit.node)[gpu].jobs;
    return -jobs - static_cast<double>(cluster.state(fit.node).jobs) / kJobsPerNode;
  }

  std::vector<GpuIndex> choose(const Cluster& cluster, const Shape& shape,
                               const Candidates& fit) override {
    const auto gpus = cluster.gpus(fit.node);
    std::vector<GpuIndex> order = fit.gpus;
    std::ranges::stable_sort(order, {}, [&](GpuIndex gpu) { return gpus[gpu].jobs; });
    order.resize(shape.count);
    return order;
  }

 private:
  static constexpr double kJobsPerNode = 65'536;
};

}  // namespace

std::unique_ptr<Policy> make_least_occupied() { return std::make_unique<LeastOccupied>(); }

}  // namespace aliquot::core
