// Initialisation and devices: count, names, UUIDs, sizes, attributes.
#include <array>
#include <cstdio>
#include <cstring>

#include "standin/cuda/driver.hpp"

namespace aliquot::standin {
namespace {

constexpr int kDriverVersion = 13000;

CUresult check(CUdevice device) {
  Driver& driver = Driver::instance();
  if (const CUresult r = driver.ready(); r != kSuccess) return r;
  return driver.is_device(device) ? kSuccess : kInvalidDevice;
}

// The numbers are CUdevice_attribute's.
int attribute_of(const GpuModel& model, const Gpu& gpu, unsigned index, int attribute) {
  switch (attribute) {
    case 1:
    case 2:
    case 3:
      return 1024;  // threads per block, block x, y
    case 4:
      return 64;  // block z
    case 5:
      return 2147483647;  // grid x
    case 6:
    case 7:
      return 65535;
    case 8:
      return 48 << 10;  // shared memory per block
    case 9:
      return 64 << 10;  // constant memory
    case 10:
      return 32;  // warp
    case 11:
      return 2147483647;  // pitch
    case 12:
    case 82:
      return 65536;  // registers per block, per multiprocessor
    case 13:
      return model.clock_mhz * 1000;
    case 14:
      return 512;  // texture alignment
    case 16:
      return model.multiprocessors;
    case 20:
      return static_cast<int>(gpu.compute_mode);
    case 15:
    case 19:
    case 31:
    case 32:
    case 41:
      return 1;  // overlap, host map, concurrency, ECC, UVA
    case 33:
      return static_cast<int>(0x10 + index);  // PCI bus
    case 34:
      return 0;
    case 36:
      return 2'619'000;
    case 37:
      return 5120;
    case 38:
      return 50 << 20;  // L2
    case 39:
      return model.major == 7 && model.minor == 5 ? 1024 : 2048;
    case 40:
      return 3;
    case 75:
      return model.major;
    case 76:
      return model.minor;
    case 78:
    case 83:
    case 90:
    case 95:
      return 1;  // priorities, managed, preemption, cooperative
    case 81:
      return 228 << 10;
    case 89:
      return model.major >= 6 ? 1 : 0;
    case 97:
      return 227 << 10;
    case 102:
    case 103:
    case 115:
      return 1;  // VMM, file descriptors, pools
    case 106:
      return 32;
    case 119:
      return kHandlePosixFd;
    default:
      return 0;
  }
}

}  // namespace

CU_API cuInit(unsigned flags) { return flags != 0 ? kInvalidValue : Driver::instance().init(); }

CU_API cuDriverGetVersion(int* version) { return give(version, kDriverVersion); }

CU_API cuDeviceGetCount(int* count) {
  if (const CUresult r = Driver::instance().ready(); r != kSuccess) return r;
  return give(count, static_cast<int>(Driver::instance().visible().size()));
}

CU_API cuDeviceGet(CUdevice* device, int ordinal) {
  if (const CUresult r = check(ordinal); r != kSuccess) return r;
  return give(device, ordinal);
}

CU_API cuDeviceGetName(char* name, int size, CUdevice device) {
  if (const CUresult r = check(device); r != kSuccess) return r;
  if (name == nullptr || size <= 0) return kInvalidValue;
  std::snprintf(name, static_cast<std::size_t>(size), "%s",
                std::string(Driver::instance().model_of(device).name).c_str());
  return kSuccess;
}

CU_API cuDeviceGetUuid(CUuuid* uuid, CUdevice device) {
  if (const CUresult r = check(device); r != kSuccess) return r;
  if (uuid == nullptr) return kInvalidValue;
  Driver& driver = Driver::instance();
  std::memcpy(uuid->bytes, driver.state().gpu(driver.gpu_of(device)).uuid, sizeof uuid->bytes);
  return kSuccess;
}

CU_API cuDeviceGetUuid_v2(CUuuid* uuid, CUdevice device) { return cuDeviceGetUuid(uuid, device); }

CU_API cuDeviceTotalMem_v2(std::size_t* bytes, CUdevice device) {
  if (const CUresult r = check(device); r != kSuccess) return r;
  return give(bytes, Driver::instance().model_of(device).usable());
}

CU_API cuDeviceGetAttribute(int* value, int attribute, CUdevice device) {
  if (const CUresult r = check(device); r != kSuccess) return r;
  if (attribute < 1 || attribute > 200) return kInvalidValue;
  Driver& driver = Driver::instance();
  const unsigned gpu = driver.gpu_of(device);
  return give(value,
              attribute_of(driver.state().model(gpu), driver.state().gpu(gpu), gpu, attribute));
}

CU_API cuDeviceComputeCapability(int* major, int* minor, CUdevice device) {
  if (const CUresult r = check(device); r != kSuccess) return r;
  if (major == nullptr || minor == nullptr) return kInvalidValue;
  *major = Driver::instance().model_of(device).major;
  *minor = Driver::instance().model_of(device).minor;
  return kSuccess;
}

CU_API cuDeviceGetPCIBusId(char* text, int size, CUdevice device) {
  if (const CUresult r = check(device); r != kSuccess) return r;
  if (text == nullptr || size <= 0) return kInvalidValue;
  std::snprintf(text, static_cast<std::size_t>(size), "0000:%02X:00.0",
                0x10 + Driver::instance().gpu_of(device));
  return kSuccess;
}

CU_API cuDeviceGetByPCIBusId(CUdevice* device, const char* text) {
  Driver& driver = Driver::instance();
  if (const CUresult r = driver.ready(); r != kSuccess) return r;
  if (device == nullptr || text == nullptr) return kInvalidValue;
  for (std::size_t d = 0; d < driver.visible().size(); ++d) {
    char own[16];
    std::snprintf(own, sizeof own, "%02X:00.0", 0x10 + driver.visible()[d]);
    if (std::strstr(text, own) == nullptr) continue;
    *device = static_cast<CUdevice>(d);
    return kSuccess;
  }
  return kInvalidDevice;
}

CU_API cuDeviceCanAccessPeer(int* can, CUdevice device, CUdevice peer) {
  if (const CUresult r = check(device); r != kSuccess) return r;
  if (const CUresult r = check(peer); r != kSuccess) return r;
  return give(can, device != peer ? 1 : 0);
}

}  // namespace aliquot::standin
