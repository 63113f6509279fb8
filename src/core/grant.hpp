// What somebody holds of a machine's GPUs: made by engines, held to by the node, which knows no
// jobs. node/job_grant makes it from what the API shows of a job; node/grant_folder writes it down
// for the library in the job.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "base/ids.hpp"
#include "core/request.hpp"

namespace aliquot::core {

struct GrantedGpu {
  GpuId gpu;
  Portion portion;
  bool whole = false;  // nobody else is on it
  friend bool operator==(const GrantedGpu&, const GrantedGpu&) = default;
};

struct Grant {
  HolderId holder = {};
  std::int64_t attempt = 0;  // tells a run from the one after a requeue
  Uid owner = {};
  Gid group = {};
  // Its processes may run as anybody: a container's. The owner is then only who counts as one user
  // (of MPS servers, and of time taken without the library), and the files that its processes write
  // are open to whoever gets to see them.
  bool any_user = false;
  std::int64_t processes = 1;  // that are expected on a GPU
  std::vector<GrantedGpu> gpus = {};

  [[nodiscard]] const GrantedGpu* find(const GpuId& gpu) const {
    const auto found = std::ranges::find(gpus, gpu, &GrantedGpu::gpu);
    return found == gpus.end() ? nullptr : &*found;
  }
  friend bool operator==(const Grant&, const Grant&) = default;
};

}  // namespace aliquot::core
