#include <cmath>

#include "core/policy/all.hpp"
#include "core/policy/published.hpp"

namespace aliquot::core {
namespace {

// The node whose free amounts are least in line with what is asked.
class DotProduct final : public Policy {
 public:
  [[nodiscard]] std::string_view name() const override { return "dot-product"; }

  double score(const Cluster& cluster, const Shape& shape, const Candidates& fit) override {
    using namespace published;
    const auto part = [](std::int64_t amount, double whole) {
      return static_cast<double>(amount) / whole;
    };
    const double cpu = part(cluster.state(fit.node).cpus_free.value(), kNodeCpuMilli) *
                       part(shape.cpus.value(), kNodeCpuMilli);
    const std::int64_t asked =
        gpu_milli_asked(cluster, shape, fit.node, fit.gpus.empty() ? 0 : fit.gpus.front());
    const double gpu =
        part(gpu_milli_free(cluster, fit.node), kNodeGpuMilli) * part(asked, kNodeGpuMilli);
    return std::trunc(100 * (1 - (cpu + gpu) / 2));
  }
};

}  // namespace

std::unique_ptr<Policy> make_dot_product() { return std::make_unique<DotProduct>(); }

}  // namespace aliquot::core
