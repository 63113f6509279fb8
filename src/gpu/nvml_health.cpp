#include "gpu/nvml_health.hpp"

#include "gpu/trouble.hpp"

namespace aliquot::gpu {

NvmlHealth::NvmlHealth(const NvmlLibrary& library) : library_(library) {
  if (library_.create_events == nullptr || library_.create_events(&events_) != nvml::kSuccess) {
    events_ = nullptr;
  }
}

NvmlHealth::~NvmlHealth() {
  if (events_ != nullptr) library_.free_events(events_);
}

void NvmlHealth::watch(std::int64_t index, nvml::Device gpu) {
  if (events_ == nullptr || watched_.contains(gpu)) return;
  if (library_.register_events(gpu, nvml::kXidEvent, events_) != nvml::kSuccess) return;
  watched_.emplace(gpu, index);
}

void NvmlHealth::collect() {
  constexpr int kMost = 256;  // a GPU that reports without end is not listened to for ever
  nvml::Event event{};
  for (int i = 0; events_ != nullptr && i < kMost; ++i) {
    if (library_.next_event(events_, &event, 0) != nvml::kSuccess) return;
    const auto gpu = watched_.find(event.device);
    if (gpu == watched_.end() || (event.type & nvml::kXidEvent) == 0) continue;
    // The first is the cause of the others.
    const std::string trouble = xid_trouble(event.data);
    if (!trouble.empty()) reported_.try_emplace(gpu->second, trouble);
  }
}

std::string NvmlHealth::look(std::int64_t index, nvml::Device gpu) {
  if (lost_.erase(index) > 0) reported_.erase(index);
  if (const auto found = reported_.find(index); found != reported_.end()) return found->second;
  unsigned long long errors = 0;
  if (library_.ecc_errors != nullptr &&
      library_.ecc_errors(gpu, nvml::kUncorrected, nvml::kSinceReset, &errors) == nvml::kSuccess &&
      errors > 0) {
    return std::string(kTroubleEcc);
  }
  unsigned corrected = 0;
  unsigned uncorrected = 0;
  unsigned pending = 0;
  unsigned failed = 0;
  if (library_.remapped_rows != nullptr &&
      library_.remapped_rows(gpu, &corrected, &uncorrected, &pending, &failed) == nvml::kSuccess &&
      failed != 0) {
    return std::string(kTroubleRows);
  }
  return "";
}

std::string NvmlHealth::lost(std::int64_t index, std::string_view how) {
  lost_.insert(index);
  const auto found = reported_.find(index);
  return found == reported_.end() ? std::string(how) : found->second;
}

}  // namespace aliquot::gpu
