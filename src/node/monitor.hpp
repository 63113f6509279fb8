// What the GPUs are doing and whose processes those are. A process belongs to a job when it carries
// that job's mark in the environment it was started with and is its user's, when it is in the job's
// control group, or when one of its ancestors does. Our own MPS servers are left out; everything
// else on a GPU is foreign.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "api/types.hpp"
#include "base/ids.hpp"
#include "base/result.hpp"
#include "gpu/devices.hpp"
#include "node/cgroup.hpp"

namespace aliquot::node {

struct RunningJob {
  JobId id;
  Uid uid;
  std::string mark;  // in the environment of its processes
  std::int64_t attempt = 0;
};

// What was seen of one GPU.
struct GpuView {
  gpu::Sample sample;
  std::vector<api::GpuProcess> processes;
};

// The job in whose control group a process is.
using FencedJob = std::function<std::optional<JobId>(Pid)>;
// By the groups we made for these jobs, read once, when it is first asked.
FencedJob fenced_by(Cgroups& cgroups, const std::vector<RunningJob>& running);

// Asks the driver and reads /proc: on a worker.
Result<std::vector<GpuView>> look_at_gpus(gpu::Devices& devices,
                                          const std::vector<RunningJob>& running,
                                          const FencedJob& fenced);

}  // namespace aliquot::node
