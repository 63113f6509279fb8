#include <algorithm>

#include "core/policy/makers.hpp"

namespace aliquot::core {
namespace {

double jobs_on(const Node&, const GpuState& gpu) { return gpu.jobs; }

// What the last sample says. A sample knows nothing of the jobs started since, so what is granted
// counts as used at once: otherwise a burst would land on one GPU. A stale sample reads as busy.
double use_on(const Node& node, const GpuState& gpu) {
  const Compute granted = node.compute_limit - gpu.compute_free;
  // Whole basis points first, then the number of jobs.
  return static_cast<double>(std::max(gpu.utilisation, granted).value()) +
         static_cast<double>(std::min(gpu.jobs, 999U)) / 1'000;
}

// The GPU with the least load, and among equals the node with the fewest jobs: a burst spreads
// evenly.
class Least final : public Policy {
 public:
  using Load = double (*)(const Node&, const GpuState&);
  // A job on the node counts 1/jobs_per_node: less than any difference between the GPUs.
  Least(std::string_view name, Load load, double jobs_per_node)
      : Policy(name), load_(load), jobs_per_node_(jobs_per_node) {}

  double score(const Cluster& cluster, const Shape& shape, const Candidates& fit) override {
    double load = 0;
    for (const GpuIndex gpu : choose(cluster, shape, fit)) load += load_of(cluster, fit.node, gpu);
    return -load - static_cast<double>(cluster.state(fit.node).jobs) / jobs_per_node_;
  }

  std::vector<GpuIndex> choose(const Cluster& cluster, const Shape& shape,
                               const Candidates& fit) override {
    return take_least(fit, shape.count,
                      [&](GpuIndex gpu) { return load_of(cluster, fit.node, gpu); });
  }

 private:
  [[nodiscard]] double load_of(const Cluster& cluster, NodeIndex node, GpuIndex gpu) const {
    return load_(cluster.node(node), cluster.gpus(node)[gpu]);
  }

  Load load_;
  double jobs_per_node_;
};

}  // namespace

std::unique_ptr<Policy> make_least_occupied(const Profile&) {
  return std::make_unique<Least>("least-occupied", jobs_on, 65'536);
}
std::unique_ptr<Policy> make_least_utilised(const Profile&) {
  return std::make_unique<Least>("least-utilised", use_on, 65'536'000);
}

}  // namespace aliquot::core
