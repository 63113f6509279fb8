#include "standin/smi/device.hpp"

#include <algorithm>
#include <cstdio>

#include "standin/abi/nvml.hpp"

namespace aliquot::standin {

extern "C" {
nvmlReturn nvmlInit_v2();
nvmlReturn nvmlDeviceGetCount_v2(unsigned*);
nvmlReturn nvmlDeviceGetHandleByIndex_v2(unsigned, nvmlDevice*);
nvmlReturn nvmlDeviceGetName(nvmlDevice, char*, unsigned);
nvmlReturn nvmlDeviceGetUUID(nvmlDevice, char*, unsigned);
nvmlReturn nvmlDeviceGetPciInfo_v3(nvmlDevice, nvmlPciInfo*);
nvmlReturn nvmlDeviceGetMemoryInfo_v2(nvmlDevice, nvmlMemory_v2*);
nvmlReturn nvmlDeviceGetUtilizationRates(nvmlDevice, nvmlUtilization*);
nvmlReturn nvmlDeviceGetTemperature(nvmlDevice, int, unsigned*);
nvmlReturn nvmlDeviceGetPowerUsage(nvmlDevice, unsigned*);
nvmlReturn nvmlDeviceGetPowerManagementLimit(nvmlDevice, unsigned*);
nvmlReturn nvmlDeviceGetClockInfo(nvmlDevice, int, unsigned*);
nvmlReturn nvmlDeviceGetComputeMode(nvmlDevice, int*);
nvmlReturn nvmlDeviceGetCudaComputeCapability(nvmlDevice, int*, int*);
nvmlReturn nvmlDeviceGetMigMode(nvmlDevice, unsigned*, unsigned*);
nvmlReturn nvmlDeviceGetTotalEccErrors(nvmlDevice, int, int, unsigned long long*);
nvmlReturn nvmlDeviceGetComputeRunningProcesses_v3(nvmlDevice, unsigned*, nvmlProcessInfo*);
nvmlReturn nvmlDeviceGetMPSComputeRunningProcesses_v3(nvmlDevice, unsigned*, nvmlProcessInfo*);
nvmlReturn nvmlSystemGetDriverVersion(char*, unsigned);
nvmlReturn nvmlSystemGetProcessName(unsigned, char*, unsigned);
}

namespace {

using Lister = nvmlReturn (*)(nvmlDevice, unsigned*, nvmlProcessInfo*);

std::vector<nvmlProcessInfo> list(Lister lister, nvmlDevice device) {
  std::vector<nvmlProcessInfo> infos(512);
  auto count = static_cast<unsigned>(infos.size());
  if (lister(device, &count, infos.data()) != kNvmlSuccess) count = 0;
  infos.resize(count);
  return infos;
}

void read_processes(nvmlDevice device, SmiDevice& d) {
  const auto clients = list(nvmlDeviceGetMPSComputeRunningProcesses_v3, device);
  for (const auto& info : list(nvmlDeviceGetComputeRunningProcesses_v3, device)) {
    char name[256] = "[Not Found]";
    nvmlSystemGetProcessName(info.pid, name, sizeof name);
    const bool client =
        std::any_of(clients.begin(), clients.end(), [&](auto& c) { return c.pid == info.pid; });
    d.processes.push_back({info.pid, info.usedGpuMemory, client, name});
  }
}

void read_device(nvmlDevice device, SmiDevice& d) {
  char text[96] = "";
  nvmlDeviceGetName(device, text, sizeof text);
  d.name = text;
  nvmlDeviceGetUUID(device, text, sizeof text);
  d.uuid = text;
  nvmlPciInfo pci{};
  nvmlDeviceGetPciInfo_v3(device, &pci);
  d.bus_id = pci.busId;
  nvmlMemory_v2 memory{sizeof(nvmlMemory_v2) | 2U << 24, 0, 0, 0, 0};
  nvmlDeviceGetMemoryInfo_v2(device, &memory);
  d.total = memory.total;
  d.used = memory.used;
  d.free = memory.free;
  d.reserved = memory.reserved;
  nvmlUtilization utilization{};
  nvmlDeviceGetUtilizationRates(device, &utilization);
  d.utilization = utilization.gpu;
  nvmlDeviceGetTemperature(device, 0, &d.temperature);
  nvmlDeviceGetPowerUsage(device, &d.power_mw);
  nvmlDeviceGetPowerManagementLimit(device, &d.power_limit_mw);
  nvmlDeviceGetClockInfo(device, 1, &d.clock_mhz);
  nvmlDeviceGetComputeMode(device, &d.mode);
  nvmlDeviceGetTotalEccErrors(device, 1, 0, &d.ecc_uncorrected);
  int major = 0;
  int minor = 0;
  nvmlDeviceGetCudaComputeCapability(device, &major, &minor);
  d.capability = std::to_string(major) + "." + std::to_string(minor);
  unsigned current = 0;
  unsigned pending = 0;
  const bool mig = nvmlDeviceGetMigMode(device, &current, &pending) == kNvmlSuccess;
  d.mig = !mig ? "[N/A]" : current != 0 ? "Enabled" : "Disabled";
  read_processes(device, d);
}

}  // namespace

std::string SmiDevice::compute_mode() const {
  return mode == 3 ? "Exclusive_Process" : mode == 2 ? "Prohibited" : "Default";
}

std::string SmiDevice::watts(unsigned milliwatts) const {
  char text[32];
  std::snprintf(text, sizeof text, "%.2f", milliwatts / 1000.0);
  return text;
}

const char* read_devices(const std::string& only, std::vector<SmiDevice>* out) {
  if (nvmlInit_v2() != kNvmlSuccess) return "the stand-in NVML finds no simulated GPUs";
  char driver[96] = "";
  nvmlSystemGetDriverVersion(driver, sizeof driver);
  unsigned count = 0;
  nvmlDeviceGetCount_v2(&count);
  for (unsigned i = 0; i < count; ++i) {
    SmiDevice d;
    d.index = i;
    d.count = count;
    d.driver = driver;
    nvmlDevice device = nullptr;
    d.lost = nvmlDeviceGetHandleByIndex_v2(i, &device) != kNvmlSuccess;
    if (!d.lost) read_device(device, d);
    if (only.empty() || only == std::to_string(i) || only == d.uuid) out->push_back(d);
  }
  return out->empty() ? "no devices were found" : nullptr;
}

}  // namespace aliquot::standin
