// GPUs as NVML shows them. The library is never unloaded again: the driver keeps threads and state
// of its own in it.
#pragma once

#include <functional>

#include "gpu/devices.hpp"
#include "gpu/nvml_abi.hpp"

namespace aliquot::gpu {

// The functions, as found in the library. Those behind a comment may be missing: null.
struct NvmlLibrary {
  using GetProcesses = nvml::Return (*)(nvml::Device, unsigned*, nvml::ProcessInfo*);

  nvml::Return (*init)() = nullptr;
  nvml::Return (*shutdown)() = nullptr;
  const char* (*error_string)(nvml::Return) = nullptr;
  nvml::Return (*driver_version)(char*, unsigned) = nullptr;
  nvml::Return (*count)(unsigned*) = nullptr;
  nvml::Return (*handle)(unsigned, nvml::Device*) = nullptr;
  nvml::Return (*uuid)(nvml::Device, char*, unsigned) = nullptr;
  nvml::Return (*name)(nvml::Device, char*, unsigned) = nullptr;
  nvml::Return (*pci)(nvml::Device, nvml::PciInfo*) = nullptr;
  nvml::Return (*minor)(nvml::Device, unsigned*) = nullptr;
  nvml::Return (*memory)(nvml::Device, nvml::Memory*) = nullptr;
  nvml::Return (*utilization)(nvml::Device, nvml::Utilization*) = nullptr;
  nvml::Return (*memory_v2)(nvml::Device, nvml::MemoryV2*) = nullptr;  // since driver 510
  GetProcesses compute_processes = nullptr;                            // since 450
  GetProcesses mps_processes = nullptr;                                // since 470
  // MIG; since 450, all of them or none.
  nvml::Return (*mig_mode)(nvml::Device, unsigned*, unsigned*) = nullptr;
  nvml::Return (*most_slices)(nvml::Device, unsigned*) = nullptr;
  nvml::Return (*slice_handle)(nvml::Device, unsigned, nvml::Device*) = nullptr;
  nvml::Return (*capability)(nvml::Device, int*, int*) = nullptr;
  // Compute modes: all of them or none.
  nvml::Return (*by_uuid)(const char*, nvml::Device*) = nullptr;
  nvml::Return (*mode)(nvml::Device, int*) = nullptr;
  nvml::Return (*set_mode)(nvml::Device, int) = nullptr;

  // path as dlopen takes it.
  static Result<NvmlLibrary> load(const std::string& path);
};

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
  Result<std::optional<Sample>> sample_one(const Device& device) const;
  [[nodiscard]] tl::unexpected<Error> error(std::string_view what, nvml::Return code) const;

  NvmlLibrary library_;
  bool simulated_;
  std::string driver_version_;
  std::vector<Device> known_;  // a GPU that falls off the bus can no longer say who it was
};

}  // namespace aliquot::gpu
