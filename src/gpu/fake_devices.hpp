// GPUs for tests: what list() and sample() answer is what the test put there.
#pragma once

#include <set>
#include <utility>

#include "gpu/devices.hpp"

namespace aliquot::gpu {

class FakeDevices final : public Devices {
 public:
  explicit FakeDevices(std::vector<Device> devices) : devices_(std::move(devices)) {
    for (const auto& device : devices_) samples_.push_back({.id = device.gpu.id});
  }

  std::vector<Device>& devices() { return devices_; }
  std::vector<Sample>& samples() { return samples_; }
  // From now on every call fails with this error, until it is taken back.
  void break_with(std::optional<Error> error) { error_ = std::move(error); }

  Result<std::vector<Device>> list() override {
    if (error_) return tl::unexpected<Error>(*error_);
    return devices_;
  }
  Result<std::vector<Sample>> sample() override {
    if (error_) return tl::unexpected<Error>(*error_);
    return samples_;
  }
  std::set<GpuId>& exclusive_gpus() { return exclusive_; }
  Result<void> set_exclusive(const GpuId& gpu, bool on) override {
    if (error_) return tl::unexpected<Error>(*error_);
    if (on) exclusive_.insert(gpu);
    if (!on) exclusive_.erase(gpu);
    return {};
  }
  [[nodiscard]] std::string driver_version() const override { return "0.0"; }
  [[nodiscard]] bool simulated() const override { return false; }
  [[nodiscard]] std::string description() const override { return "fake GPUs"; }

 private:
  std::vector<Device> devices_;
  std::vector<Sample> samples_;
  std::set<GpuId> exclusive_;
  std::optional<Error> error_;
};

// n GPUs "GPU-0", "GPU-1", … of one model.
inline std::vector<Device> fake_gpus(int n, const std::string& model, Bytes memory) {
  std::vector<Device> devices;
  for (int i = 0; i < n; ++i) {
    devices.push_back(
        {.gpu = {.id = GpuId("GPU-" + std::to_string(i)), .model = model, .memory = memory},
         .name = model,
         .index = i,
         .minor = i});
  }
  return devices;
}

}  // namespace aliquot::gpu
