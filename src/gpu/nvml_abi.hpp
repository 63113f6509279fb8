// Our own declarations of the little of NVML's ABI that we use, as driver 450 and later have it.
// Types and numbers only: no header of the driver is needed to build.
#pragma once

namespace aliquot::gpu::nvml {

using Return = int;
inline constexpr Return kSuccess = 0;
inline constexpr Return kNotSupported = 3;
inline constexpr Return kNotFound = 6;
inline constexpr Return kInsufficientSize = 7;
inline constexpr Return kGpuLost = 15;
inline constexpr Return kResetRequired = 16;

struct DeviceStruct;
using Device = DeviceStruct*;

struct Memory {
  unsigned long long total, free, used;
};
struct MemoryV2 {
  unsigned version;
  unsigned long long total, reserved, free, used;
};
inline constexpr unsigned kMemoryV2 = sizeof(MemoryV2) | 2U << 24U;

struct Utilization {
  unsigned gpu, memory;  // per cent
};
struct PciInfo {
  char bus_id_legacy[16];
  unsigned domain, bus, device, pci_device_id, pci_subsystem_id;
  char bus_id[32];
};
struct ProcessInfo {  // of the functions' versions 2 and 3
  unsigned pid;
  unsigned long long used_memory;
  unsigned gpu_instance, compute_instance;
};
inline constexpr unsigned long long kMemoryUnknown = ~0ULL;

inline constexpr unsigned kTextSize = 96;

struct EventSetStruct;
using EventSet = EventSetStruct*;
struct Event {  // of nvmlEventSetWait_v2
  Device device;
  unsigned long long type, data;
  unsigned gpu_instance, compute_instance;
};
inline constexpr unsigned long long kXidEvent = 0x8;

// Of nvmlDeviceGetTotalEccErrors: which errors, counted since when.
inline constexpr int kUncorrected = 1;
inline constexpr int kSinceReset = 0;

// Of nvmlDeviceGetTemperature: the sensor in the chip.
inline constexpr int kGpuSensor = 0;

// Compute modes.
inline constexpr int kDefaultMode = 0;
inline constexpr int kExclusiveProcess = 3;

}  // namespace aliquot::gpu::nvml
