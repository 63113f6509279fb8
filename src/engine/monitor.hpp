// What the GPUs are doing and whose processes those are. A process belongs to a job when it carries
// that job's mark in the environment it was started with; everything else on a GPU is foreign.
#pragma once

#include <vector>

#include "base/result.hpp"
#include "engine/engine.hpp"
#include "gpu/devices.hpp"

namespace aliquot::engine {

// Asks the driver and reads /proc: on a worker.
Result<std::vector<GpuView>> look_at_gpus(gpu::Devices& devices,
                                          const std::vector<Engine::RunningJob>& running);

}  // namespace aliquot::engine
