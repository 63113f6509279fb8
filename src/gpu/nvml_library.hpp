// NVML's functions, found at run time. The library is never unloaded again: the driver keeps
// threads and state of its own in it.
#pragma once

#include <string>

#include "base/result.hpp"
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

  // Errors that the driver reports: all of them or none.
  nvml::Return (*create_events)(nvml::EventSet*) = nullptr;
  nvml::Return (*free_events)(nvml::EventSet) = nullptr;
  nvml::Return (*register_events)(nvml::Device, unsigned long long, nvml::EventSet) = nullptr;
  nvml::Return (*next_event)(nvml::EventSet, nvml::Event*, unsigned) = nullptr;  // since 450
  nvml::Return (*ecc_errors)(nvml::Device, int, int, unsigned long long*) = nullptr;
  nvml::Return (*remapped_rows)(nvml::Device, unsigned*, unsigned*, unsigned*, unsigned*) = nullptr;

  // What a GPU draws and how warm it is, each by itself.
  nvml::Return (*power)(nvml::Device, unsigned*) = nullptr;             // milliwatts
  nvml::Return (*temperature)(nvml::Device, int, unsigned*) = nullptr;  // of a sensor
  nvml::Return (*energy)(nvml::Device, unsigned long long*) = nullptr;  // millijoules

  // path as dlopen takes it.
  static Result<NvmlLibrary> load(const std::string& path);
};

}  // namespace aliquot::gpu
