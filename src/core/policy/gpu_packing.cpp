#include <algorithm>

#include "core/policy/all.hpp"
#include "core/policy/published.hpp"

namespace aliquot::core {
namespace {

// Used GPUs before free GPUs of used nodes before free nodes.
class GpuPacking final : public Policy {
 public:
  [[nodiscard]] std::string_view name() const override { return "gpu-packing"; }

  double score(const Cluster& cluster, const Shape& shape, const Candidates& fit) override {
    using namespace published;
    if (shape.kind == Shape::Kind::no_gpu) return 0;
    const auto gpus = cluster.gpus(fit.node);
    const auto all = static_cast<std::int64_t>(gpus.size());
    const auto untouched = [](const GpuState& gpu) { return gpu.jobs == 0; };
    if (std::ranges::all_of(gpus, untouched)) {
      return static_cast<double>(std::max(kFreeNode - all, all));
    }
    std::int64_t opened = 0;
    std::int64_t left_percent = 0;
    for (const GpuIndex gpu : choose(cluster, shape, fit)) {
      if (untouched(gpus[gpu])) ++opened;
      left_percent += milli(gpus[gpu].compute_free) / 10;
    }
    if (opened > 0) return static_cast<double>(std::max(kFreeGpu - opened, kFreeNode));
    return static_cast<double>(std::max(kUsedGpu - left_percent / 10, kFreeGpu));
  }

 private:
  static constexpr std::int64_t kFreeNode = 33;
  static constexpr std::int64_t kFreeGpu = 50;
  static constexpr std::int64_t kUsedGpu = 100;
};

}  // namespace

std::unique_ptr<Policy> make_gpu_packing() { return std::make_unique<GpuPacking>(); }

}  // namespace aliquot::core
