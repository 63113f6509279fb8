// Which GPUs take jobs: those that are well, and that no administrator has taken out of service.
// What was drained by hand stays so over a restart; what broke comes back by itself when it is
// well.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/state.hpp"

namespace aliquot::engine {

class GpuService {
 public:
  explicit GpuService(State& state) : state_(state) {}

  Result<void> read();  // from the record
  // By index, as nvidia-smi counts; which they are in the cluster, or why not.
  Answer<std::vector<core::GpuIndex>> drain(const Caller& caller, const api::DrainSpec& spec);
  Answer<void> resume(const Caller& caller, const std::vector<std::int64_t>& gpus);
  // What the monitor saw; `trouble` in words.
  void saw(core::GpuIndex gpu, core::Health health, const std::string& trouble);

 private:
  Answer<std::vector<core::GpuIndex>> find(const std::vector<std::int64_t>& gpus) const;
  void apply(core::GpuIndex gpu);
  void save();

  State& state_;
};

}  // namespace aliquot::engine
