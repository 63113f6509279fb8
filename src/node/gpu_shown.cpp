#include "node/gpu_shown.hpp"

namespace aliquot::node {

void show_sample(const gpu::Sample& sample, api::GpuInfo& gpu) {
  gpu.memory_used = sample.memory_used.value();
  gpu.utilisation = sample.utilisation.value();
  gpu.power_mw = sample.power_mw;
  gpu.temperature = sample.temperature;
  gpu.energy_mj = sample.energy_mj;
}

api::GpuUse shown_use(const ShareUse& use, std::int64_t job) {
  api::GpuUse shown{.job_id = job,
                    .memory = use.memory.value(),
                    .memory_peak = use.memory_peak.value(),
                    .waited_ms = use.waited.value(),
                    .refusals = use.refusals};
  if (use.utilisation) shown.utilisation = use.utilisation->value();
  if (use.gpu_time) shown.gpu_ms = use.gpu_time->value();
  return shown;
}

}  // namespace aliquot::node
