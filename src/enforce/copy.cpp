// Copies and fills. Those within the GPU, or between GPUs, take its memory's time as kernels do,
// and pass the gate. Those from and to the host are the business of the copy engines and the bus:
// they run beside everything else, and only tell when something is over.
#include "enforce/gate.hpp"

namespace aliquot::enforce {
namespace {

bool is_host(CUdeviceptr address) {
  unsigned type = 0;
  // Memory that the driver does not know is the host's.
  return real::cuPointerGetAttribute(&type, kPointerMemoryType, address) != kSuccess ||
         type == kMemoryHost;
}

bool is_host(int type, CUdeviceptr address) {
  return type == kMemoryHost || (type == kMemoryUnified && is_host(address));
}

template <class Copy>
bool within_gpu(const Copy* copy) {
  return copy != nullptr && !is_host(copy->srcMemoryType, copy->srcDevice) &&
         !is_host(copy->dstMemoryType, copy->dstDevice);
}

bool within_gpu(CUdeviceptr to, CUdeviceptr from) { return !is_host(to) && !is_host(from); }

}  // namespace

// Passes the gate; COPY_IF only where `gpu` says that it stays on the GPU.
#define COPY(name, params, args, stream)                                    \
  ALIQUOT_HOOK name params {                                                \
    bind();                                                                 \
    return pass_gate(stream, launch_copy, [=] { return real::name args; }); \
  }
#define COPY_IF(gpu, name, params, args, stream)                            \
  ALIQUOT_HOOK name params {                                                \
    bind();                                                                 \
    if (grant_wanted() && !gpu) return real::name args;                     \
    return pass_gate(stream, launch_copy, [=] { return real::name args; }); \
  }
// Returns when the stream has come to it.
#define WAIT(name, params, args, stream)                              \
  ALIQUOT_HOOK name params {                                          \
    bind();                                                           \
    return pass_wait(stream, false, [=] { return real::name args; }); \
  }
// Each comes twice: the second is for programs whose stream 0 is the thread's own stream.
#define COPY_SYNC(name, params, args) \
  COPY(name, params, args, nullptr)   \
  COPY(name##_ptds, params, args, kPerThreadStream)
#define COPY_ASYNC(name, params, args) \
  COPY(name, params, args, stream)     \
  COPY(name##_ptsz, params, args, own_stream(stream))
#define COPY_IF_SYNC(gpu, name, params, args) \
  COPY_IF(gpu, name, params, args, nullptr)   \
  COPY_IF(gpu, name##_ptds, params, args, kPerThreadStream)
#define COPY_IF_ASYNC(gpu, name, params, args) \
  COPY_IF(gpu, name, params, args, stream)     \
  COPY_IF(gpu, name##_ptsz, params, args, own_stream(stream))
#define COPY_WAIT(name, params, args) \
  WAIT(name, params, args, nullptr)   \
  WAIT(name##_ptds, params, args, kPerThreadStream)
// Fills with values of so many bits.
#define FILL(bits, Value)                                                                      \
  COPY_SYNC(cuMemsetD##bits##_v2, (CUdeviceptr to, Value value, std::size_t count),            \
            (to, value, count))                                                                \
  COPY_SYNC(                                                                                   \
      cuMemsetD2D##bits##_v2,                                                                  \
      (CUdeviceptr to, std::size_t pitch, Value value, std::size_t width, std::size_t height), \
      (to, pitch, value, width, height))                                                       \
  COPY_ASYNC(cuMemsetD##bits##Async,                                                           \
             (CUdeviceptr to, Value value, std::size_t count, CUstream stream),                \
             (to, value, count, stream))                                                       \
  COPY_ASYNC(cuMemsetD2D##bits##Async,                                                         \
             (CUdeviceptr to, std::size_t pitch, Value value, std::size_t width,               \
              std::size_t height, CUstream stream),                                            \
             (to, pitch, value, width, height, stream))

COPY_IF_SYNC((within_gpu(to, from)), cuMemcpy, (CUdeviceptr to, CUdeviceptr from, std::size_t size),
             (to, from, size))
COPY_IF_ASYNC((within_gpu(to, from)), cuMemcpyAsync,
              (CUdeviceptr to, CUdeviceptr from, std::size_t size, CUstream stream),
              (to, from, size, stream))
COPY_SYNC(cuMemcpyDtoD_v2, (CUdeviceptr to, CUdeviceptr from, std::size_t size), (to, from, size))
COPY_ASYNC(cuMemcpyDtoDAsync_v2,
           (CUdeviceptr to, CUdeviceptr from, std::size_t size, CUstream stream),
           (to, from, size, stream))
COPY_SYNC(cuMemcpyPeer,
          (CUdeviceptr to, CUcontext there, CUdeviceptr from, CUcontext here, std::size_t size),
          (to, there, from, here, size))
COPY_ASYNC(cuMemcpyPeerAsync,
           (CUdeviceptr to, CUcontext there, CUdeviceptr from, CUcontext here, std::size_t size,
            CUstream stream),
           (to, there, from, here, size, stream))
COPY_SYNC(cuMemcpyDtoA_v2, (CUarray to, std::size_t offset, CUdeviceptr from, std::size_t size),
          (to, offset, from, size))
COPY_SYNC(cuMemcpyAtoD_v2, (CUdeviceptr to, CUarray from, std::size_t offset, std::size_t size),
          (to, from, offset, size))
COPY_SYNC(cuMemcpyAtoA_v2,
          (CUarray to, std::size_t offset, CUarray from, std::size_t offset2, std::size_t size),
          (to, offset, from, offset2, size))
COPY_IF_SYNC((within_gpu(copy)), cuMemcpy2D_v2, (const CUDA_MEMCPY2D* copy), (copy))
COPY_IF_SYNC((within_gpu(copy)), cuMemcpy2DUnaligned_v2, (const CUDA_MEMCPY2D* copy), (copy))
COPY_IF_ASYNC((within_gpu(copy)), cuMemcpy2DAsync_v2, (const CUDA_MEMCPY2D* copy, CUstream stream),
              (copy, stream))
COPY_IF_SYNC((within_gpu(copy)), cuMemcpy3D_v2, (const CUDA_MEMCPY3D* copy), (copy))
COPY_IF_ASYNC((within_gpu(copy)), cuMemcpy3DAsync_v2, (const CUDA_MEMCPY3D* copy, CUstream stream),
              (copy, stream))
COPY_SYNC(cuMemcpy3DPeer, (const void* copy), (copy))
COPY_ASYNC(cuMemcpy3DPeerAsync, (const void* copy, CUstream stream), (copy, stream))
COPY_IF_ASYNC((count > 0 && within_gpu(*to, *from)), cuMemcpyBatchAsync,
              (CUdeviceptr * to, CUdeviceptr* from, std::size_t* sizes, std::size_t count,
               void* attributes, std::size_t* indices, std::size_t attribute_count,
               std::size_t* failed, CUstream stream),
              (to, from, sizes, count, attributes, indices, attribute_count, failed, stream))
COPY_IF_ASYNC((count > 0 && within_gpu(*to, *from)), cuMemcpyBatchAsync_v2,
              (CUdeviceptr * to, CUdeviceptr* from, std::size_t* sizes, std::size_t count,
               void* attributes, std::size_t* indices, std::size_t attribute_count,
               CUstream stream),
              (to, from, sizes, count, attributes, indices, attribute_count, stream))
COPY_ASYNC(cuMemcpy3DBatchAsync,
           (std::size_t count, void* copies, std::size_t* failed, unsigned long long flags,
            CUstream stream),
           (count, copies, failed, flags, stream))
COPY_ASYNC(cuMemcpy3DBatchAsync_v2,
           (std::size_t count, void* copies, unsigned long long flags, CUstream stream),
           (count, copies, flags, stream))
FILL(8, unsigned char)
FILL(16, unsigned short)
FILL(32, unsigned)
COPY_WAIT(cuMemcpyHtoD_v2, (CUdeviceptr to, const void* from, std::size_t size), (to, from, size))
COPY_WAIT(cuMemcpyDtoH_v2, (void* to, CUdeviceptr from, std::size_t size), (to, from, size))

#undef COPY
#undef COPY_IF
#undef WAIT
#undef COPY_SYNC
#undef COPY_ASYNC
#undef COPY_IF_SYNC
#undef COPY_IF_ASYNC
#undef COPY_WAIT
#undef FILL

}  // namespace aliquot::enforce
