// Plain allocations: device, pitched, managed and host memory, what is free, and what a pointer is.
#include <sys/mman.h>

#include <cstring>

#include "standin/cuda/driver.hpp"
#include "standin/cuda/memory.hpp"
#include "standin/cuda/stream.hpp"

namespace aliquot::standin {
namespace {

CUresult allocate_host(void** out, std::size_t size) {
  Context* context = nullptr;
  if (const CUresult r = Driver::instance().current(&context); r != kSuccess) return r;
  if (out == nullptr || size == 0) return kInvalidValue;
  Block block;
  block.kind = BlockKind::host;
  block.size = size;
  block.context = context;
  block.backed = true;
  block.base = reinterpret_cast<std::uintptr_t>(reserve_range(size, true));
  if (block.base == 0) return kOutOfMemory;
  memory_insert(block);
  *out = reinterpret_cast<void*>(block.base);
  return kSuccess;
}

CUresult pointer_attribute(void* data, int attribute, CUdeviceptr address) {
  const Block* block = memory_find(address);
  if (block == nullptr) return kInvalidValue;
  const bool host = block->kind == BlockKind::host;
  switch (attribute) {
    case 1:
      return give(static_cast<CUcontext*>(data), block->context);
    case 2:
      return give(static_cast<unsigned*>(data),
                  static_cast<unsigned>(host ? kMemoryHost : kMemoryDevice));
    case 3:
      return give(static_cast<CUdeviceptr*>(data), address);
    case 4:
      if (!host && block->kind != BlockKind::managed) return kInvalidValue;
      return give(static_cast<void**>(data), reinterpret_cast<void*>(address));
    case 6:
      return give(static_cast<int*>(data), 0);
    case 7:
      return give(static_cast<unsigned long long*>(data), block->id);
    case 8:
      return give(static_cast<int*>(data), block->kind == BlockKind::managed ? 1 : 0);
    case 9: {
      const auto& visible = Driver::instance().visible();
      for (std::size_t d = 0; d < visible.size(); ++d)
        if (visible[d] == block->gpu) return give(static_cast<int*>(data), static_cast<int>(d));
      return kInvalidValue;
    }
    case 10:
      return give(static_cast<int*>(data), block->kind == BlockKind::device ? 1 : 0);
    case 11:
      return give(static_cast<CUdeviceptr*>(data), static_cast<CUdeviceptr>(block->base));
    case 12:
      return give(static_cast<std::size_t*>(data), block->size);
    case 13:
      return give(static_cast<int*>(data), 1);
    case 14:
      return give(static_cast<unsigned long long*>(data), 0ULL);
    case 17:
      return give(static_cast<CUmemoryPool*>(data), block->pool);
    default:
      return kInvalidValue;
  }
}

}  // namespace

CU_API cuMemGetInfo_v2(std::size_t* free_bytes, std::size_t* total) {
  Driver& driver = Driver::instance();
  Context* context = nullptr;
  if (const CUresult r = driver.current(&context); r != kSuccess) return r;
  State& state = driver.state();
  const State::Guard guard(state);
  state.reap();
  if (free_bytes != nullptr) *free_bytes = state.free_for(driver.slot(), context->gpu);
  if (total != nullptr) *total = state.model(context->gpu).usable();
  return kSuccess;
}

CU_API cuMemAlloc_v2(CUdeviceptr* out, std::size_t size) {
  Context* context = nullptr;
  if (const CUresult r = Driver::instance().current(&context); r != kSuccess) return r;
  return memory_allocate(context, size, out);
}

CU_API cuMemAllocPitch_v2(CUdeviceptr* out, std::size_t* pitch, std::size_t width,
                          std::size_t height, unsigned element) {
  Context* context = nullptr;
  if (const CUresult r = Driver::instance().current(&context); r != kSuccess) return r;
  if (pitch == nullptr || width == 0 || height == 0) return kInvalidValue;
  if (element != 4 && element != 8 && element != 16) return kInvalidValue;
  const std::size_t row = round_up(width, kPitchAlignment);
  if (const CUresult r = memory_allocate(context, row * height, out); r != kSuccess) return r;
  *pitch = row;
  return kSuccess;
}

CU_API cuMemAllocManaged(CUdeviceptr* out, std::size_t size, unsigned flags) {
  Context* context = nullptr;
  if (const CUresult r = Driver::instance().current(&context); r != kSuccess) return r;
  if (out == nullptr || size == 0 || (flags & 3U) == 0) return kInvalidValue;
  Block block;
  block.kind = BlockKind::managed;
  block.size = size;
  block.context = context;
  block.gpu = context->gpu;
  block.backed = true;
  block.base = reinterpret_cast<std::uintptr_t>(reserve_range(size, true));
  if (block.base == 0) return kOutOfMemory;
  memory_insert(block);
  *out = block.base;
  return kSuccess;
}

CU_API cuMemFree_v2(CUdeviceptr address) {
  if (const CUresult r = Driver::instance().ready(); r != kSuccess) return r;
  return memory_free(address);
}

CU_API cuMemGetAddressRange_v2(CUdeviceptr* base, std::size_t* size, CUdeviceptr address) {
  if (const CUresult r = Driver::instance().ready(); r != kSuccess) return r;
  const Block* block = memory_find(address);
  if (block == nullptr) return kNotFound;
  if (base != nullptr) *base = block->base;
  if (size != nullptr) *size = block->size;
  return kSuccess;
}

CU_API cuMemAllocHost_v2(void** out, std::size_t size) { return allocate_host(out, size); }

CU_API cuMemHostAlloc(void** out, std::size_t size, unsigned) { return allocate_host(out, size); }

CU_API cuMemFreeHost(void* address) {
  if (const CUresult r = Driver::instance().ready(); r != kSuccess) return r;
  const auto base = reinterpret_cast<std::uintptr_t>(address);
  const Block* found = memory_find(base);
  if (found == nullptr || found->base != base || found->kind != BlockKind::host ||
      found->registered)
    return kInvalidValue;
  Block block;
  memory_erase(base, &block);
  release_range(address, block.size);
  return kSuccess;
}

CU_API cuMemHostRegister_v2(void* address, std::size_t size, unsigned) {
  Context* context = nullptr;
  if (const CUresult r = Driver::instance().current(&context); r != kSuccess) return r;
  if (address == nullptr || size == 0) return kInvalidValue;
  Block block;
  block.kind = BlockKind::host;
  block.base = reinterpret_cast<std::uintptr_t>(address);
  block.size = size;
  block.context = context;
  block.backed = true;
  block.registered = true;
  memory_insert(block);
  return kSuccess;
}

CU_API cuMemHostUnregister(void* address) {
  if (const CUresult r = Driver::instance().ready(); r != kSuccess) return r;
  const Block* found = memory_find(reinterpret_cast<std::uintptr_t>(address));
  if (found == nullptr || !found->registered) return kInvalidValue;
  Block block;
  memory_erase(found->base, &block);
  return kSuccess;
}

CU_API cuMemHostGetDevicePointer_v2(CUdeviceptr* out, void* address, unsigned) {
  if (const CUresult r = Driver::instance().ready(); r != kSuccess) return r;
  const auto base = reinterpret_cast<std::uintptr_t>(address);
  return memory_find(base) == nullptr ? kInvalidValue : give(out, static_cast<CUdeviceptr>(base));
}

CU_API cuMemHostGetFlags(unsigned* flags, void* address) {
  if (const CUresult r = Driver::instance().ready(); r != kSuccess) return r;
  const Block* block = memory_find(reinterpret_cast<std::uintptr_t>(address));
  return block == nullptr ? kInvalidValue : give(flags, 0U);
}

CU_API cuPointerGetAttribute(void* data, int attribute, CUdeviceptr address) {
  if (const CUresult r = Driver::instance().ready(); r != kSuccess) return r;
  return data == nullptr ? kInvalidValue : pointer_attribute(data, attribute, address);
}

CU_API cuPointerGetAttributes(unsigned count, int* attributes, void** data, CUdeviceptr address) {
  if (const CUresult r = Driver::instance().ready(); r != kSuccess) return r;
  // Unlike the single question, this one answers for memory it does not know: with zeros.
  for (unsigned i = 0; i < count; ++i)
    if (pointer_attribute(data[i], attributes[i], address) != kSuccess)
      std::memset(data[i], 0,
                  attributes[i] == 2 || attributes[i] == 8 ? sizeof(int) : sizeof(void*));
  return kSuccess;
}

CU_API_STREAM(cuMemPrefetchAsync, _ptsz,
              (CUdeviceptr address, std::size_t size, CUdevice device, CUstream stream),
              (address, size, device, stream)) {
  Stream* s = nullptr;
  if (const CUresult r = resolve_stream(stream, &s); r != kSuccess) return r;
  if (device >= 0) memory_touch(address, size);
  return kSuccess;
}

CU_API_STREAM(cuMemPrefetchAsync_v2, _ptsz,
              (CUdeviceptr address, std::size_t size, CUmemLocation to, unsigned, CUstream stream),
              (address, size, to, 0U, stream)) {
  Stream* s = nullptr;
  if (const CUresult r = resolve_stream(stream, &s); r != kSuccess) return r;
  if (to.type == kLocationDevice) memory_touch(address, size);
  return kSuccess;
}

CU_API cuMemAdvise(CUdeviceptr, std::size_t, int, CUdevice) { return Driver::instance().ready(); }

}  // namespace aliquot::standin
