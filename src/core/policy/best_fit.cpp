#include <cmath>

#include "core/policy/all.hpp"
#include "core/policy/published.hpp"

namespace aliquot::core {
namespace {

// The node that is left with the least CPU and GPU, each weighing one half.
class BestFit final : public Policy {
 public:
  [[nodiscard]] std::string_view name() const override { return "best-fit"; }

  double score(const Cluster& cluster, const Shape& shape, const Candidates& fit) override {
    using namespace published;
    const auto cpu_left =
        static_cast<double>((cluster.state(fit.node).cpus_free - shape.cpus).value());
    const auto gpu_left = static_cast<double>(
        gpu_milli_free(cluster, fit.node) -
        gpu_milli_asked(cluster, shape, fit.node, fit.gpus.empty() ? 0 : fit.gpus.front()));
    return std::trunc(100 * (1 - 0.5 * cpu_left / kNodeCpuMilli - 0.5 * gpu_left / kNodeGpuMilli));
  }
};

}  // namespace

std::unique_ptr<Policy> make_best_fit() { return std::make_unique<BestFit>(); }

}  // namespace aliquot::core
