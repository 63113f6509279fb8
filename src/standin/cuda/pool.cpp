#include "standin/cuda/pool.hpp"

#include <algorithm>
#include <map>
#include <set>

#include "standin/cuda/driver.hpp"
#include "standin/cuda/graph.hpp"
#include "standin/cuda/memory.hpp"
#include "standin/cuda/stream.hpp"

namespace aliquot::standin {
namespace {

constexpr std::uint64_t kPiece = 32ULL << 20;

struct Pools {
  std::set<Pool*> all;
  std::map<unsigned, Pool*> standard;  // by GPU
  std::map<unsigned, Pool*> current;
};

Pools& pools() {
  static Pools* const p = new Pools;
  return *p;
}

Pool* standard_pool(CUdevice device) {
  Driver& driver = Driver::instance();
  const std::lock_guard lock(driver.mutex);
  Pool*& pool = pools().standard[driver.gpu_of(device)];
  if (pool == nullptr) {
    pool = new Pool;
    pool->gpu = driver.gpu_of(device);
    pool->device = device;
    pool->standard = true;
    pools().all.insert(pool);
  }
  return pool;
}

Pool* current_pool(CUdevice device) {
  const std::lock_guard lock(Driver::instance().mutex);
  Pool* chosen = pools().current[Driver::instance().gpu_of(device)];
  return chosen != nullptr ? chosen : standard_pool(device);
}

bool is_pool(Pool* pool) {
  const std::lock_guard lock(Driver::instance().mutex);
  return pools().all.contains(pool) && !pool->destroyed;
}

// Freed by other streams than this one, which have not got there: nobody else's to use yet.
std::uint64_t still_pending(Pool* pool, const LaneRef* own) {
  std::erase_if(pool->pending, [](const auto& each) { return reached(*each.lane, each.mark); });
  std::uint64_t sum = 0;
  for (const PendingFree& each : pool->pending)
    if (own == nullptr || each.lane.get() != own) sum += each.bytes;
  return sum;
}

// What does not fit beside everything that is pending lies where the stream itself freed.
void reuse_pending(Pool* pool, const LaneRef* own, std::uint64_t used) {
  const std::uint64_t all = used + still_pending(pool, nullptr);
  std::uint64_t inside = all > pool->reserved ? all - pool->reserved : 0;
  for (PendingFree& each : pool->pending) {
    if (each.lane.get() != own) continue;
    const std::uint64_t part = std::min(each.bytes, inside);
    each.bytes -= part;
    inside -= part;
  }
}

CUresult allocate_from(Pool* pool, const Stream* stream, std::size_t size, CUdeviceptr* out) {
  if (out == nullptr || size == 0) return kInvalidValue;
  if (const CUresult r = pool_take(pool, size, stream); r != kSuccess) return r;
  Block block;
  block.size = size;
  block.kind = BlockKind::pool;
  block.context = stream->context;
  block.gpu = pool->gpu;
  block.pool = pool;
  block.backed = size <= kBackedLimit;
  block.base = reinterpret_cast<std::uintptr_t>(reserve_range(size, block.backed));
  if (block.base == 0) {
    pool_give_back(pool, size);
    return kOutOfMemory;
  }
  memory_insert(block);
  *out = block.base;
  return kSuccess;
}

}  // namespace

CUresult pool_take(Pool* pool, std::size_t size, const Stream* stream) {
  Driver& driver = Driver::instance();
  const std::lock_guard lock(driver.mutex);
  const std::uint64_t used = pool->used + round_up(size, 512);
  if (pool->max_size != 0 && used > pool->max_size) return kOutOfMemory;
  const std::uint64_t needed = used + still_pending(pool, stream->lane.get());
  if (needed > pool->reserved) {
    const std::uint64_t more = round_up(needed, kPiece) - pool->reserved;
    if (const CUresult r = driver.charge(pool->gpu, more); r != kSuccess) return r;
    pool->reserved += more;
    pool->reserved_high = std::max(pool->reserved_high, pool->reserved);
  }
  reuse_pending(pool, stream->lane.get(), used);
  pool->used = used;
  pool->used_high = std::max(pool->used_high, used);
  return kSuccess;
}

void pool_give_back(Pool* pool, std::size_t size, Stream* stream) {
  const std::lock_guard lock(Driver::instance().mutex);
  pool->used -= round_up(size, 512);
  if (stream != nullptr && !drained(stream))
    pool->pending.push_back({stream->lane, last_mark(*stream), round_up(size, 512)});
  if (pool->destroyed) pool_trim(pool, 0);
}

void pool_trim(Pool* pool, std::uint64_t keep) {
  const std::lock_guard lock(Driver::instance().mutex);
  const std::uint64_t busy = pool->used + still_pending(pool, nullptr);
  const std::uint64_t wanted = round_up(std::max(busy, keep), kPiece);
  if (wanted >= pool->reserved) return;
  Driver::instance().refund(pool->gpu, pool->reserved - wanted);
  pool->reserved = wanted;
}

void pools_synchronized(unsigned gpu) {
  const std::lock_guard lock(Driver::instance().mutex);
  for (Pool* pool : pools().all)
    if (pool->gpu == gpu) pool_trim(pool, pool->threshold);
}

CU_API cuMemPoolCreate(CUmemoryPool* out, const CUmemPoolProps* props) {
  Driver& driver = Driver::instance();
  if (const CUresult r = driver.ready(); r != kSuccess) return r;
  if (out == nullptr || props == nullptr || props->location.type != kLocationDevice)
    return kInvalidValue;
  if (!driver.is_device(props->location.id)) return kInvalidDevice;
  auto* pool = new Pool;
  pool->device = props->location.id;
  pool->gpu = driver.gpu_of(props->location.id);
  pool->max_size = props->maxSize;
  const std::lock_guard lock(driver.mutex);
  pools().all.insert(pool);
  *out = pool;
  return kSuccess;
}

CU_API cuMemPoolDestroy(CUmemoryPool pool) {
  Driver& driver = Driver::instance();
  if (const CUresult r = driver.ready(); r != kSuccess) return r;
  const std::lock_guard lock(driver.mutex);
  if (!is_pool(pool) || pool->standard) return kInvalidValue;
  // What is still allocated keeps its memory until it is freed; the pool object stays for it.
  pool->destroyed = true;
  if (pools().current[pool->gpu] == pool) pools().current.erase(pool->gpu);
  pool_trim(pool, 0);
  return kSuccess;
}

CU_API cuMemPoolTrimTo(CUmemoryPool pool, std::size_t keep) {
  if (const CUresult r = Driver::instance().ready(); r != kSuccess) return r;
  if (!is_pool(pool)) return kInvalidValue;
  pool_trim(pool, keep);
  return kSuccess;
}

CU_API cuDeviceGetDefaultMemPool(CUmemoryPool* out, CUdevice device) {
  if (const CUresult r = Driver::instance().ready(); r != kSuccess) return r;
  if (!Driver::instance().is_device(device)) return kInvalidDevice;
  return give(out, standard_pool(device));
}

CU_API cuDeviceGetMemPool(CUmemoryPool* out, CUdevice device) {
  if (const CUresult r = Driver::instance().ready(); r != kSuccess) return r;
  if (!Driver::instance().is_device(device)) return kInvalidDevice;
  return give(out, current_pool(device));
}

CU_API cuDeviceSetMemPool(CUdevice device, CUmemoryPool pool) {
  Driver& driver = Driver::instance();
  if (const CUresult r = driver.ready(); r != kSuccess) return r;
  if (!driver.is_device(device)) return kInvalidDevice;
  const std::lock_guard lock(driver.mutex);
  if (!is_pool(pool) || pool->gpu != driver.gpu_of(device)) return kInvalidValue;
  pools().current[pool->gpu] = pool;
  return kSuccess;
}

CU_API cuMemPoolGetAttribute(CUmemoryPool pool, int attribute, void* value) {
  if (const CUresult r = Driver::instance().ready(); r != kSuccess) return r;
  if (!is_pool(pool) || value == nullptr) return kInvalidValue;
  const std::uint64_t numbers[] = {pool->threshold, pool->reserved, pool->reserved_high, pool->used,
                                   pool->used_high};
  if (attribute >= 1 && attribute <= 3)
    *static_cast<int*>(value) = pool->reuse[attribute - 1];
  else if (attribute >= 4 && attribute <= 8)
    *static_cast<std::uint64_t*>(value) = numbers[attribute - 4];
  else
    return kInvalidValue;
  return kSuccess;
}

CU_API cuMemPoolSetAttribute(CUmemoryPool pool, int attribute, void* value) {
  if (const CUresult r = Driver::instance().ready(); r != kSuccess) return r;
  if (!is_pool(pool) || value == nullptr) return kInvalidValue;
  const std::lock_guard lock(Driver::instance().mutex);
  switch (attribute) {
    case 1:
    case 2:
    case 3:
      pool->reuse[attribute - 1] = *static_cast<int*>(value);
      return kSuccess;
    case 4:
      pool->threshold = *static_cast<std::uint64_t*>(value);
      return kSuccess;
    case 6:
      pool->reserved_high = pool->reserved;
      return kSuccess;  // a high mark can only be reset
    case 8:
      pool->used_high = pool->used;
      return kSuccess;
    default:
      return kInvalidValue;
  }
}

CU_API cuMemPoolSetAccess(CUmemoryPool pool, const CUmemAccessDesc* map, std::size_t) {
  if (const CUresult r = Driver::instance().ready(); r != kSuccess) return r;
  return is_pool(pool) && map != nullptr ? kSuccess : kInvalidValue;
}

CU_API cuMemPoolGetAccess(int* flags, CUmemoryPool pool, CUmemLocation*) {
  if (const CUresult r = Driver::instance().ready(); r != kSuccess) return r;
  return is_pool(pool) ? give(flags, 3) : kInvalidValue;
}

CU_API_STREAM(cuMemAllocAsync, _ptsz, (CUdeviceptr * out, std::size_t size, CUstream stream),
              (out, size, stream)) {
  Stream* s = nullptr;
  if (const CUresult r = resolve_stream(stream, &s); r != kSuccess) return r;
  if (s->capture != nullptr) return capture_allocate(s, size, out);
  return allocate_from(current_pool(s->context->device), s, size, out);
}

CU_API_STREAM(cuMemAllocFromPoolAsync, _ptsz,
              (CUdeviceptr * out, std::size_t size, CUmemoryPool pool, CUstream stream),
              (out, size, pool, stream)) {
  Stream* s = nullptr;
  if (const CUresult r = resolve_stream(stream, &s); r != kSuccess) return r;
  if (!is_pool(pool)) return kInvalidValue;
  if (s->capture != nullptr) return capture_allocate(s, size, out);
  return allocate_from(pool, s, size, out);
}

CU_API_STREAM(cuMemFreeAsync, _ptsz, (CUdeviceptr address, CUstream stream), (address, stream)) {
  Stream* s = nullptr;
  if (const CUresult r = resolve_stream(stream, &s); r != kSuccess) return r;
  if (s->capture != nullptr) return capture_free(s, address);
  return memory_free(address, s);
}

}  // namespace aliquot::standin
