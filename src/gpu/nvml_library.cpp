#include "gpu/nvml_library.hpp"

#include <dlfcn.h>

namespace aliquot::gpu {
namespace {

template <class Function>
bool find_symbol(void* library, const char* name, Function* out) {
  void* symbol = dlsym(library, name);
  if (symbol == nullptr) return false;
  *out = reinterpret_cast<Function>(symbol);
  return true;
}

}  // namespace

Result<NvmlLibrary> NvmlLibrary::load(const std::string& path) {
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* why = dlerror();
    return fail(Error::Code::unsupported, "NVML cannot be loaded: {}",
                why == nullptr ? path.c_str() : why);
  }
  NvmlLibrary nvml;
  const char* missing = nullptr;
  const auto need = [&](const char* symbol, auto* out) {
    if (!find_symbol(library, symbol, out) && missing == nullptr) missing = symbol;
  };
  need("nvmlInit_v2", &nvml.init);
  need("nvmlShutdown", &nvml.shutdown);
  need("nvmlErrorString", &nvml.error_string);
  need("nvmlSystemGetDriverVersion", &nvml.driver_version);
  need("nvmlDeviceGetCount_v2", &nvml.count);
  need("nvmlDeviceGetHandleByIndex_v2", &nvml.handle);
  need("nvmlDeviceGetUUID", &nvml.uuid);
  need("nvmlDeviceGetName", &nvml.name);
  need("nvmlDeviceGetPciInfo_v3", &nvml.pci);
  need("nvmlDeviceGetMinorNumber", &nvml.minor);
  need("nvmlDeviceGetMemoryInfo", &nvml.memory);
  need("nvmlDeviceGetUtilizationRates", &nvml.utilization);
  if (missing != nullptr) {
    return fail(Error::Code::unsupported, "NVML in {} has no {}: the driver is older than 450",
                path, missing);
  }
  find_symbol(library, "nvmlDeviceGetMemoryInfo_v2", &nvml.memory_v2);
  if (!find_symbol(library, "nvmlDeviceGetComputeRunningProcesses_v3", &nvml.compute_processes)) {
    find_symbol(library, "nvmlDeviceGetComputeRunningProcesses_v2", &nvml.compute_processes);
  }
  if (!find_symbol(library, "nvmlDeviceGetMPSComputeRunningProcesses_v3", &nvml.mps_processes)) {
    find_symbol(library, "nvmlDeviceGetMPSComputeRunningProcesses_v2", &nvml.mps_processes);
  }
  if (!find_symbol(library, "nvmlDeviceGetMigMode", &nvml.mig_mode) ||
      !find_symbol(library, "nvmlDeviceGetMaxMigDeviceCount", &nvml.most_slices) ||
      !find_symbol(library, "nvmlDeviceGetMigDeviceHandleByIndex", &nvml.slice_handle)) {
    nvml.mig_mode = nullptr;
  }
  find_symbol(library, "nvmlDeviceGetCudaComputeCapability", &nvml.capability);
  if (!find_symbol(library, "nvmlDeviceGetHandleByUUID", &nvml.by_uuid) ||
      !find_symbol(library, "nvmlDeviceGetComputeMode", &nvml.mode) ||
      !find_symbol(library, "nvmlDeviceSetComputeMode", &nvml.set_mode)) {
    nvml.by_uuid = nullptr;
  }
  if (!find_symbol(library, "nvmlEventSetCreate", &nvml.create_events) ||
      !find_symbol(library, "nvmlEventSetFree", &nvml.free_events) ||
      !find_symbol(library, "nvmlDeviceRegisterEvents", &nvml.register_events) ||
      !find_symbol(library, "nvmlEventSetWait_v2", &nvml.next_event)) {
    nvml.create_events = nullptr;
  }
  find_symbol(library, "nvmlDeviceGetTotalEccErrors", &nvml.ecc_errors);
  find_symbol(library, "nvmlDeviceGetRemappedRows", &nvml.remapped_rows);
  find_symbol(library, "nvmlDeviceGetPowerUsage", &nvml.power);
  find_symbol(library, "nvmlDeviceGetTemperature", &nvml.temperature);
  find_symbol(library, "nvmlDeviceGetTotalEnergyConsumption", &nvml.energy);
  return nvml;
}

}  // namespace aliquot::gpu
