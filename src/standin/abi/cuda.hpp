// Our own declarations of the part of the CUDA driver ABI that the stand-in implements and the load
// program calls. Only types and numbers: the functions are declared where they are defined or
// loaded. Handles are pointers to types of our own; nothing here includes or needs the CUDA
// toolkit.
#pragma once

#include <cstddef>
#include <cstdint>

namespace aliquot::standin {

using CUresult = int;
inline constexpr CUresult kSuccess = 0, kInvalidValue = 1, kOutOfMemory = 2, kNotInitialized = 3,
                          kNoDevice = 100, kInvalidDevice = 101, kInvalidImage = 200,
                          kDeviceUnavailable = 46, kInvalidContext = 201, kFileNotFound = 301,
                          kOperatingSystem = 304, kInvalidHandle = 400, kIllegalState = 401,
                          kNotFound = 500, kNotReady = 600, kIllegalAddress = 700,
                          kPrimaryContextActive = 708, kNotPermitted = 800, kNotSupported = 801,
                          kMpsConnectionFailed = 805, kMpsRpcFailure = 806,
                          kMpsMaxClientsReached = 808, kCaptureUnsupported = 900,
                          kCaptureInvalidated = 901, kUnknown = 999;

using CUdevice = int;
using CUdeviceptr = unsigned long long;
using CUmemGenericAllocationHandle = unsigned long long;

struct Context;
struct Stream;
struct Event;
struct Module;
struct Kernel;
struct Array;
struct MipmappedArray;
struct Pool;
struct Graph;
struct GraphNode;
struct GraphExec;
using CUcontext = Context*;
using CUstream = Stream*;
using CUevent = Event*;
using CUmodule = Module*;
using CUlibrary = Module*;
using CUfunction = Kernel*;
using CUkernel = Kernel*;
using CUarray = Array*;
using CUmipmappedArray = MipmappedArray*;
using CUmemoryPool = Pool*;
using CUgraph = Graph*;
using CUgraphNode = GraphNode*;
using CUgraphExec = GraphExec*;
using CUhostFn = void (*)(void*);
using CUstreamCallback = void (*)(CUstream, CUresult, void*);

struct CUuuid {
  unsigned char bytes[16];
};

struct CUDA_MEMCPY2D {
  std::size_t srcXInBytes, srcY;
  int srcMemoryType;
  const void* srcHost;
  CUdeviceptr srcDevice;
  CUarray srcArray;
  std::size_t srcPitch;
  std::size_t dstXInBytes, dstY;
  int dstMemoryType;
  void* dstHost;
  CUdeviceptr dstDevice;
  CUarray dstArray;
  std::size_t dstPitch;
  std::size_t WidthInBytes, Height;
};
inline constexpr int kMemoryHost = 1;
inline constexpr int kMemoryDevice = 2;
inline constexpr int kMemoryArray = 3;
inline constexpr int kMemoryUnified = 4;

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

struct CUmemLocation {
  int type;  // 1 = device, 2 = host
  int id;
};
inline constexpr int kLocationDevice = 1;

// One piece of a sparse array, and the memory to put there.
struct CUarrayMapInfo {
  int resourceType;
  void* resource;  // a CUarray or CUmipmappedArray
  int subresourceType;
  unsigned long long subresource[4];
  int memOperationType;
  int memHandleType;
  CUmemGenericAllocationHandle memHandle;
  unsigned long long offset;
  unsigned deviceBitMask;
  unsigned flags;
  unsigned reserved[2];
};
static_assert(sizeof(CUarrayMapInfo) == 96);
inline constexpr int kOperationMap = 1;
inline constexpr int kOperationUnmap = 2;
inline constexpr unsigned kArraySparse = 0x40;

struct CUmemAllocationProp {
  int type;
  int requestedHandleTypes;
  CUmemLocation location;
  void* win32HandleMetaData;
  unsigned char compressionType, gpuDirectRDMACapable;
  unsigned short usage;
  unsigned char reserved[4];
};
inline constexpr int kHandlePosixFd = 1;

struct CUmemAccessDesc {
  CUmemLocation location;
  int flags;
};
struct CUmemPoolProps {
  int allocType;
  int handleTypes;
  CUmemLocation location;
  void* win32SecurityAttributes;
  std::size_t maxSize;
  unsigned short usage;
  unsigned char reserved[54];
};
struct CUmemPoolPtrExportData {
  unsigned char reserved[64];
};
struct CUipcMemHandle {
  char reserved[64];
};
struct CUipcEventHandle {
  char reserved[64];
};

struct CUlaunchConfig {
  unsigned gridDimX, gridDimY, gridDimZ;
  unsigned blockDimX, blockDimY, blockDimZ;
  unsigned sharedMemBytes;
  CUstream hStream;
  void* attrs;
  unsigned numAttrs;
};
struct CUDA_KERNEL_NODE_PARAMS {  // v1; v2 adds kern and ctx behind it
  CUfunction func;
  unsigned gridDimX, gridDimY, gridDimZ;
  unsigned blockDimX, blockDimY, blockDimZ;
  unsigned sharedMemBytes;
  void** kernelParams;
  void** extra;
};
struct CUDA_KERNEL_NODE_PARAMS_v2 {
  CUDA_KERNEL_NODE_PARAMS v1;
  CUkernel kern;
  CUcontext ctx;
};
struct CUDA_MEM_ALLOC_NODE_PARAMS {
  CUmemPoolProps poolProps;
  const CUmemAccessDesc* accessDescs;
  std::size_t accessDescCount;
  std::size_t bytesize;
  CUdeviceptr dptr;
};
struct CUDA_MEMSET_NODE_PARAMS {
  CUdeviceptr dst;
  std::size_t pitch;
  unsigned value, elementSize;
  std::size_t width, height;
};
struct CUDA_HOST_NODE_PARAMS {
  CUhostFn fn;
  void* userData;
};
struct CUDA_GRAPH_INSTANTIATE_PARAMS {
  unsigned long long flags;
  CUstream hUploadStream;
  CUgraphNode hErrNode_out;
  int result_out;
};

struct CUcheckpointLockArgs {
  unsigned timeoutMs, reserved0;
  std::uint64_t reserved1[7];
};

}  // namespace aliquot::standin
