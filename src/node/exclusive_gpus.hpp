// GPUs that only an MPS server of ours may use (EXCLUSIVE_PROCESS), so that in fault domain `gpu`
// nothing goes past the server: a process outside of it gets no context. A GPU is made so for its
// first share, and is as before when the last server on it has gone, also after a crash of the
// daemon: which ones are ours is noted in files.
//
// Where that is not possible (not root, a process on the GPU, a mode of the administrator's own)
// the GPU stays as it is. For one thread at a time.
#pragma once

#include <filesystem>
#include <set>

#include "base/ids.hpp"
#include "base/result.hpp"
#include "gpu/devices.hpp"

namespace aliquot::node {

class ExclusiveGpus {
 public:
  // notes: a folder of ours, which is made. What an earlier daemon noted is taken up.
  static Result<ExclusiveGpus> create(gpu::Devices& devices, std::filesystem::path notes);

  // Whether the GPU is for our server alone now.
  bool make(const GpuId& gpu);
  // As before; nothing where we did not make it so.
  void restore(const GpuId& gpu);
  // All but these.
  void restore_others(const std::set<GpuId>& served);
  [[nodiscard]] bool contains(const GpuId& gpu) const { return made_.contains(gpu); }

 private:
  ExclusiveGpus(gpu::Devices& devices, std::filesystem::path notes)
      : devices_(&devices), notes_(std::move(notes)) {}

  gpu::Devices* devices_;
  std::filesystem::path notes_;
  std::set<GpuId> made_;
  std::set<GpuId> complained_;  // that they cannot be put back: said once
};

}  // namespace aliquot::node
