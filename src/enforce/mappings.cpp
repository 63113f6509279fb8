// Virtual memory management, exports and imports. Physical memory leaves only when no handle, no
// mapping and no descriptor is left: programs release the handle at once and live on the mapping,
// or hand a descriptor on. What only a descriptor holds is attributed to nobody by NVML, and stays
// charged to who exported it; what an importer holds and its owner does not, NVML attributes to the
// importer, which counts (grant.cpp).
#include "enforce/mappings.hpp"

#include <cstring>

#include <sys/mman.h>

#include "enforce/descriptors.hpp"
#include "enforce/memory.hpp"
#include "enforce/overhead.hpp"
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

// What is known of an allocation, as bits.
enum AllocationKind : std::uint32_t {
  allocation_own = 0,
  allocation_imported = 1,      // of another process: no bytes of ours
  allocation_exported = 2,      // a descriptor of it may be open
  allocation_unattributed = 4,  // only descriptors hold it
};

constexpr int kPosixDescriptor = 1;

Lock lock;
bool any_exported = false;
Table allocations;      // key: a number of ours; size: bytes; owner: handles + mappings
Table handles;          // key: the driver's handle; size: how often held; owner: the allocation
Table opened;           // key: the address of memory that was opened by a handle of IPC
Table blocks_exported;  // key: the address of a plain block; owner: the name of its descriptors
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

// Memory that its owner has released was attributed to us by NVML.
void import_ends(int gpu) {
  remove_detail(detail_imports, gpu, 1);
  overhead_gone(gpu);
}

void set_unattributed(Record* record, bool now) {
  const bool before = (record->kind & allocation_unattributed) != 0;
  if (now == before) return;
  record->kind ^= allocation_unattributed;
  if (now)
    add_unattributed(record->gpu, record->size);
  else
    remove_unattributed(record->gpu, record->size);
}

void forget(std::uint64_t allocation) {
  Record gone{};
  if (!allocations.remove(allocation, &gone)) return;
  if ((gone.kind & allocation_imported) != 0) {
    import_ends(gone.gpu);
    return;
  }
  if ((gone.kind & allocation_unattributed) != 0) remove_unattributed(gone.gpu, gone.size);
  release(gone.gpu, gone.size);
}

// Finds the descriptors that were closed since the last look, and the memory that went with them.
void settle_exports() {
  if (!any_exported) return;
  const OpenDescriptors open;
  any_exported = false;
  for (std::size_t i = 0; i < allocations.places();) {
    Record& record = allocations.at(i);
    if (record.key == 0 || (record.kind & allocation_exported) == 0) {
      ++i;
      continue;
    }
    if (open.any(record.key)) {
      any_exported = true;
      ++i;
      continue;
    }
    record.kind &= ~static_cast<std::uint32_t>(allocation_exported);
    remove_detail(detail_exported, record.gpu, record.size);
    // Removal may move another record to this place: look at it again.
    if (record.owner == 0)
      forget(record.key);
    else
      ++i;
  }
}

void drop_reference(std::uint64_t allocation) {
  Record* record = allocations.find(allocation);
  if (record == nullptr || --record->owner != 0) return;
  if ((record->kind & allocation_exported) == 0) {
    forget(allocation);
    return;
  }
  set_unattributed(record, true);
  settle_exports();
}

void mark_exported(Record* record, int fd) {
  any_exported = true;
  if ((record->kind & allocation_exported) == 0) {
    record->kind |= allocation_exported;
    add_detail(detail_exported, record->gpu, record->size);
  }
  follow_descriptor(fd, record->key);
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

// A new record for memory that was imported under this key or handle.
void add_import(CUmemHandle handle) {
  int gpu = kNoGpu;
  CUcontext context = nullptr;
  CUmemAllocationProp prop{};
  if (real::cuMemGetAllocationPropertiesFromHandle(&prop, handle) == kSuccess &&
      prop.location.type == kLocationDevice)
    gpu = gpu_of_device(prop.location.id);
  else
    (void)current_gpu(&gpu, &context);
  const std::uint64_t number = ++last_allocation;
  (void)allocations.insert({number, 0, 0, gpu, allocation_imported});
  add_detail(detail_imports, gpu, 1);
  hold_handle(handle, number);
}

const Mapping* mapping_at(std::uint64_t address) {
  const std::size_t i = first_after(address);
  return i < mappings.count && mappings.all[i].address <= address ? &mappings.all[i] : nullptr;
}

std::uint64_t hold(std::uint64_t allocation) {
  Record* record = allocations.find(allocation);
  if (record == nullptr) return 0;
  ++record->owner;
  set_unattributed(record, false);
  return allocation;
}

template <class Open>
CUresult open_ipc(CUdeviceptr* out, Open open) {
  const bool ours = governed();
  const CUresult r = open();
  int gpu = kNoGpu;
  CUcontext context = nullptr;
  if (!ours || r != kSuccess || !current_gpu(&gpu, &context)) return r;
  const Hold hold(lock);
  (void)opened.insert({*out, 0, 0, gpu, 0});
  add_detail(detail_imports, gpu, 1);
  return r;
}

}  // namespace

std::uint64_t hold_by_handle(CUmemHandle handle) {
  const Hold held(lock);
  const Record* record = handles.find(handle);
  return record == nullptr ? 0 : hold(record->owner);
}

std::uint64_t hold_by_address(CUdeviceptr address) {
  const Hold held(lock);
  const Mapping* mapping = mapping_at(address);
  return mapping == nullptr ? 0 : hold(mapping->allocation);
}

void let_go(std::uint64_t allocation) {
  const Hold hold(lock);
  drop_reference(allocation);
}

void export_address(CUdeviceptr address, int fd) {
  CUdeviceptr base = 0;
  std::size_t size = 0;
  const Hold hold(lock);
  if (const Mapping* mapping = mapping_at(address)) {
    Record* record = allocations.find(mapping->allocation);
    if (record != nullptr && (record->kind & allocation_imported) == 0) mark_exported(record, fd);
    return;
  }
  if (real::cuMemGetAddressRange_v2(&base, &size, address) != kSuccess) return;
  Record* known = blocks_exported.find(base);
  const std::uint64_t number = known != nullptr ? known->owner : ++last_allocation;
  if (known == nullptr) (void)blocks_exported.insert({base, 0, number, 0, 0});
  follow_descriptor(fd, number);
}

bool keep_exported(CUdeviceptr base, int gpu, std::uint64_t bytes) {
  if (blocks_exported.size() == 0) return false;
  const Hold hold(lock);
  Record exported{};
  if (!blocks_exported.remove(base, &exported)) return false;
  if (!OpenDescriptors().any(exported.owner)) return false;
  (void)allocations.insert({exported.owner, bytes, 0, gpu, allocation_exported});
  any_exported = true;
  add_detail(detail_exported, gpu, bytes);
  set_unattributed(allocations.find(exported.owner), true);
  return true;
}

void look_at_exports() {
  if (!__atomic_load_n(&any_exported, __ATOMIC_RELAXED)) return;
  const Hold hold(lock);
  settle_exports();
}

void reset_mappings() {
  lock = {};
  allocations.reset();
  handles.reset();
  opened.reset();
  blocks_exported.reset();
  mappings = {};
  any_exported = false;
  reset_descriptors();
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
  if (const Mapping* mapping = mapping_at(reinterpret_cast<std::uintptr_t>(address)))
    hold_handle(*out, mapping->allocation);
  return r;
}

ALIQUOT_HOOK cuMemMap(CUdeviceptr address, std::size_t size, std::size_t offset, CUmemHandle handle,
                      unsigned long long flags) {
  const auto call = [&] { return real::cuMemMap(address, size, offset, handle, flags); };
  if (!governed()) return call();
  const Hold hold(lock);
  const Record* held = handles.find(handle);
  if (held == nullptr) return call();
  if (!make_room()) return kOutOfMemory;
  const CUresult r = call();
  if (r != kSuccess) return r;
  const std::size_t i = first_after(address);
  std::memmove(mappings.all + i + 1, mappings.all + i, (mappings.count - i) * sizeof(Mapping));
  mappings.all[i] = {address, size, held->owner};
  ++mappings.count;
  (void)enforce::hold(held->owner);
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

ALIQUOT_HOOK cuMemExportToShareableHandle(void* out, CUmemHandle handle, int type,
                                          unsigned long long flags) {
  const bool ours = governed();
  const Hold hold(lock);
  const CUresult r = real::cuMemExportToShareableHandle(out, handle, type, flags);
  // Only a descriptor keeps memory; other handles are mere names.
  if (!ours || r != kSuccess || type != kPosixDescriptor) return r;
  const Record* held = handles.find(handle);
  Record* record = held == nullptr ? nullptr : allocations.find(held->owner);
  if (record != nullptr && (record->kind & allocation_imported) == 0)
    mark_exported(record, *static_cast<int*>(out));
  return r;
}

ALIQUOT_HOOK cuMemImportFromShareableHandle(CUmemHandle* out, void* os_handle, int type) {
  const bool ours = governed();
  const std::uint64_t own =
      ours && type == kPosixDescriptor
          ? followed_name(static_cast<int>(reinterpret_cast<std::intptr_t>(os_handle)))
          : 0;
  const Hold hold(lock);
  const CUresult r = real::cuMemImportFromShareableHandle(out, os_handle, type);
  if (!ours || r != kSuccess) return r;
  // Back from a descriptor of our own, it is the same memory.
  if (own != 0 && allocations.find(own) != nullptr)
    hold_handle(*out, own);
  else
    add_import(*out);
  return r;
}

ALIQUOT_HOOK cuMemGetHandleForAddressRange(void* out, CUdeviceptr address, std::size_t size,
                                           int type, unsigned long long flags) {
  const bool ours = governed();
  const CUresult r = real::cuMemGetHandleForAddressRange(out, address, size, type, flags);
  if (ours && r == kSuccess) export_address(address, *static_cast<int*>(out));
  return r;
}

ALIQUOT_HOOK cuIpcOpenMemHandle(CUdeviceptr* out, CUipcMemHandle handle, unsigned flags) {
  return open_ipc(out, [&] { return real::cuIpcOpenMemHandle(out, handle, flags); });
}

ALIQUOT_HOOK cuIpcOpenMemHandle_v2(CUdeviceptr* out, CUipcMemHandle handle, unsigned flags) {
  return open_ipc(out, [&] { return real::cuIpcOpenMemHandle_v2(out, handle, flags); });
}

ALIQUOT_HOOK cuIpcCloseMemHandle(CUdeviceptr address) {
  const bool ours = governed();
  const CUresult r = real::cuIpcCloseMemHandle(address);
  if (!ours || r != kSuccess) return r;
  const Hold hold(lock);
  Record gone{};
  if (opened.remove(address, &gone)) import_ends(gone.gpu);
  return r;
}

}  // namespace aliquot::enforce
