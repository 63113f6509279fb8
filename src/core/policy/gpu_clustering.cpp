#include <algorithm>
#include <numeric>

#include "core/policy/all.hpp"
#include "core/policy/published.hpp"

namespace aliquot::core {
namespace {

// Jobs of one size together: shares with shares, pairs of GPUs with pairs.
class GpuClustering final : public Policy {
 public:
  [[nodiscard]] std::string_view name() const override { return "gpu-clustering"; }

  double score(const Cluster& cluster, const Shape& shape, const Candidates& fit) override {
    using namespace published;
    if (shape.kind == Shape::Kind::no_gpu) return 0;
    const auto& counts = cluster.state(fit.node).jobs_by_gpus;
    const std::size_t kind =
        shape.kind == Shape::Kind::share
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
};

}  // namespace

std::unique_ptr<Policy> make_gpu_clustering() { return std::make_unique<GpuClustering>(); }

}  // namespace aliquot::core
