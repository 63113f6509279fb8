#include "core/request.hpp"

#include <algorithm>

namespace aliquot::core {
namespace {

std::optional<Portion> amounts_on(const Amounts& amounts, const Gpu& gpu) {
  const Compute compute = [&] {
    if (amounts.compute) return *amounts.compute;
    if (gpu.memory <= Bytes(0)) return kWholeGpu;
    // At least one unit: a share of compute zero would never run.
    return std::max(Compute(1), scale_down(kWholeGpu, std::min(*amounts.memory, gpu.memory).value(),
                                           gpu.memory.value()));
  }();
  if (compute > kWholeGpu) return std::nullopt;
  const Bytes memory =
      amounts.memory ? *amounts.memory : scale_down(gpu.memory, compute.value(), kWholeGpu.value());
  if (memory > gpu.memory) return std::nullopt;
  return Portion{memory, compute};
}

}  // namespace

std::optional<Portion> portion_on(const std::variant<WholeGpu, Amounts, Tickets>& what,
                                  const Node& node, const Gpu& gpu) {
  if (const auto* amounts = std::get_if<Amounts>(&what)) return amounts_on(*amounts, gpu);
  if (const auto* tickets = std::get_if<Tickets>(&what)) {
    const std::int64_t per_gpu =
        tickets->kind == Tickets::Kind::mps ? node.mps_per_gpu : node.shards_per_gpu;
    if (tickets->count > per_gpu) return std::nullopt;
    return Portion{scale_down(gpu.memory, tickets->count, per_gpu),
                   std::max(Compute(1), scale_down(kWholeGpu, tickets->count, per_gpu))};
  }
  return Portion{gpu.memory, node.compute_limit};
}

}  // namespace aliquot::core
