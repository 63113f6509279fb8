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
#define COPY_WAIT(name, params, args, stream)                         \
  ALIQUOT_HOOK name params {                                          \
    bind();                                                           \
    return pass_wait(stream, false, [=] { return real::name args; }); \
  }

COPY_IF((within_gpu(to, from)), cuMemcpy, (CUdeviceptr to, CUdeviceptr from, std::size_t size),
        (to, from, size), nullptr)
COPY_IF((within_gpu(to, from)), cuMemcpy_ptds, (CUdeviceptr to, CUdeviceptr from, std::size_t size),
        (to, from, size), kPerThreadStream)
COPY_IF((within_gpu(to, from)), cuMemcpyAsync,
        (CUdeviceptr to, CUdeviceptr from, std::size_t size, CUstream stream),
        (to, from, size, stream), stream)
COPY_IF((within_gpu(to, from)), cuMemcpyAsync_ptsz,
        (CUdeviceptr to, CUdeviceptr from, std::size_t size, CUstream stream),
        (to, from, size, stream), own_stream(stream))
COPY(cuMemcpyDtoD_v2, (CUdeviceptr to, CUdeviceptr from, std::size_t size), (to, from, size),
     nullptr)
COPY(cuMemcpyDtoD_v2_ptds, (CUdeviceptr to, CUdeviceptr from, std::size_t size), (to, from, size),
     kPerThreadStream)
COPY(cuMemcpyDtoDAsync_v2, (CUdeviceptr to, CUdeviceptr from, std::size_t size, CUstream stream),
     (to, from, size, stream), stream)
COPY(cuMemcpyDtoDAsync_v2_ptsz,
     (CUdeviceptr to, CUdeviceptr from, std::size_t size, CUstream stream),
     (to, from, size, stream), own_stream(stream))
COPY(cuMemcpyPeer,
     (CUdeviceptr to, CUcontext there, CUdeviceptr from, CUcontext here, std::size_t size),
     (to, there, from, here, size), nullptr)
COPY(cuMemcpyPeer_ptds,
     (CUdeviceptr to, CUcontext there, CUdeviceptr from, CUcontext here, std::size_t size),
     (to, there, from, here, size), kPerThreadStream)
COPY(cuMemcpyPeerAsync,
     (CUdeviceptr to, CUcontext there, CUdeviceptr from, CUcontext here, std::size_t size,
      CUstream stream),
     (to, there, from, here, size, stream), stream)
COPY(cuMemcpyPeerAsync_ptsz,
     (CUdeviceptr to, CUcontext there, CUdeviceptr from, CUcontext here, std::size_t size,
      CUstream stream),
     (to, there, from, here, size, stream), own_stream(stream))
COPY(cuMemcpyDtoA_v2, (CUarray to, std::size_t offset, CUdeviceptr from, std::size_t size),
     (to, offset, from, size), nullptr)
COPY(cuMemcpyDtoA_v2_ptds, (CUarray to, std::size_t offset, CUdeviceptr from, std::size_t size),
     (to, offset, from, size), kPerThreadStream)
COPY(cuMemcpyAtoD_v2, (CUdeviceptr to, CUarray from, std::size_t offset, std::size_t size),
     (to, from, offset, size), nullptr)
COPY(cuMemcpyAtoD_v2_ptds, (CUdeviceptr to, CUarray from, std::size_t offset, std::size_t size),
     (to, from, offset, size), kPerThreadStream)
COPY(cuMemcpyAtoA_v2,
     (CUarray to, std::size_t offset, CUarray from, std::size_t offset2, std::size_t size),
     (to, offset, from, offset2, size), nullptr)
COPY(cuMemcpyAtoA_v2_ptds,
     (CUarray to, std::size_t offset, CUarray from, std::size_t offset2, std::size_t size),
     (to, offset, from, offset2, size), kPerThreadStream)
COPY_IF((within_gpu(copy)), cuMemcpy2D_v2, (const CUDA_MEMCPY2D* copy), (copy), nullptr)
COPY_IF((within_gpu(copy)), cuMemcpy2D_v2_ptds, (const CUDA_MEMCPY2D* copy), (copy),
        kPerThreadStream)
COPY_IF((within_gpu(copy)), cuMemcpy2DUnaligned_v2, (const CUDA_MEMCPY2D* copy), (copy), nullptr)
COPY_IF((within_gpu(copy)), cuMemcpy2DUnaligned_v2_ptds, (const CUDA_MEMCPY2D* copy), (copy),
        kPerThreadStream)
COPY_IF((within_gpu(copy)), cuMemcpy2DAsync_v2, (const CUDA_MEMCPY2D* copy, CUstream stream),
        (copy, stream), stream)
COPY_IF((within_gpu(copy)), cuMemcpy2DAsync_v2_ptsz, (const CUDA_MEMCPY2D* copy, CUstream stream),
        (copy, stream), own_stream(stream))
COPY_IF((within_gpu(copy)), cuMemcpy3D_v2, (const CUDA_MEMCPY3D* copy), (copy), nullptr)
COPY_IF((within_gpu(copy)), cuMemcpy3D_v2_ptds, (const CUDA_MEMCPY3D* copy), (copy),
        kPerThreadStream)
COPY_IF((within_gpu(copy)), cuMemcpy3DAsync_v2, (const CUDA_MEMCPY3D* copy, CUstream stream),
        (copy, stream), stream)
COPY_IF((within_gpu(copy)), cuMemcpy3DAsync_v2_ptsz, (const CUDA_MEMCPY3D* copy, CUstream stream),
        (copy, stream), own_stream(stream))
COPY(cuMemcpy3DPeer, (const void* copy), (copy), nullptr)
COPY(cuMemcpy3DPeer_ptds, (const void* copy), (copy), kPerThreadStream)
COPY(cuMemcpy3DPeerAsync, (const void* copy, CUstream stream), (copy, stream), stream)
COPY(cuMemcpy3DPeerAsync_ptsz, (const void* copy, CUstream stream), (copy, stream),
     own_stream(stream))
COPY_IF((count > 0 && within_gpu(*to, *from)), cuMemcpyBatchAsync,
        (CUdeviceptr * to, CUdeviceptr* from, std::size_t* sizes, std::size_t count,
         void* attributes, std::size_t* indices, std::size_t attribute_count, std::size_t* failed,
         CUstream stream),
        (to, from, sizes, count, attributes, indices, attribute_count, failed, stream), stream)
COPY_IF((count > 0 && within_gpu(*to, *from)), cuMemcpyBatchAsync_ptsz,
        (CUdeviceptr * to, CUdeviceptr* from, std::size_t* sizes, std::size_t count,
         void* attributes, std::size_t* indices, std::size_t attribute_count, std::size_t* failed,
         CUstream stream),
        (to, from, sizes, count, attributes, indices, attribute_count, failed, stream),
        own_stream(stream))
COPY_IF((count > 0 && within_gpu(*to, *from)), cuMemcpyBatchAsync_v2,
        (CUdeviceptr * to, CUdeviceptr* from, std::size_t* sizes, std::size_t count,
         void* attributes, std::size_t* indices, std::size_t attribute_count, CUstream stream),
        (to, from, sizes, count, attributes, indices, attribute_count, stream), stream)
COPY_IF((count > 0 && within_gpu(*to, *from)), cuMemcpyBatchAsync_v2_ptsz,
        (CUdeviceptr * to, CUdeviceptr* from, std::size_t* sizes, std::size_t count,
         void* attributes, std::size_t* indices, std::size_t attribute_count, CUstream stream),
        (to, from, sizes, count, attributes, indices, attribute_count, stream), own_stream(stream))
COPY(cuMemcpy3DBatchAsync,
     (std::size_t count, void* copies, std::size_t* failed, unsigned long long flags,
      CUstream stream),
     (count, copies, failed, flags, stream), stream)
COPY(cuMemcpy3DBatchAsync_ptsz,
     (std::size_t count, void* copies, std::size_t* failed, unsigned long long flags,
      CUstream stream),
     (count, copies, failed, flags, stream), own_stream(stream))
COPY(cuMemcpy3DBatchAsync_v2,
     (std::size_t count, void* copies, unsigned long long flags, CUstream stream),
     (count, copies, flags, stream), stream)
COPY(cuMemcpy3DBatchAsync_v2_ptsz,
     (std::size_t count, void* copies, unsigned long long flags, CUstream stream),
     (count, copies, flags, stream), own_stream(stream))
COPY(cuMemsetD8_v2, (CUdeviceptr to, unsigned char value, std::size_t count), (to, value, count),
     nullptr)
COPY(cuMemsetD8_v2_ptds, (CUdeviceptr to, unsigned char value, std::size_t count),
     (to, value, count), kPerThreadStream)
COPY(cuMemsetD2D8_v2,
     (CUdeviceptr to, std::size_t pitch, unsigned char value, std::size_t width,
      std::size_t height),
     (to, pitch, value, width, height), nullptr)
COPY(cuMemsetD2D8_v2_ptds,
     (CUdeviceptr to, std::size_t pitch, unsigned char value, std::size_t width,
      std::size_t height),
     (to, pitch, value, width, height), kPerThreadStream)
COPY(cuMemsetD8Async, (CUdeviceptr to, unsigned char value, std::size_t count, CUstream stream),
     (to, value, count, stream), stream)
COPY(cuMemsetD8Async_ptsz,
     (CUdeviceptr to, unsigned char value, std::size_t count, CUstream stream),
     (to, value, count, stream), own_stream(stream))
COPY(cuMemsetD2D8Async,
     (CUdeviceptr to, std::size_t pitch, unsigned char value, std::size_t width, std::size_t height,
      CUstream stream),
     (to, pitch, value, width, height, stream), stream)
COPY(cuMemsetD2D8Async_ptsz,
     (CUdeviceptr to, std::size_t pitch, unsigned char value, std::size_t width, std::size_t height,
      CUstream stream),
     (to, pitch, value, width, height, stream), own_stream(stream))
COPY(cuMemsetD16_v2, (CUdeviceptr to, unsigned short value, std::size_t count), (to, value, count),
     nullptr)
COPY(cuMemsetD16_v2_ptds, (CUdeviceptr to, unsigned short value, std::size_t count),
     (to, value, count), kPerThreadStream)
COPY(cuMemsetD2D16_v2,
     (CUdeviceptr to, std::size_t pitch, unsigned short value, std::size_t width,
      std::size_t height),
     (to, pitch, value, width, height), nullptr)
COPY(cuMemsetD2D16_v2_ptds,
     (CUdeviceptr to, std::size_t pitch, unsigned short value, std::size_t width,
      std::size_t height),
     (to, pitch, value, width, height), kPerThreadStream)
COPY(cuMemsetD16Async, (CUdeviceptr to, unsigned short value, std::size_t count, CUstream stream),
     (to, value, count, stream), stream)
COPY(cuMemsetD16Async_ptsz,
     (CUdeviceptr to, unsigned short value, std::size_t count, CUstream stream),
     (to, value, count, stream), own_stream(stream))
COPY(cuMemsetD2D16Async,
     (CUdeviceptr to, std::size_t pitch, unsigned short value, std::size_t width,
      std::size_t height, CUstream stream),
     (to, pitch, value, width, height, stream), stream)
COPY(cuMemsetD2D16Async_ptsz,
     (CUdeviceptr to, std::size_t pitch, unsigned short value, std::size_t width,
      std::size_t height, CUstream stream),
     (to, pitch, value, width, height, stream), own_stream(stream))
COPY(cuMemsetD32_v2, (CUdeviceptr to, unsigned value, std::size_t count), (to, value, count),
     nullptr)
COPY(cuMemsetD32_v2_ptds, (CUdeviceptr to, unsigned value, std::size_t count), (to, value, count),
     kPerThreadStream)
COPY(cuMemsetD2D32_v2,
     (CUdeviceptr to, std::size_t pitch, unsigned value, std::size_t width, std::size_t height),
     (to, pitch, value, width, height), nullptr)
COPY(cuMemsetD2D32_v2_ptds,
     (CUdeviceptr to, std::size_t pitch, unsigned value, std::size_t width, std::size_t height),
     (to, pitch, value, width, height), kPerThreadStream)
COPY(cuMemsetD32Async, (CUdeviceptr to, unsigned value, std::size_t count, CUstream stream),
     (to, value, count, stream), stream)
COPY(cuMemsetD32Async_ptsz, (CUdeviceptr to, unsigned value, std::size_t count, CUstream stream),
     (to, value, count, stream), own_stream(stream))
COPY(cuMemsetD2D32Async,
     (CUdeviceptr to, std::size_t pitch, unsigned value, std::size_t width, std::size_t height,
      CUstream stream),
     (to, pitch, value, width, height, stream), stream)
COPY(cuMemsetD2D32Async_ptsz,
     (CUdeviceptr to, std::size_t pitch, unsigned value, std::size_t width, std::size_t height,
      CUstream stream),
     (to, pitch, value, width, height, stream), own_stream(stream))
COPY_WAIT(cuMemcpyHtoD_v2, (CUdeviceptr to, const void* from, std::size_t size), (to, from, size),
          nullptr)
COPY_WAIT(cuMemcpyHtoD_v2_ptds, (CUdeviceptr to, const void* from, std::size_t size),
          (to, from, size), kPerThreadStream)
COPY_WAIT(cuMemcpyDtoH_v2, (void* to, CUdeviceptr from, std::size_t size), (to, from, size),
          nullptr)
COPY_WAIT(cuMemcpyDtoH_v2_ptds, (void* to, CUdeviceptr from, std::size_t size), (to, from, size),
          kPerThreadStream)

#undef COPY
#undef COPY_IF
#undef COPY_WAIT

}  // namespace aliquot::enforce
