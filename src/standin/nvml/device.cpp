// Devices: finding them, who they are, and what they always are.
#include <unistd.h>

#include <cstdio>
#include <cstring>

#include "standin/nvml/session.hpp"

namespace aliquot::standin {
namespace {

std::string bus_id(unsigned index, const char* format) {
  char text[32];
  std::snprintf(text, sizeof text, "%s:%02X:00.0", format, 0x10 + index);
  return text;
}

// Answers from the model table, for a device that is there.
template <class F>
nvmlReturn with_model(nvmlDevice device, F answer) {
  unsigned gpu = 0;
  if (const nvmlReturn r = nvml_gpu(device, &gpu); r != kNvmlSuccess) return r;
  return answer(nvml_state()->model(gpu), gpu);
}

nvmlReturn count(unsigned* out) {
  State* s = nvml_state();
  return s == nullptr ? kNvmlUninitialized : put(out, s->gpu_count());
}

// A lost GPU keeps its place in the list, and answers that it is lost.
nvmlReturn by_index(unsigned index, nvmlDevice* out) {
  State* s = nvml_state();
  if (s == nullptr) return kNvmlUninitialized;
  if (out == nullptr || index >= s->gpu_count()) return kNvmlInvalidArgument;
  if (s->gpu(index).lost) return kNvmlGpuLost;
  *out = nvml_handle(index);
  return kNvmlSuccess;
}

nvmlReturn by_pci(const char* text, nvmlDevice* out) {
  State* s = nvml_state();
  if (s == nullptr) return kNvmlUninitialized;
  if (text == nullptr || out == nullptr) return kNvmlInvalidArgument;
  unsigned domain = 0;
  unsigned bus = 0;
  if (std::sscanf(text, "%x:%x:", &domain, &bus) != 2 || bus < 0x10 || bus - 0x10 >= s->gpu_count())
    return kNvmlNotFound;
  return by_index(bus - 0x10, out);
}

nvmlReturn pci_info(nvmlDevice device, nvmlPciInfo* out) {
  return with_model(device, [&](const GpuModel& model, unsigned gpu) {
    if (out == nullptr) return kNvmlInvalidArgument;
    *out = {};
    std::snprintf(out->busIdLegacy, sizeof out->busIdLegacy, "%s", bus_id(gpu, "0000").c_str());
    std::snprintf(out->busId, sizeof out->busId, "%s", bus_id(gpu, "00000000").c_str());
    out->bus = 0x10 + gpu;
    out->pciDeviceId = model.pci_device;
    return kNvmlSuccess;
  });
}

nvmlReturn clock(nvmlDevice device, int type, unsigned* out) {
  return with_model(device, [&](const GpuModel& model, unsigned) {
    return put(out, type == 2 ? 2619 : model.clock_mhz);  // 2 = memory
  });
}

}  // namespace

NVML_API nvmlDeviceGetCount_v2(unsigned* out) { return count(out); }
NVML_API nvmlDeviceGetCount(unsigned* out) { return count(out); }
NVML_API nvmlDeviceGetHandleByIndex_v2(unsigned i, nvmlDevice* out) { return by_index(i, out); }
NVML_API nvmlDeviceGetHandleByIndex(unsigned i, nvmlDevice* out) { return by_index(i, out); }
NVML_API nvmlDeviceGetHandleByPciBusId_v2(const char* id, nvmlDevice* out) {
  return by_pci(id, out);
}
NVML_API nvmlDeviceGetHandleByPciBusId(const char* id, nvmlDevice* out) { return by_pci(id, out); }

NVML_API nvmlDeviceGetHandleByUUID(const char* uuid, nvmlDevice* out) {
  State* s = nvml_state();
  if (s == nullptr) return kNvmlUninitialized;
  if (uuid == nullptr || out == nullptr) return kNvmlInvalidArgument;
  for (unsigned g = 0; g < s->gpu_count(); ++g)
    if (uuid_text(uuid_bytes(s->model(g), g)) == uuid) return by_index(g, out);
  return kNvmlNotFound;
}

NVML_API nvmlDeviceGetIndex(nvmlDevice device, unsigned* out) {
  return with_model(device, [&](const GpuModel&, unsigned gpu) { return put(out, gpu); });
}

NVML_API nvmlDeviceGetMinorNumber(nvmlDevice device, unsigned* out) {
  return nvmlDeviceGetIndex(device, out);
}

NVML_API nvmlDeviceGetName(nvmlDevice device, char* out, unsigned size) {
  return with_model(device, [&](const GpuModel& model, unsigned) {
    return put_text(std::string(model.name), out, size);
  });
}

NVML_API nvmlDeviceGetUUID(nvmlDevice device, char* out, unsigned size) {
  return with_model(device, [&](const GpuModel& model, unsigned gpu) {
    return put_text(uuid_text(uuid_bytes(model, gpu)), out, size);
  });
}

NVML_API nvmlDeviceGetSerial(nvmlDevice device, char* out, unsigned size) {
  return with_model(device, [&](const GpuModel&, unsigned gpu) {
    return put_text("165000000000" + std::to_string(gpu % 10), out, size);
  });
}

NVML_API nvmlDeviceGetBrand(nvmlDevice device, int* out) {
  return with_model(device, [&](const GpuModel&, unsigned) { return put(out, 14); });
}

NVML_API nvmlDeviceGetArchitecture(nvmlDevice device, unsigned* out) {
  return with_model(device, [&](const GpuModel& model, unsigned) {
    // Pascal 4, Volta 5, Turing 6, Ampere 7, Hopper 9.
    const int arch = model.major == 6   ? 4
                     : model.major == 7 ? (model.minor == 5 ? 6 : 5)
                     : model.major == 8 ? 7
                                        : 9;
    return put(out, arch);
  });
}

NVML_API nvmlDeviceGetCudaComputeCapability(nvmlDevice device, int* major, int* minor) {
  return with_model(device, [&](const GpuModel& model, unsigned) {
    const nvmlReturn r = put(major, model.major);
    return r != kNvmlSuccess ? r : put(minor, model.minor);
  });
}

NVML_API nvmlDeviceGetPciInfo_v3(nvmlDevice device, nvmlPciInfo* out) {
  return pci_info(device, out);
}

NVML_API nvmlDeviceGetPciInfo_v2(nvmlDevice device, nvmlPciInfo_v2* out) {
  nvmlPciInfo info{};
  if (const nvmlReturn r = pci_info(device, &info); r != kNvmlSuccess) return r;
  if (out == nullptr) return kNvmlInvalidArgument;
  *out = {};
  std::memcpy(out->busId, info.busIdLegacy, sizeof out->busId);
  out->bus = info.bus;
  out->pciDeviceId = info.pciDeviceId;
  return kNvmlSuccess;
}

NVML_API nvmlDeviceGetPciInfo(nvmlDevice device, nvmlPciInfo_v2* out) {
  return nvmlDeviceGetPciInfo_v2(device, out);
}

NVML_API nvmlDeviceGetClockInfo(nvmlDevice device, int type, unsigned* out) {
  return clock(device, type, out);
}
NVML_API nvmlDeviceGetMaxClockInfo(nvmlDevice device, int type, unsigned* out) {
  return clock(device, type, out);
}

NVML_API nvmlDeviceGetPowerManagementLimit(nvmlDevice device, unsigned* out) {
  return with_model(device,
                    [&](const GpuModel& m, unsigned) { return put(out, m.power_limit_w * 1000); });
}
NVML_API nvmlDeviceGetEnforcedPowerLimit(nvmlDevice device, unsigned* out) {
  return nvmlDeviceGetPowerManagementLimit(device, out);
}

NVML_API nvmlDeviceGetNumGpuCores(nvmlDevice device, unsigned* out) {
  return with_model(device,
                    [&](const GpuModel& m, unsigned) { return put(out, m.multiprocessors * 128); });
}

NVML_API nvmlDeviceGetPersistenceMode(nvmlDevice device, int* out) {
  return with_model(device, [&](const GpuModel&, unsigned) { return put(out, 1); });
}

NVML_API nvmlDeviceGetPerformanceState(nvmlDevice device, int* out) {
  return with_model(device, [&](const GpuModel&, unsigned) { return put(out, 0); });
}

NVML_API nvmlDeviceGetMigMode(nvmlDevice device, unsigned* current, unsigned* pending) {
  return with_model(device, [&](const GpuModel& model, unsigned) {
    if (model.major < 8) return kNvmlNotSupported;
    const nvmlReturn r = put(current, 0);
    return r != kNvmlSuccess ? r : put(pending, 0);
  });
}

NVML_API nvmlDeviceGetMaxMigDeviceCount(nvmlDevice device, unsigned* out) {
  return with_model(
      device, [&](const GpuModel& model, unsigned) { return put(out, model.major >= 8 ? 7 : 0); });
}

NVML_API nvmlDeviceGetComputeMode(nvmlDevice device, int* out) {
  return with_model(device, [&](const GpuModel&, unsigned gpu) {
    return put(out, nvml_state()->gpu(gpu).compute_mode);
  });
}

NVML_API nvmlDeviceSetComputeMode(nvmlDevice device, int mode) {
  return with_model(device, [&](const GpuModel&, unsigned gpu) {
    if (mode != 0 && mode != 2 && mode != 3) return kNvmlInvalidArgument;
    if (geteuid() != 0) return kNvmlNoPermission;
    const State::Guard guard(*nvml_state());
    nvml_state()->gpu(gpu).compute_mode = static_cast<std::uint32_t>(mode);
    return kNvmlSuccess;
  });
}

}  // namespace aliquot::standin
