// What each job does on a GPU that it shares, for the samples: its memory as the driver attributes
// it, and its part of the time as the library in the job has measured it since the last look. A job
// that is alone on a GPU does what the GPU does. Belongs to the thread that looks at the GPUs.
#pragma once

#include <map>
#include <optional>

#include "base/ids.hpp"
#include "base/time.hpp"
#include "node/enforcer.hpp"
#include "node/monitor.hpp"
#include "slurm/samples.hpp"
#include "slurm/slurm_grant.hpp"

namespace aliquot::slurm {

class JobUses {
 public:
  // GPU time that a job has used; nothing: that is not measured.
  using Measure = std::function<std::optional<Millis>(const HolderId&)>;

  // Adds the jobs to a sample that was made of these views. now: when they were seen.
  void add(NodeSample& sample, const NodeGpus& node, const std::vector<node::GpuView>& views,
           const Measure& measure, MonoTime now);

 private:
  struct Seen {
    Millis gpu_time;
    MonoTime when;
    Compute utilisation = Compute(0);
  };
  // Since the last time; the mean over so many GPUs.
  std::optional<Compute> rate(const HolderId& job, const Measure& measure, MonoTime now,
                              std::int64_t gpus);

  std::map<HolderId, Seen> seen_;
};

}  // namespace aliquot::slurm
