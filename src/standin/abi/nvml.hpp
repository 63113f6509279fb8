// Our own declarations of the part of the NVML ABI that the stand-in implements. Types and numbers
// only.
#pragma once

#include <cstdint>

namespace aliquot::standin {

using nvmlReturn = int;
inline constexpr nvmlReturn kNvmlSuccess = 0, kNvmlUninitialized = 1, kNvmlInvalidArgument = 2,
                            kNvmlNotSupported = 3, kNvmlNoPermission = 4, kNvmlNotFound = 6,
                            kNvmlInsufficientSize = 7, kNvmlDriverNotLoaded = 9, kNvmlTimeout = 10,
                            kNvmlGpuLost = 15, kNvmlVersionMismatch = 25;

struct NvmlDevice;
using nvmlDevice = NvmlDevice*;
struct NvmlEventSet;
using nvmlEventSet = NvmlEventSet*;

inline constexpr unsigned kNvmlNoInstance = 0xFFFFFFFF;
inline constexpr unsigned long long kNvmlEventXid = 0x8;

struct nvmlMemory {
  unsigned long long total, free, used;
};
struct nvmlMemory_v2 {
  unsigned version;
  unsigned long long total, reserved, free, used;
};
struct nvmlUtilization {
  unsigned gpu, memory;
};
struct nvmlPciInfo {
  char busIdLegacy[16];
  unsigned domain, bus, device, pciDeviceId, pciSubSystemId;
  char busId[32];
};
struct nvmlPciInfo_v2 {
  char busId[16];
  unsigned domain, bus, device, pciDeviceId, pciSubSystemId, reserved[4];
};
struct nvmlProcessInfo_v1 {
  unsigned pid;
  unsigned long long usedGpuMemory;
};
struct nvmlProcessInfo {  // v2 and v3
  unsigned pid;
  unsigned long long usedGpuMemory;
  unsigned gpuInstanceId, computeInstanceId;
};
struct nvmlProcessUtilizationSample {
  unsigned pid;
  unsigned long long timeStamp;
  unsigned smUtil, memUtil, encUtil, decUtil;
};
struct nvmlEventData {
  nvmlDevice device;
  unsigned long long eventType, eventData;
  unsigned gpuInstanceId, computeInstanceId;
};

}  // namespace aliquot::standin
