// What the GPUs are doing and whose processes those are. A process belongs to a job when it carries
// that job's mark in the environment it was started with and is its user's, when it is in the job's
// control group, or when one of its ancestors does. Our own MPS servers are left out; everything
// else on a GPU is foreign.
#pragma once

#include <vector>

#include "base/result.hpp"
#include "engine/engine.hpp"
#include "gpu/devices.hpp"
#include "node/cgroup.hpp"

namespace aliquot::engine {

// Asks the driver and reads /proc: on a worker.
Result<std::vector<GpuView>> look_at_gpus(gpu::Devices& devices,
                                          const std::vector<Engine::RunningJob>& running,
                                          node::Cgroups& cgroups);

}  // namespace aliquot::engine
