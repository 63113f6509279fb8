// Whether GPUs are fit for jobs, as NVML tells: by the errors that the driver reports (Xids), and
// by what a GPU says of its memory. What the driver has reported of a GPU holds until the GPU has
// been lost and is back, which is a reset, or until we are started anew: to be reset a GPU must be
// left by everybody, also by us.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>

#include "gpu/nvml_abi.hpp"
#include "gpu/nvml_library.hpp"

namespace aliquot::gpu {

class NvmlHealth {
 public:
  explicit NvmlHealth(const NvmlLibrary& library);
  NvmlHealth(const NvmlHealth&) = delete;
  NvmlHealth& operator=(const NvmlHealth&) = delete;
  ~NvmlHealth();

  // From now on. Once for each is enough.
  void watch(std::int64_t index, nvml::Device gpu);
  // Takes what the driver has reported since the last time; never waits.
  void collect();

  // What is wrong with a GPU that answers (trouble.hpp), with one that is lost, and with one of
  // which the driver says nothing of use.
  std::string look(std::int64_t index, nvml::Device gpu);
  std::string lost(std::int64_t index, std::string_view how);

 private:
  const NvmlLibrary& library_;
  nvml::EventSet events_ = nullptr;
  std::map<nvml::Device, std::int64_t> watched_;
  std::map<std::int64_t, std::string> reported_;  // by index
  std::set<std::int64_t> lost_;
};

}  // namespace aliquot::gpu
