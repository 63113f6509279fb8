// Memory that the driver keeps in stock: pools. Charged for what is reserved, not for what is used.
// Growth is reserved before the call that may cause it; after the call the driver says what it
// really reserved. Stock shrinks at synchronisation, so that is where it is looked at again. What
// is freed on a stream serves others only when the stream has got there: until then a pool grows
// for them, though it says that nothing is used (measured).
#include <time.h>

#include "enforce/descriptors.hpp"
#include "enforce/mappings.hpp"
#include "enforce/memory.hpp"
#include "enforce/overhead.hpp"
#include "enforce/patience.hpp"
#include "enforce/reset.hpp"

namespace aliquot::enforce {
namespace {

enum PoolKind : std::uint32_t { pool_live, pool_destroyed, pool_imported, pool_left };

// The name under which the descriptors of a pool are followed: no number of an allocation.
std::uint64_t name_of(const Record& pool) { return pool.key | 1ULL << 63; }

constexpr std::uint64_t kExported = 1;  // as `owner` of a live pool

Lock lock;    // held over the driver's call: what is reserved must not move in between
Table pools;  // key: the pool; size: charged; owner: bytes still allocated from a destroyed one

// Bytes freed on streams since these were last waited for.
struct Pending {
  CUstream stream;
  int gpu;
  std::uint64_t bytes;
};
constexpr std::size_t kMostPending = 64;
Pending pending[kMostPending];
std::size_t pending_count = 0;

constexpr std::uint64_t kPatience = 10'000'000'000;  // ns, for frees under way

std::uint64_t attribute(CUmempool pool, int which, std::uint64_t otherwise) {
  std::uint64_t value = 0;
  return real::cuMemPoolGetAttribute(pool, which, &value) == kSuccess ? value : otherwise;
}

CUmempool handle_of(const Record& pool) { return reinterpret_cast<CUmempool>(pool.key); }

// A pool that was exported and then destroyed is on the GPU while an importer has it, attributed to
// nobody. Which one it is cannot be told: any import counts.
bool is_left(const Record& pool) {
  return others_import(pool.gpu) || OpenDescriptors().any(name_of(pool));
}

bool settle(Record* pool) {
  if (pool->kind == pool_left) return true;
  const std::uint64_t reserved =
      pool->kind == pool_destroyed ? round_up(pool->owner, kPoolPiece)
                                   : attribute(handle_of(*pool), kPoolReservedCurrent, pool->size);
  return change_charge(pool->gpu, &pool->size, reserved);
}

void settle_all() {
  for (std::size_t i = 0; i < pools.places();) {
    Record& pool = pools.at(i);
    if (pool.key == 0 || pool.kind != pool_left || is_left(pool)) {
      if (pool.key != 0) (void)settle(&pool);
      ++i;
      continue;
    }
    release(pool.gpu, pool.size);
    remove_unattributed(pool.gpu, pool.size);
    pools.remove_at(i);
  }
}

void drop_pending(std::size_t i) { pending[i] = pending[--pending_count]; }

void forget_pending(CUstream stream) {
  for (std::size_t i = 0; i < pending_count;)
    if (pending[i].stream == stream)
      drop_pending(i);
    else
      ++i;
}

void note_pending(CUstream stream, int gpu, std::uint64_t bytes) {
  for (std::size_t i = 0; i < pending_count; ++i)
    if (pending[i].stream == stream && pending[i].gpu == gpu) {
      pending[i].bytes += bytes;
      return;
    }
  // Too many streams at once: the first is taken to have come that far.
  if (pending_count == kMostPending) drop_pending(0);
  pending[pending_count++] = {stream, gpu, bytes};
}

bool has_ended(CUstream stream) {
  const RelaxedCapture relaxed;
  return !is_capturing(stream) && real::cuStreamQuery(stream) == kSuccess;
}

std::uint64_t pending_elsewhere(int gpu, CUstream stream) {
  std::uint64_t sum = 0;
  for (std::size_t i = 0; i < pending_count; ++i)
    if (pending[i].gpu == gpu && pending[i].stream != stream) sum += pending[i].bytes;
  return sum;
}

// How much a pool may grow when so much more is taken from it on that stream.
std::uint64_t growth(const Record& pool, std::uint64_t size, CUstream stream) {
  const std::uint64_t used =
      attribute(handle_of(pool), kPoolUsedCurrent, 0) + pending_elsewhere(pool.gpu, stream);
  const std::uint64_t wanted = used + round_up(size, kSmallPiece);
  if (wanted < used) return UINT64_MAX / 2;
  return wanted <= pool.size ? 0 : round_up(wanted, kPoolPiece) - pool.size;
}

// Reserves what the pool may grow by; looks at which frees are over before it says no.
bool reserve_growth(const Record& pool, std::uint64_t size, CUstream stream, std::uint64_t* more) {
  *more = growth(pool, size, stream);
  if (reserve(pool.gpu, *more)) return true;
  for (std::size_t i = 0; i < pending_count;)
    if (has_ended(pending[i].stream))
      drop_pending(i);
    else
      ++i;
  *more = growth(pool, size, stream);
  return reserve(pool.gpu, *more);
}

template <class Call>
CUresult allocate_once(CUmempool handle, int gpu, CUdeviceptr* out, std::uint64_t size,
                       CUstream stream, Call call) {
  const Hold hold(lock);
  __atomic_store_n(&pools_used, true, __ATOMIC_RELAXED);
  const auto key = reinterpret_cast<std::uintptr_t>(handle);
  if (pools.find(key) == nullptr && !pools.insert({key, 0, 0, gpu, pool_live})) return kOutOfMemory;
  Record* pool = pools.find(key);
  (void)settle(pool);
  std::uint64_t more = 0;
  if (!reserve_growth(*pool, size, stream, &more)) return kRefused;
  pool->size += more;
  const CUresult r = insist(call);
  const bool fits = settle(pool);
  if (r != kSuccess) return r;
  if (!fits) {
    // It grew by more than pools do. Give it back at once.
    (void)real::cuMemFreeAsync(*out, stream);
    (void)real::cuStreamSynchronize(stream);
    (void)real::cuMemPoolTrimTo(handle, 0);
    (void)settle(pool);
    return kRefused;
  }
  track(*out, size, gpu, block_pool, key);
  return r;
}

template <class Call>
CUresult allocate(CUmempool handle, int gpu, CUdeviceptr* out, std::uint64_t size, CUstream stream,
                  Call call) {
  return persevere(gpu, [&] { return allocate_once(handle, gpu, out, size, stream, call); });
}

template <class Call>
CUresult allocate_async(CUdeviceptr* out, std::size_t size, CUstream stream, Call call) {
  int gpu = kNoGpu;
  CUdevice device = 0;
  CUmempool pool = nullptr;
  // In a capture nothing is allocated yet: the graph does that when it runs.
  if (out == nullptr || size == 0 || !stream_gpu(stream, &gpu, &device) || is_capturing(stream) ||
      real::cuDeviceGetMemPool(&pool, device) != kSuccess)
    return call();
  return allocate(pool, gpu, out, size, stream, call);
}

template <class Call>
CUresult allocate_from(CUmempool pool, CUdeviceptr* out, std::size_t size, CUstream stream,
                       Call call) {
  int gpu = kNoGpu;
  CUdevice device = 0;
  if (out == nullptr || size == 0 || pool == nullptr || !stream_gpu(stream, &gpu, &device) ||
      is_capturing(stream))
    return call();
  {
    // A pool may lie on another GPU than the stream, or in the host's memory.
    const Hold hold(lock);
    if (const Record* known = pools.find(reinterpret_cast<std::uintptr_t>(pool))) gpu = known->gpu;
  }
  if (gpu == kNoGpu - 1) return call();
  return allocate(pool, gpu, out, size, stream, call);
}

template <class Call>
CUresult free_async(CUdeviceptr address, CUstream stream, Call call) {
  return free_tracked(address, call, [=](const Record& record) {
    refund(record);
    if (record.kind != block_pool) return;
    const Hold hold(lock);
    note_pending(stream, record.gpu, round_up(record.size, kSmallPiece));
  });
}

}  // namespace

bool pools_used = false;

void reset_pools() {
  lock = {};
  pools.reset();
  pools_used = false;
  pending_count = 0;
}

bool change_charge(int gpu, std::uint64_t* charged, std::uint64_t wanted) {
  bool fits = true;
  if (wanted < *charged)
    release(gpu, *charged - wanted);
  else if (wanted > *charged && !reserve(gpu, wanted - *charged)) {
    reserve_anyway(gpu, wanted - *charged);
    fits = false;
  }
  *charged = wanted;
  return fits;
}

void squeeze(int gpu) {
  if (gpu < 0) return;
  look_at_bindings();
  look_at_exports();
  const RelaxedCapture relaxed;
  if (__atomic_load_n(&pools_used, __ATOMIC_RELAXED)) {
    const Hold hold(lock);
    for (std::size_t i = 0; i < pools.places(); ++i) {
      const Record& pool = pools.at(i);
      if (pool.key != 0 && pool.gpu == gpu && pool.kind == pool_live)
        (void)real::cuMemPoolTrimTo(handle_of(pool), 0);
    }
    settle_all();
  }
  trim_graphs(gpu);
}

bool wait_for_stream(CUstream stream, std::uint64_t until_ns) {
  for (;;) {
    if (has_ended(stream)) return true;
    if (now_ns() >= until_ns) return false;
    const timespec pause{0, 200'000};
    (void)nanosleep(&pause, nullptr);
  }
}

void make_room(int gpu) {
  const std::uint64_t until = now_ns() + kPatience;
  CUstream streams[kMostPending];
  std::size_t count = 0;
  {
    const Hold hold(lock);
    for (std::size_t i = 0; i < pending_count; ++i)
      if (pending[i].gpu == gpu) streams[count++] = pending[i].stream;
  }
  // Without the lock: what a stream waits for may be another thread of this program.
  for (std::size_t i = 0; i < count; ++i)
    if (wait_for_stream(streams[i], until)) pools_stream_gone(streams[i]);
  wait_for_graphs(gpu, until);
  squeeze(gpu);
}

void pools_stream_gone(CUstream stream) {
  if (!__atomic_load_n(&pools_used, __ATOMIC_RELAXED)) return;
  const Hold hold(lock);
  forget_pending(stream);
}

void pools_waited(CUstream stream, bool all) {
  int gpu = kNoGpu;
  CUcontext context = nullptr;
  if (__atomic_load_n(&pools_used, __ATOMIC_RELAXED)) {
    if (all && !current_gpu(&gpu, &context)) all = false;
    const Hold hold(lock);
    for (std::size_t i = 0; i < pending_count;)
      if (all ? pending[i].gpu == gpu : pending[i].stream == stream)
        drop_pending(i);
      else
        ++i;
  }
  settle_pools();
}

void settle_pools() {
  settle_graphs();
  if (!__atomic_load_n(&pools_used, __ATOMIC_RELAXED)) return;
  const Hold hold(lock);
  settle_all();
}

void pool_block_freed(const Record& record) {
  const Hold hold(lock);
  Record* pool = pools.find(record.owner);
  if (pool == nullptr || pool->kind != pool_destroyed) return;
  const std::uint64_t size = round_up(record.size, kSmallPiece);
  pool->owner -= size < pool->owner ? size : pool->owner;
  (void)settle(pool);
  Record gone{};
  if (pool->owner == 0) (void)pools.remove(record.owner, &gone);
}

bool stream_gpu(CUstream stream, int* gpu, CUdevice* device) {
  if (real::cuCtxGetDevice(device) != kSuccess) return false;
  // A stream may be of another context than the current one. The first three handles are not.
  CUcontext current = nullptr;
  CUcontext its = nullptr;
  if (reinterpret_cast<std::uintptr_t>(stream) >
          reinterpret_cast<std::uintptr_t>(kPerThreadStream) &&
      real::cuStreamGetCtx(stream, &its) == kSuccess &&
      real::cuCtxGetCurrent(&current) == kSuccess && its != nullptr && its != current &&
      real::cuCtxPushCurrent_v2(its) == kSuccess) {
    const CUresult r = real::cuCtxGetDevice(device);
    (void)real::cuCtxPopCurrent_v2(&its);
    if (r != kSuccess) return false;
  }
  *gpu = gpu_of_device(*device);
  return true;
}

bool is_capturing(CUstream stream) {
  int status = kCaptureNone;
  return real::cuStreamIsCapturing(stream, &status) != kSuccess || status != kCaptureNone;
}

// ---- the entry points -------------------------------------------------------------------------

ALIQUOT_HOOK cuMemAllocAsync(CUdeviceptr* out, std::size_t size, CUstream stream) {
  const auto call = [&] { return real::cuMemAllocAsync(out, size, stream); };
  return governed() ? allocate_async(out, size, stream, call) : call();
}

ALIQUOT_HOOK cuMemAllocAsync_ptsz(CUdeviceptr* out, std::size_t size, CUstream stream) {
  const auto call = [&] { return real::cuMemAllocAsync_ptsz(out, size, stream); };
  return governed() ? allocate_async(out, size, stream == nullptr ? kPerThreadStream : stream, call)
                    : call();
}

ALIQUOT_HOOK cuMemAllocFromPoolAsync(CUdeviceptr* out, std::size_t size, CUmempool pool,
                                     CUstream stream) {
  const auto call = [&] { return real::cuMemAllocFromPoolAsync(out, size, pool, stream); };
  return governed() ? allocate_from(pool, out, size, stream, call) : call();
}

ALIQUOT_HOOK cuMemAllocFromPoolAsync_ptsz(CUdeviceptr* out, std::size_t size, CUmempool pool,
                                          CUstream stream) {
  const auto call = [&] { return real::cuMemAllocFromPoolAsync_ptsz(out, size, pool, stream); };
  return governed()
             ? allocate_from(pool, out, size, stream == nullptr ? kPerThreadStream : stream, call)
             : call();
}

ALIQUOT_HOOK cuMemFreeAsync(CUdeviceptr address, CUstream stream) {
  const auto call = [&] { return real::cuMemFreeAsync(address, stream); };
  return governed() ? free_async(address, stream, call) : call();
}

ALIQUOT_HOOK cuMemFreeAsync_ptsz(CUdeviceptr address, CUstream stream) {
  const auto call = [&] { return real::cuMemFreeAsync_ptsz(address, stream); };
  return governed() ? free_async(address, stream == nullptr ? kPerThreadStream : stream, call)
                    : call();
}

ALIQUOT_HOOK cuMemPoolCreate(CUmempool* out, const CUmemPoolProps* props) {
  const bool ours = governed();
  const CUresult r = real::cuMemPoolCreate(out, props);
  if (!ours || r != kSuccess) return r;
  const bool here = props->location.type == kLocationDevice;
  const Hold hold(lock);
  // One below kNoGpu: the host's memory, which is not counted.
  const int gpu = here ? gpu_of_device(props->location.id) : kNoGpu - 1;
  (void)pools.insert({reinterpret_cast<std::uintptr_t>(*out), 0, 0, gpu, pool_live});
  __atomic_store_n(&pools_used, true, __ATOMIC_RELAXED);
  return r;
}

ALIQUOT_HOOK cuMemPoolDestroy(CUmempool pool) {
  if (!governed()) return real::cuMemPoolDestroy(pool);
  const Hold hold(lock);
  const std::uint64_t used = attribute(pool, kPoolUsedCurrent, 0);
  Record* known = pools.find(reinterpret_cast<std::uintptr_t>(pool));
  if (known != nullptr) (void)settle(known);
  const CUresult r = real::cuMemPoolDestroy(pool);
  if (r != kSuccess || known == nullptr) return r;
  if (known->kind == pool_imported) {
    Record gone{};
    remove_detail(detail_imports, known->gpu, 1);
    (void)pools.remove(known->key, &gone);
    return r;
  }
  if (known->owner == kExported && known->size != 0 && is_left(*known)) {
    // Under another key: the driver may give the handle to a new pool.
    Record left{};
    (void)pools.remove(known->key, &left);
    add_unattributed(left.gpu, left.size);
    (void)pools.insert({name_of(left), left.size, 0, left.gpu, pool_left});
    return r;
  }
  // What is still allocated keeps its memory until it is freed, and cannot be asked for any more.
  known->kind = pool_destroyed;
  known->owner = used;
  (void)settle(known);
  Record gone{};
  if (used == 0) (void)pools.remove(reinterpret_cast<std::uintptr_t>(pool), &gone);
  return r;
}

ALIQUOT_HOOK cuMemPoolTrimTo(CUmempool pool, std::size_t keep) {
  const bool ours = governed();
  const CUresult r = real::cuMemPoolTrimTo(pool, keep);
  if (ours) settle_pools();
  return r;
}

ALIQUOT_HOOK cuMemPoolExportToShareableHandle(void* out, CUmempool pool, int type,
                                              unsigned long long flags) {
  constexpr int kPosixDescriptor = 1;
  const bool ours = governed();
  const CUresult r = real::cuMemPoolExportToShareableHandle(out, pool, type, flags);
  if (!ours || r != kSuccess || type != kPosixDescriptor) return r;
  const Hold hold(lock);
  Record* known = pools.find(reinterpret_cast<std::uintptr_t>(pool));
  if (known == nullptr || known->kind != pool_live) return r;
  known->owner = kExported;
  follow_descriptor(*static_cast<int*>(out), name_of(*known));
  return r;
}

ALIQUOT_HOOK cuMemPoolImportFromShareableHandle(CUmempool* out, void* os_handle, int type,
                                                unsigned long long flags) {
  const bool ours = governed();
  const CUresult r = real::cuMemPoolImportFromShareableHandle(out, os_handle, type, flags);
  int gpu = kNoGpu;
  CUcontext context = nullptr;
  if (!ours || r != kSuccess || !current_gpu(&gpu, &context)) return r;
  const Hold hold(lock);
  __atomic_store_n(&pools_used, true, __ATOMIC_RELAXED);
  if (pools.insert({reinterpret_cast<std::uintptr_t>(*out), 0, 0, gpu, pool_imported}))
    add_detail(detail_imports, gpu, 1);
  return r;
}

}  // namespace aliquot::enforce
