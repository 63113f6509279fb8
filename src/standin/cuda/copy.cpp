// Copies and fills. Bytes move when the call is made; the time they take goes to the stream: device
// memory at the H200's bandwidth and in the GPU's own time, host memory at PCIe's by a copy engine.
#include <algorithm>
#include <cstring>

#include "standin/cuda/driver.hpp"
#include "standin/cuda/memory.hpp"
#include "standin/cuda/stream.hpp"

namespace aliquot::standin {
namespace {

constexpr double kDeviceBytesPerNs = 2000;
constexpr double kHostBytesPerNs = 50;

void move_bytes(CUdeviceptr to, CUdeviceptr from, std::size_t size) {
  bool bad = false;
  std::byte* target = memory_bytes(to, size, &bad);
  const std::byte* source = memory_bytes(from, size, &bad);
  if (target == nullptr || size == 0) return;
  if (source != nullptr)
    std::memmove(target, source, size);
  else
    std::memset(target, 0, size);
}

bool is_host(CUdeviceptr address) {
  const Block* block = memory_find(address);
  return block == nullptr || block->kind == BlockKind::host;
}

CUresult check_range(CUdeviceptr address, std::size_t size) {
  bool bad = false;
  static_cast<void>(memory_bytes(address, size, &bad));
  return bad || address == 0 ? kInvalidValue : kSuccess;
}

CUresult copy(CUdeviceptr to, CUdeviceptr from, std::size_t size, bool host, Stream* stream,
              bool wait) {
  if (size == 0) return kSuccess;
  if (const CUresult r = check_range(to, size); r != kSuccess) return r;
  if (const CUresult r = check_range(from, size); r != kSuccess) return r;
  memory_touch(to, size);
  Operation operation;
  operation.effect = [=] { move_bytes(to, from, size); };
  operation.work_ns = static_cast<double>(size) / (host ? kHostBytesPerNs : kDeviceBytesPerNs);
  operation.width = host ? 0 : 1;
  if (const CUresult r = enqueue(stream, std::move(operation)); r != kSuccess) return r;
  return wait ? synchronize(stream) : kSuccess;
}

CUresult fill(CUdeviceptr to, std::size_t pitch, unsigned value, std::size_t element,
              std::size_t width, std::size_t height, Stream* stream) {
  const std::size_t row = width * element;
  if (row == 0 || height == 0) return kSuccess;
  const std::size_t size = height == 1 ? row : pitch * (height - 1) + row;
  if (to % element != 0) return kInvalidValue;
  if (const CUresult r = check_range(to, size); r != kSuccess) return r;
  memory_touch(to, size);
  Operation operation;
  operation.effect = [=] {
    bool bad = false;
    std::byte* bytes = memory_bytes(to, size, &bad);
    if (bytes == nullptr || (value == 0 && memory_forget(to, size))) return;
    for (std::size_t y = 0; y < height; ++y)
      for (std::size_t x = 0; x < row; x += element)
        std::memcpy(bytes + y * pitch + x, &value, element);
  };
  operation.work_ns = static_cast<double>(size) / kDeviceBytesPerNs;
  return enqueue(stream, std::move(operation));
}

CUresult copy_now(CUdeviceptr to, CUdeviceptr from, std::size_t size, bool host) {
  Stream* s = nullptr;
  if (const CUresult r = resolve_stream(nullptr, &s); r != kSuccess) return r;
  // Copies within the device return before they are done.
  return copy(to, from, size, host, s, host);
}

CUresult copy_later(CUdeviceptr to, CUdeviceptr from, std::size_t size, bool host,
                    CUstream stream) {
  Stream* s = nullptr;
  if (const CUresult r = resolve_stream(stream, &s); r != kSuccess) return r;
  return copy(to, from, size, host, s, false);
}

CUresult fill_on(CUstream stream, CUdeviceptr to, std::size_t pitch, unsigned value,
                 std::size_t element, std::size_t width, std::size_t height) {
  Stream* s = nullptr;
  if (const CUresult r = resolve_stream(stream, &s); r != kSuccess) return r;
  return fill(to, pitch, value, element, width, height, s);
}

CUdeviceptr at(const void* host) { return reinterpret_cast<std::uintptr_t>(host); }

CUresult copy_2d(const CUDA_MEMCPY2D* c, CUstream stream, bool wait) {
  if (c == nullptr) return kInvalidValue;
  Stream* s = nullptr;
  if (const CUresult r = resolve_stream(stream, &s); r != kSuccess) return r;
  // Arrays have no content.
  if (c->srcMemoryType == kMemoryArray || c->dstMemoryType == kMemoryArray) return kSuccess;
  const CUdeviceptr from = c->srcMemoryType == kMemoryHost ? at(c->srcHost) : c->srcDevice;
  const CUdeviceptr to = c->dstMemoryType == kMemoryHost ? at(c->dstHost) : c->dstDevice;
  const bool host = c->srcMemoryType == kMemoryHost || c->dstMemoryType == kMemoryHost;
  for (std::size_t y = 0; y < c->Height; ++y) {
    const CUresult r =
        copy(to + (c->dstY + y) * c->dstPitch + c->dstXInBytes,
             from + (c->srcY + y) * c->srcPitch + c->srcXInBytes, c->WidthInBytes, host, s, false);
    if (r != kSuccess) return r;
  }
  return wait ? synchronize(s) : kSuccess;
}

}  // namespace

CU_API_STREAM(cuMemcpy, _ptds, (CUdeviceptr to, CUdeviceptr from, std::size_t size),
              (to, from, size)) {
  return copy_now(to, from, size, is_host(to) || is_host(from));
}
CU_API_STREAM(cuMemcpyAsync, _ptsz,
              (CUdeviceptr to, CUdeviceptr from, std::size_t size, CUstream s),
              (to, from, size, s)) {
  return copy_later(to, from, size, is_host(to) || is_host(from), s);
}
CU_API_STREAM(cuMemcpyHtoD_v2, _ptds, (CUdeviceptr to, const void* from, std::size_t size),
              (to, from, size)) {
  return copy_now(to, at(from), size, true);
}
CU_API_STREAM(cuMemcpyDtoH_v2, _ptds, (void* to, CUdeviceptr from, std::size_t size),
              (to, from, size)) {
  return copy_now(at(to), from, size, true);
}
CU_API_STREAM(cuMemcpyDtoD_v2, _ptds, (CUdeviceptr to, CUdeviceptr from, std::size_t size),
              (to, from, size)) {
  return copy_now(to, from, size, false);
}
CU_API_STREAM(cuMemcpyHtoDAsync_v2, _ptsz,
              (CUdeviceptr to, const void* from, std::size_t size, CUstream s),
              (to, from, size, s)) {
  return copy_later(to, at(from), size, true, s);
}
CU_API_STREAM(cuMemcpyDtoHAsync_v2, _ptsz,
              (void* to, CUdeviceptr from, std::size_t size, CUstream s), (to, from, size, s)) {
  return copy_later(at(to), from, size, true, s);
}
CU_API_STREAM(cuMemcpyDtoDAsync_v2, _ptsz,
              (CUdeviceptr to, CUdeviceptr from, std::size_t size, CUstream s),
              (to, from, size, s)) {
  return copy_later(to, from, size, false, s);
}
CU_API_STREAM(cuMemcpyPeer, _ptds,
              (CUdeviceptr to, CUcontext, CUdeviceptr from, CUcontext, std::size_t size),
              (to, nullptr, from, nullptr, size)) {
  return copy_now(to, from, size, false);
}
CU_API_STREAM(cuMemcpyPeerAsync, _ptsz,
              (CUdeviceptr to, CUcontext, CUdeviceptr from, CUcontext, std::size_t size,
               CUstream s),
              (to, nullptr, from, nullptr, size, s)) {
  return copy_later(to, from, size, false, s);
}
CU_API_STREAM(cuMemcpy2D_v2, _ptds, (const CUDA_MEMCPY2D* c), (c)) {
  return copy_2d(c, nullptr, true);
}
CU_API_STREAM(cuMemcpy2DUnaligned_v2, _ptds, (const CUDA_MEMCPY2D* c), (c)) {
  return copy_2d(c, nullptr, true);
}
CU_API_STREAM(cuMemcpy2DAsync_v2, _ptsz, (const CUDA_MEMCPY2D* c, CUstream s), (c, s)) {
  return copy_2d(c, s, false);
}

CU_API_STREAM(cuMemsetD8_v2, _ptds, (CUdeviceptr to, unsigned char v, std::size_t n), (to, v, n)) {
  return fill_on(nullptr, to, 0, v, 1, n, 1);
}
CU_API_STREAM(cuMemsetD16_v2, _ptds, (CUdeviceptr to, unsigned short v, std::size_t n),
              (to, v, n)) {
  return fill_on(nullptr, to, 0, v, 2, n, 1);
}
CU_API_STREAM(cuMemsetD32_v2, _ptds, (CUdeviceptr to, unsigned v, std::size_t n), (to, v, n)) {
  return fill_on(nullptr, to, 0, v, 4, n, 1);
}
CU_API_STREAM(cuMemsetD8Async, _ptsz, (CUdeviceptr to, unsigned char v, std::size_t n, CUstream s),
              (to, v, n, s)) {
  return fill_on(s, to, 0, v, 1, n, 1);
}
CU_API_STREAM(cuMemsetD16Async, _ptsz,
              (CUdeviceptr to, unsigned short v, std::size_t n, CUstream s), (to, v, n, s)) {
  return fill_on(s, to, 0, v, 2, n, 1);
}
CU_API_STREAM(cuMemsetD32Async, _ptsz, (CUdeviceptr to, unsigned v, std::size_t n, CUstream s),
              (to, v, n, s)) {
  return fill_on(s, to, 0, v, 4, n, 1);
}
CU_API_STREAM(cuMemsetD2D8_v2, _ptds,
              (CUdeviceptr to, std::size_t pitch, unsigned char v, std::size_t w, std::size_t h),
              (to, pitch, v, w, h)) {
  return fill_on(nullptr, to, pitch, v, 1, w, h);
}
CU_API_STREAM(cuMemsetD2D32_v2, _ptds,
              (CUdeviceptr to, std::size_t pitch, unsigned v, std::size_t w, std::size_t h),
              (to, pitch, v, w, h)) {
  return fill_on(nullptr, to, pitch, v, 4, w, h);
}

}  // namespace aliquot::standin
