// Virtual memory management: physical allocations, reserved addresses, and mappings between them.
// An allocation is attributed to the process that created it while it has a handle or a mapping. It
// is on the GPU for as long as anybody holds it: importers, and descriptors that were exported
// (state/shared.cpp).
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <map>

#include "standin/cuda/driver.hpp"
#include "standin/cuda/memory.hpp"

namespace aliquot::standin {
namespace {

struct Allocation {
  CUmemAllocationProp prop{};
  unsigned gpu = 0;
  std::size_t size = 0;
  unsigned handles = 1;
  unsigned mappings = 0;
  bool imported = false;
  std::uint64_t shared = 0;  // its number among the memory that others can hold
  int fd = -1;               // with which this process holds it
  void* bytes = nullptr;     // one mapping that is always there; null: no content
};

struct Vmm {
  std::map<CUmemGenericAllocationHandle, Allocation> allocations;
  std::map<std::uintptr_t, std::size_t> reserved;
  CUmemGenericAllocationHandle next = 0x1000;
};

Vmm& vmm() {
  static Vmm* const v = new Vmm;
  return *v;
}

// Content for the allocation: shared memory, since it may be mapped at several addresses.
bool make_content(Allocation& a) {
  if (a.size > kBackedLimit) return true;
  if (a.shared == 0) {
    a.bytes = reserve_range(a.size, true, true);
    return a.bytes != nullptr;
  }
  const int fd = Driver::instance().state().open_content(a.shared);
  void* bytes = mmap(nullptr, a.size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (fd >= 0) close(fd);
  if (bytes == MAP_FAILED) return false;
  a.bytes = bytes;
  return true;
}

void drop_if_unused(CUmemGenericAllocationHandle handle) {
  Allocation& a = vmm().allocations.at(handle);
  if (a.handles != 0 || a.mappings != 0) return;
  if (a.bytes != nullptr) munmap(a.bytes, a.size);
  if (a.fd >= 0) close(a.fd);
  if (a.shared != 0) {
    State& state = Driver::instance().state();
    const State::Guard guard(state);
    if (a.imported)
      state.note_import(a.shared, Driver::instance().slot(), true);
    else
      state.abandon(a.shared);
    state.reap();
  } else if (a.prop.location.type == kLocationDevice) {
    Driver::instance().refund(a.gpu, a.size);
  }
  vmm().allocations.erase(handle);
}

Allocation* find(CUmemGenericAllocationHandle handle) {
  const auto found = vmm().allocations.find(handle);
  return found == vmm().allocations.end() ? nullptr : &found->second;
}

}  // namespace

bool vmm_hold(CUmemGenericAllocationHandle handle) {
  Allocation* a = find(handle);
  if (a == nullptr || a->handles == 0) return false;
  ++a->mappings;
  return true;
}

void vmm_drop(CUmemGenericAllocationHandle handle) {
  --find(handle)->mappings;
  drop_if_unused(handle);
}

CU_API cuMemGetAllocationGranularity(std::size_t* granularity, const CUmemAllocationProp* prop,
                                     int) {
  if (const CUresult r = Driver::instance().ready(); r != kSuccess) return r;
  return prop == nullptr ? kInvalidValue : give(granularity, kGranularity);
}

CU_API cuMemCreate(CUmemGenericAllocationHandle* out, std::size_t size,
                   const CUmemAllocationProp* prop, unsigned long long flags) {
  Driver& driver = Driver::instance();
  if (const CUresult r = driver.ready(); r != kSuccess) return r;
  if (out == nullptr || prop == nullptr || flags != 0 || size == 0 || size % kGranularity != 0)
    return kInvalidValue;
  const bool on_device = prop->location.type == kLocationDevice;
  if (on_device && !driver.is_device(prop->location.id)) return kInvalidDevice;
  const std::lock_guard lock(driver.mutex);
  Allocation a;
  a.prop = *prop;
  a.size = size;
  if (on_device) {
    a.gpu = driver.gpu_of(prop->location.id);
    if (const CUresult r = driver.charge(a.gpu, size); r != kSuccess) return r;
  }
  if (on_device && (prop->requestedHandleTypes & kHandlePosixFd) != 0) {
    State& state = driver.state();
    const State::Guard guard(state);
    a.shared = state.share(driver.slot(), a.gpu, size, size);
    if (a.shared != 0) a.fd = state.hold_shared(a.shared);
  }
  *out = vmm().next++;
  Allocation& made = vmm().allocations[*out] = a;
  if ((a.shared != 0 && a.fd < 0) || !make_content(made)) {
    made.handles = 0;
    drop_if_unused(*out);
    return kOutOfMemory;
  }
  return kSuccess;
}

CU_API cuMemRelease(CUmemGenericAllocationHandle handle) {
  Driver& driver = Driver::instance();
  if (const CUresult r = driver.ready(); r != kSuccess) return r;
  const std::lock_guard lock(driver.mutex);
  Allocation* a = find(handle);
  if (a == nullptr || a->handles == 0) return kInvalidValue;
  --a->handles;
  drop_if_unused(handle);
  return kSuccess;
}

CU_API cuMemRetainAllocationHandle(CUmemGenericAllocationHandle* out, void* address) {
  Driver& driver = Driver::instance();
  if (const CUresult r = driver.ready(); r != kSuccess) return r;
  const std::lock_guard lock(driver.mutex);
  const Block* block = memory_find(reinterpret_cast<std::uintptr_t>(address));
  if (out == nullptr || block == nullptr || block->kind != BlockKind::mapped) return kInvalidValue;
  ++find(block->mapping)->handles;
  *out = block->mapping;
  return kSuccess;
}

CU_API cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp* prop,
                                              CUmemGenericAllocationHandle handle) {
  Driver& driver = Driver::instance();
  if (const CUresult r = driver.ready(); r != kSuccess) return r;
  const std::lock_guard lock(driver.mutex);
  const Allocation* a = find(handle);
  return a == nullptr ? kInvalidValue : give(prop, a->prop);
}

CU_API cuMemAddressReserve(CUdeviceptr* out, std::size_t size, std::size_t alignment, CUdeviceptr,
                           unsigned long long) {
  Driver& driver = Driver::instance();
  if (const CUresult r = driver.ready(); r != kSuccess) return r;
  if (out == nullptr || size == 0 || size % kGranularity != 0) return kInvalidValue;
  const std::size_t align = alignment < kGranularity ? kGranularity : alignment;
  void* raw = reserve_range(size + align, false);
  if (raw == nullptr) return kOutOfMemory;
  // Cut the range down to the aligned part.
  const auto begin = reinterpret_cast<std::uintptr_t>(raw);
  const std::uintptr_t base = round_up(begin, align);
  if (base > begin) munmap(raw, base - begin);
  if (const std::size_t tail = begin + align - base; tail > 0)
    munmap(reinterpret_cast<void*>(base + size), tail);
  const std::lock_guard lock(driver.mutex);
  vmm().reserved[base] = size;
  *out = base;
  return kSuccess;
}

CU_API cuMemAddressFree(CUdeviceptr address, std::size_t size) {
  Driver& driver = Driver::instance();
  if (const CUresult r = driver.ready(); r != kSuccess) return r;
  const std::lock_guard lock(driver.mutex);
  const auto found = vmm().reserved.find(address);
  if (found == vmm().reserved.end() || found->second != size) return kInvalidValue;
  munmap(reinterpret_cast<void*>(address), size);
  vmm().reserved.erase(found);
  return kSuccess;
}

CU_API cuMemMap(CUdeviceptr address, std::size_t size, std::size_t offset,
                CUmemGenericAllocationHandle handle, unsigned long long flags) {
  Driver& driver = Driver::instance();
  if (const CUresult r = driver.ready(); r != kSuccess) return r;
  const std::lock_guard lock(driver.mutex);
  Allocation* a = find(handle);
  auto range = vmm().reserved.upper_bound(address);
  const bool inside =
      range != vmm().reserved.begin() && (--range, address + size <= range->first + range->second);
  if (a == nullptr || a->handles == 0 || !inside || flags != 0 || size == 0 ||
      size % kGranularity != 0 || offset + size > a->size || memory_find(address) != nullptr)
    return kInvalidValue;
  if (a->bytes != nullptr) {
    // Length 0 makes a second view of shared pages.
    void* const from = static_cast<std::byte*>(a->bytes) + offset;
    void* const to = reinterpret_cast<void*>(address);
    if (mremap(from, 0, size, MREMAP_MAYMOVE | MREMAP_FIXED, to) != to) return kOutOfMemory;
    mprotect(to, size, PROT_NONE);
  }
  Block block;
  block.base = address;
  block.size = size;
  block.kind = BlockKind::mapped;
  block.gpu = a->gpu;
  block.mapping = handle;
  memory_insert(block);
  ++a->mappings;
  return kSuccess;
}

CU_API cuMemUnmap(CUdeviceptr address, std::size_t size) {
  Driver& driver = Driver::instance();
  if (const CUresult r = driver.ready(); r != kSuccess) return r;
  const std::lock_guard lock(driver.mutex);
  // The range may cover several mappings, each whole.
  for (CUdeviceptr at = address; at < address + size;) {
    const Block* block = memory_find(at);
    if (block == nullptr || block->kind != BlockKind::mapped || block->base != at ||
        at + block->size > address + size)
      return kInvalidValue;
    at += block->size;
  }
  for (CUdeviceptr at = address; at < address + size;) {
    Block block;
    memory_erase(at, &block);
    // The addresses stay reserved, with nothing behind them.
    void* const base = reinterpret_cast<void*>(block.base);
    constexpr int kFlags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED;
    if (mmap(base, block.size, PROT_NONE, kFlags, -1, 0) != base) return kOperatingSystem;
    --find(block.mapping)->mappings;
    drop_if_unused(block.mapping);
    at += block.size;
  }
  return kSuccess;
}

CU_API cuMemSetAccess(CUdeviceptr address, std::size_t size, const CUmemAccessDesc* access,
                      std::size_t count) {
  Driver& driver = Driver::instance();
  if (const CUresult r = driver.ready(); r != kSuccess) return r;
  if (access == nullptr || count == 0) return kInvalidValue;
  const std::lock_guard lock(driver.mutex);
  for (CUdeviceptr at = address; at < address + size;) {
    Block* block = memory_find(at);
    if (block == nullptr || block->kind != BlockKind::mapped) return kInvalidValue;
    const Allocation* a = find(block->mapping);
    block->backed = a->bytes != nullptr && access->flags != 0;
    if (a->bytes != nullptr)
      mprotect(reinterpret_cast<void*>(block->base), block->size,
               block->backed ? PROT_READ | PROT_WRITE : PROT_NONE);
    at = block->base + block->size;
  }
  return kSuccess;
}

CU_API cuMemGetAccess(unsigned long long* flags, const CUmemLocation*, CUdeviceptr address) {
  if (const CUresult r = Driver::instance().ready(); r != kSuccess) return r;
  const Block* block = memory_find(address);
  return block == nullptr ? kInvalidValue : give(flags, block->backed ? 3ULL : 0ULL);
}

CU_API cuMemExportToShareableHandle(void* out, CUmemGenericAllocationHandle handle, int type,
                                    unsigned long long) {
  Driver& driver = Driver::instance();
  if (const CUresult r = driver.ready(); r != kSuccess) return r;
  const std::lock_guard lock(driver.mutex);
  const Allocation* a = find(handle);
  if (out == nullptr || a == nullptr || type != kHandlePosixFd || a->fd < 0) return kInvalidValue;
  const int fd = driver.state().hold_shared(a->shared);
  if (fd < 0) return kOperatingSystem;
  *static_cast<int*>(out) = fd;
  return kSuccess;
}

CU_API cuMemImportFromShareableHandle(CUmemGenericAllocationHandle* out, void* os_handle,
                                      int type) {
  Driver& driver = Driver::instance();
  if (const CUresult r = driver.ready(); r != kSuccess) return r;
  if (out == nullptr || type != kHandlePosixFd) return kInvalidValue;
  const int fd = static_cast<int>(reinterpret_cast<std::intptr_t>(os_handle));
  Allocation a;
  a.shared = driver.state().shared_of(fd);
  {
    const State::Guard guard(driver.state());
    const Shared* known = driver.state().find_shared(a.shared);
    if (known == nullptr) return kInvalidValue;
    a.gpu = known->gpu;
    a.size = known->bytes;
    driver.state().note_import(a.shared, driver.slot(), false);
  }
  a.prop.type = 1;
  a.prop.requestedHandleTypes = kHandlePosixFd;
  a.prop.location = {kLocationDevice, 0};
  a.imported = true;
  a.fd = driver.state().hold_shared(a.shared);
  const std::lock_guard lock(driver.mutex);
  if (a.fd < 0 || !make_content(a)) return kOperatingSystem;
  *out = vmm().next++;
  vmm().allocations[*out] = a;
  return kSuccess;
}

}  // namespace aliquot::standin
