// Remembers which GPUs are not fit for jobs, says so in the log when that changes, and tells the
// jobs that hold such a GPU, on the standard error of their first process. It takes no GPU out of
// use: that is the engine's to do, each in its own way. One thread at a time.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "base/ids.hpp"
#include "node/enforcer.hpp"
#include "node/monitor.hpp"

namespace aliquot::node {

class GpuFaults {
 public:
  // What was just seen, and the jobs that run with the GPUs they hold. Returns what there is to say
  // of jobs, once for each job and GPU.
  std::vector<Escape> look(const std::vector<GpuView>& views,
                           const std::vector<RunningJob>& running, const JobMembers& members);

 private:
  std::map<GpuId, std::string> troubles_;
  std::map<GpuId, std::vector<HolderId>> told_;
};

}  // namespace aliquot::node
