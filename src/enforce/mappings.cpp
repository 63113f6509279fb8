// Virtual memory management and imports. Physical memory leaves only when no handle and no mapping
// is left: programs release the handle at once and live on the mapping. Memory of other processes
// (imports) is paid for by its owner.
#include <cstring>

#include <sys/mman.h>

#include "enforce/memory.hpp"
#include "enforce/patience.hpp"
#include "enforce/reset.hpp"

namespace aliquot::enforce {
namespace {

// Sorted by address; a piece of one allocation, mapped.
struct Mapping {
  std::uint64_t address;
  std::uint64_t size;
  std::uint64_t allocation;
};

struct Mappings {
  Mapping* all = nullptr;
  std::size_t count = 0;
  std::size_t room = 0;
};

Lock lock;
Table allocations;  // key: a number of ours; size: bytes; owner: handles + mappings
Table handles;      // key: the driver's handle; size: how often held; owner: the allocation
Mappings mappings;
std::uint64_t last_allocation = 0;

bool make_room() {
  if (mappings.count < mappings.room) return true;
  const std::size_t room = mappings.room == 0 ? 1024 : mappings.room * 2;
  void* memory = mmap(nullptr, room * sizeof(Mapping), PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return false;
  if (mappings.all != nullptr) {
    std::memcpy(memory, mappings.all, mappings.count * sizeof(Mapping));
    (void)munmap(mappings.all, mappings.room * sizeof(Mapping));
  }
  mappings.all = static_cast<Mapping*>(memory);
  mappings.room = room;
  return true;
}

// The first mapping that ends after the address.
std::size_t first_after(std::uint64_t address) {
  std::size_t low = 0;
  std::size_t high = mappings.count;
  while (low < high) {
    const std::size_t middle = (low + high) / 2;
    if (mappings.all[middle].address + mappings.all[middle].size <= address)
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

void drop_reference(std::uint64_t allocation) {
  Record* record = allocations.find(allocation);
  if (record == nullptr || --record->owner != 0) return;
  Record gone{};
  (void)allocations.remove(allocation, &gone);
  release(gone.gpu, gone.size);
}

void hold_handle(CUmemHandle handle, std::uint64_t allocation) {
  Record* record = allocations.find(allocation);
  if (record == nullptr) return;
  ++record->owner;
  if (Record* held = handles.find(handle); held != nullptr && held->owner == allocation)
    ++held->size;
  else
    (void)handles.insert({handle, 1, allocation, 0, 0});
}

void count_import() {
  int gpu = kNoGpu;
  CUcontext context = nullptr;
  if (!current_gpu(&gpu, &context)) return;
  if (aliquot_use* use = own_use(gpu)) (void)__atomic_add_fetch(&use->imports, 1, __ATOMIC_RELAXED);
}

}  // namespace

void reset_mappings() {
  lock = {};
  allocations.reset();
  handles.reset();
  mappings = {};
}

ALIQUOT_HOOK cuMemCreate(CUmemHandle* out, std::size_t size, const CUmemAllocationProp* prop,
                         unsigned long long flags) {
  const auto call = [&] { return real::cuMemCreate(out, size, prop, flags); };
  if (!governed() || out == nullptr || prop == nullptr || size == 0 ||
      prop->location.type != kLocationDevice)
    return call();
  const int gpu = gpu_of_device(prop->location.id);
  CUuuid uuid{};
  if (gpu < 0 && real::cuDeviceGetUuid(&uuid, prop->location.id) != kSuccess) return call();
  const std::uint64_t bytes = round_up(size, kGranularity);
  if (!reserve_or_squeeze(gpu, bytes)) return kOutOfMemory;
  const CUresult r = insist(call);
  if (r != kSuccess) {
    release(gpu, bytes);
    return r;
  }
  const Hold hold(lock);
  const std::uint64_t number = ++last_allocation;
  (void)allocations.insert({number, bytes, 0, gpu, 0});
  hold_handle(*out, number);
  return r;
}

ALIQUOT_HOOK cuMemRelease(CUmemHandle handle) {
  if (!governed()) return real::cuMemRelease(handle);
  // Under the lock: the driver may give the number to someone else as soon as it is free.
  const Hold hold(lock);
  const CUresult r = real::cuMemRelease(handle);
  Record* held = handles.find(handle);
  if (r != kSuccess || held == nullptr) return r;
  const std::uint64_t allocation = held->owner;
  if (--held->size == 0) {
    Record gone{};
    (void)handles.remove(handle, &gone);
  }
  drop_reference(allocation);
  return r;
}

ALIQUOT_HOOK cuMemRetainAllocationHandle(CUmemHandle* out, void* address) {
  if (!governed()) return real::cuMemRetainAllocationHandle(out, address);
  const Hold hold(lock);
  const CUresult r = real::cuMemRetainAllocationHandle(out, address);
  if (r != kSuccess) return r;
  const auto at = reinterpret_cast<std::uintptr_t>(address);
  const std::size_t i = first_after(at);
  if (i < mappings.count && mappings.all[i].address <= at)
    hold_handle(*out, mappings.all[i].allocation);
  return r;
}

ALIQUOT_HOOK cuMemMap(CUdeviceptr address, std::size_t size, std::size_t offset, CUmemHandle handle,
                      unsigned long long flags) {
  const auto call = [&] { return real::cuMemMap(address, size, offset, handle, flags); };
  if (!governed()) return call();
  const Hold hold(lock);
  const Record* held = handles.find(handle);
  // Imported memory has no record here: its owner keeps the count.
  if (held == nullptr) return call();
  if (!make_room()) return kOutOfMemory;
  const CUresult r = call();
  if (r != kSuccess) return r;
  const std::size_t i = first_after(address);
  std::memmove(mappings.all + i + 1, mappings.all + i, (mappings.count - i) * sizeof(Mapping));
  mappings.all[i] = {address, size, held->owner};
  ++mappings.count;
  ++allocations.find(held->owner)->owner;
  return r;
}

ALIQUOT_HOOK cuMemUnmap(CUdeviceptr address, std::size_t size) {
  if (!governed()) return real::cuMemUnmap(address, size);
  const Hold hold(lock);
  const CUresult r = real::cuMemUnmap(address, size);
  if (r != kSuccess) return r;
  // The range may cover several mappings, each whole.
  const std::size_t first = first_after(address);
  std::size_t last = first;
  while (last < mappings.count && mappings.all[last].address < address + size)
    drop_reference(mappings.all[last++].allocation);
  std::memmove(mappings.all + first, mappings.all + last,
               (mappings.count - last) * sizeof(Mapping));
  mappings.count -= last - first;
  return r;
}

ALIQUOT_HOOK cuMemImportFromShareableHandle(CUmemHandle* out, void* os_handle, int type) {
  const bool ours = governed();
  const CUresult r = real::cuMemImportFromShareableHandle(out, os_handle, type);
  if (ours && r == kSuccess) count_import();
  return r;
}

ALIQUOT_HOOK cuIpcOpenMemHandle(CUdeviceptr* out, CUipcMemHandle handle, unsigned flags) {
  const bool ours = governed();
  const CUresult r = real::cuIpcOpenMemHandle(out, handle, flags);
  if (ours && r == kSuccess) count_import();
  return r;
}

ALIQUOT_HOOK cuIpcOpenMemHandle_v2(CUdeviceptr* out, CUipcMemHandle handle, unsigned flags) {
  const bool ours = governed();
  const CUresult r = real::cuIpcOpenMemHandle_v2(out, handle, flags);
  if (ours && r == kSuccess) count_import();
  return r;
}

}  // namespace aliquot::enforce
