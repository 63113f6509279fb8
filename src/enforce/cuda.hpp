// Our own declarations of the part of the CUDA driver ABI that the library touches: types and
// numbers only. Handles are opaque; structures are as long as what is read of them, and are never
// made here, except where the comment says so.
#pragma once

#include <cstddef>
#include <cstdint>

namespace aliquot::enforce {

using CUresult = int;
inline constexpr CUresult kSuccess = 0, kOutOfMemory = 2, kNoDevice = 100, kNotSupported = 801;

using CUdevice = int;
using CUdeviceptr = unsigned long long;
using CUmemHandle = unsigned long long;
using CUcontext = void*;
using CUstream = void*;
using CUevent = void*;
using CUarray = void*;
using CUmempool = void*;
using CUgraph = void*;
using CUgraphNode = void*;
using CUgraphExec = void*;
using CUfunction = void*;  // or a CUkernel
using CUmodule = void*;
using CUlibrary = void*;

// The handle that means the thread's own stream in every entry point.
inline const CUstream kPerThreadStream = reinterpret_cast<CUstream>(2);

struct CUuuid {
  unsigned char bytes[16];
};

struct CUDA_ARRAY_DESCRIPTOR {
  std::size_t Width, Height;
  int Format;
  unsigned NumChannels;
};
struct CUDA_ARRAY3D_DESCRIPTOR {
  std::size_t Width, Height, Depth;
  int Format;
  unsigned NumChannels;
  unsigned Flags;
};
inline constexpr unsigned kArraySparse = 0x40;
inline constexpr unsigned kArrayDeferred = 0x80;

struct CUDA_ARRAY_MEMORY_REQUIREMENTS {  // made here
  std::size_t size, alignment;
  unsigned reserved[4];
};

struct CUmemLocation {
  int type;
  int id;
};
inline constexpr int kLocationDevice = 1;

struct CUmemAllocationProp {  // made here
  int type;
  int requestedHandleTypes;
  CUmemLocation location;
  void* win32HandleMetaData;
  unsigned char allocFlags[8];
};
struct CUarrayMapInfo {
  int resourceType;
  void* resource;
  int subresourceType;
  std::uint64_t subresource[4];
  int memOperationType;
  int memHandleType;
  CUmemHandle memHandle;
  unsigned long long offset;
  unsigned deviceBitMask, flags, reserved[2];
};
static_assert(sizeof(CUarrayMapInfo) == 96);
struct CUmemPoolProps {
  int allocType;
  int handleTypes;
  CUmemLocation location;
  void* win32SecurityAttributes;
  std::size_t maxSize;
  unsigned short usage;
  unsigned char reserved[54];
};
inline constexpr int kPoolReservedCurrent = 5;
inline constexpr int kPoolUsedCurrent = 7;

struct CUDA_MEM_ALLOC_NODE_PARAMS {  // made here
  CUmemPoolProps poolProps;
  const void* accessDescs;
  std::size_t accessDescCount;
  std::size_t bytesize;
  CUdeviceptr dptr;
};
inline constexpr int kNodeGraph = 4;
inline constexpr int kNodeMemAlloc = 10;
inline constexpr int kNodeMemFree = 11;
inline constexpr std::size_t kEdgeDataBytes = 8;
inline constexpr int kGraphReservedCurrent = 2;

struct CUipcMemHandle {
  char reserved[64];
};

struct CUlaunchConfig {
  unsigned grid[3], block[3];
  unsigned sharedMemBytes;
  CUstream hStream;
};
struct CUDA_LAUNCH_PARAMS {
  CUfunction function;
  unsigned grid[3], block[3];
  unsigned sharedMemBytes;
  CUstream hStream;
  void** kernelParams;
};

inline constexpr int kMemoryHost = 1;
inline constexpr int kMemoryArray = 3;
inline constexpr int kMemoryUnified = 4;
inline constexpr int kPointerMemoryType = 2;
struct CUDA_MEMCPY2D {
  std::size_t srcXInBytes, srcY;
  int srcMemoryType;
  const void* srcHost;
  CUdeviceptr srcDevice;
  CUarray srcArray;
  std::size_t srcPitch, dstXInBytes, dstY;
  int dstMemoryType;
  void* dstHost;
  CUdeviceptr dstDevice;
};
struct CUDA_MEMCPY3D {
  std::size_t srcXInBytes, srcY, srcZ, srcLOD;
  int srcMemoryType;
  const void* srcHost;
  CUdeviceptr srcDevice;
  CUarray srcArray;
  void* reserved0;
  std::size_t srcPitch, srcHeight, dstXInBytes, dstY, dstZ, dstLOD;
  int dstMemoryType;
  void* dstHost;
  CUdeviceptr dstDevice;
};

inline constexpr unsigned kEventDisableTiming = 2;
inline constexpr int kCaptureNone = 0;
inline constexpr int kCaptureModeRelaxed = 2;

}  // namespace aliquot::enforce
