#include "core/request.hpp"

#include <algorithm>

namespace aliquot::core {
namespace {

std::optional<Portion> amounts_of(const Amounts& amounts, Bytes gpu_memory) {
  const Compute compute = [&] {
    if (amounts.compute) return *amounts.compute;
    if (gpu_memory <= Bytes(0)) return kWholeGpu;
    // At least one unit: a share of compute zero would never run.
    return std::max(Compute(1), scale_down(kWholeGpu, std::min(*amounts.memory, gpu_memory).value(),
                                           gpu_memory.value()));
  }();
  if (compute > kWholeGpu) return std::nullopt;
  const Bytes memory =
      amounts.memory ? *amounts.memory : scale_down(gpu_memory, compute.value(), kWholeGpu.value());
  if (memory > gpu_memory) return std::nullopt;
  return Portion{memory, compute};
}

}  // namespace

std::optional<Portion> portion_of(const GpuPart& what, Bytes gpu_memory, const GpuUnits& units) {
  if (const auto* amounts = std::get_if<Amounts>(&what)) return amounts_of(*amounts, gpu_memory);
  if (const auto* tickets = std::get_if<Tickets>(&what)) {
    const std::int64_t per_gpu = tickets_of(units, tickets->kind);
    if (tickets->count > per_gpu) return std::nullopt;
    return Portion{scale_down(gpu_memory, tickets->count, per_gpu),
                   std::max(Compute(1), scale_down(kWholeGpu, tickets->count, per_gpu))};
  }
  return Portion{gpu_memory, units.compute_limit};
}

}  // namespace aliquot::core
