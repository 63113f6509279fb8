// GPUs as NVML shows them.
#pragma once

#include <map>
#include <optional>

#include "gpu/devices.hpp"
#include "gpu/nvml_abi.hpp"
#include "gpu/nvml_health.hpp"
#include "gpu/nvml_library.hpp"

namespace aliquot::gpu {

class NvmlDevices final : public Devices {
 public:
  static Result<std::unique_ptr<Devices>> create(const NvmlLibrary& library, bool simulated);
  ~NvmlDevices() override;

  Result<std::vector<Device>> list() override;
  Result<std::vector<Sample>> sample() override;
  Result<void> set_exclusive(const GpuId& gpu, bool on) override;
  [[nodiscard]] std::string driver_version() const override { return driver_version_; }
  [[nodiscard]] bool simulated() const override { return simulated_; }
  [[nodiscard]] std::string description() const override;

 private:
  NvmlDevices(const NvmlLibrary& library, bool simulated)
      : library_(library), simulated_(simulated) {}

  struct Amounts {
    Bytes total;
    Bytes used;
  };

  Result<void> discover();
  // What can be granted of a GPU: itself, or its slices where it is in MIG mode. Nothing: it is
  // lost.
  Result<std::optional<std::vector<Device>>> describe(unsigned index);
  Result<std::optional<Device>> describe_slice(const Device& parent, nvml::Device gpu,
                                               unsigned slice) const;
  [[nodiscard]] bool is_sliced(nvml::Device gpu) const;
  Result<Amounts> amounts(nvml::Device device) const;
  Result<std::vector<Process>> processes(nvml::Device device) const;
  Result<nvml::Device> find(const GpuId& gpu) const;
  Result<int> mode_of(nvml::Device device, const GpuId& gpu) const;
  Result<std::optional<Sample>> sample_one(const Device& device);
  Result<Sample> sample_or_lost(const Device& device);
  void add_warmth(nvml::Device gpu, Sample& sample) const;
  [[nodiscard]] tl::unexpected<Error> error(std::string_view what, nvml::Return code) const;

  NvmlLibrary library_;
  bool simulated_;
  std::string driver_version_;
  std::optional<NvmlHealth> health_;
  std::map<GpuId, int> failures_;  // in a row, to sample it
  std::vector<Device> known_;      // a GPU that falls off the bus can no longer say who it was
};

}  // namespace aliquot::gpu
