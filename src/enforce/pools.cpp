// Memory that the driver keeps in stock: pools, and what graphs allocate when they run. Charged for
// what is reserved, not for what is used. Growth is reserved before the call that may cause it;
// after the call the driver says what it really reserved. Stock shrinks at synchronisation, so that
// is where it is looked at again.
#include <sys/mman.h>

#include "enforce/memory.hpp"
#include "enforce/patience.hpp"
#include "enforce/reset.hpp"

namespace aliquot::enforce {
namespace {

enum PoolKind : std::uint32_t { pool_live, pool_destroyed };

Lock lock;    // held over the driver's call: what is reserved must not move in between
Table pools;  // key: the pool; size: charged; owner: bytes still allocated from a destroyed one
Table execs;  // key: graph + GPU; size: what its allocation nodes need
std::uint64_t graph_charged[ALIQUOT_MAX_GPUS];
CUdevice graph_device[ALIQUOT_MAX_GPUS];
bool graphs_used[ALIQUOT_MAX_GPUS];

std::uint64_t attribute(CUmempool pool, int which, std::uint64_t otherwise) {
  std::uint64_t value = 0;
  return real::cuMemPoolGetAttribute(pool, which, &value) == kSuccess ? value : otherwise;
}

CUmempool handle_of(const Record& pool) { return reinterpret_cast<CUmempool>(pool.key); }

// Makes the charge what it should be. False, and charged all the same, when that passes the limit.
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

bool settle(Record* pool) {
  const std::uint64_t reserved =
      pool->kind == pool_destroyed ? round_up(pool->owner, kPoolPiece)
                                   : attribute(handle_of(*pool), kPoolReservedCurrent, pool->size);
  return change_charge(pool->gpu, &pool->size, reserved);
}

void settle_graphs(int gpu) {
  if (!graphs_used[gpu]) return;
  std::uint64_t reserved = 0;
  if (real::cuDeviceGetGraphMemAttribute(graph_device[gpu], kGraphReservedCurrent, &reserved) ==
      kSuccess)
    (void)change_charge(gpu, &graph_charged[gpu], reserved);
}

void settle_all() {
  for (std::size_t i = 0; i < pools.places(); ++i)
    if (pools.at(i).key != 0) (void)settle(&pools.at(i));
  for (int gpu = 0; gpu < ALIQUOT_MAX_GPUS; ++gpu) settle_graphs(gpu);
}

void squeeze_locked(int gpu) {
  const RelaxedCapture relaxed;
  for (std::size_t i = 0; i < pools.places(); ++i) {
    const Record& pool = pools.at(i);
    if (pool.key != 0 && pool.gpu == gpu && pool.kind == pool_live)
      (void)real::cuMemPoolTrimTo(handle_of(pool), 0);
  }
  if (graphs_used[gpu]) (void)real::cuDeviceGraphMemTrim(graph_device[gpu]);
  settle_all();
}

bool reserve_growth(int gpu, std::uint64_t bytes) {
  if (reserve(gpu, bytes)) return true;
  squeeze_locked(gpu);
  if (reserve(gpu, bytes)) return true;
  count_refusal(gpu);
  return false;
}

// How much a pool may grow when so much more is taken from it.
std::uint64_t growth(const Record& pool, std::uint64_t size) {
  const std::uint64_t used = attribute(handle_of(pool), kPoolUsedCurrent, 0);
  const std::uint64_t wanted = used + round_up(size, kSmallPiece);
  if (wanted < used) return UINT64_MAX / 2;
  return wanted <= pool.size ? 0 : round_up(wanted, kPoolPiece) - pool.size;
}

template <class Call>
CUresult allocate(CUmempool handle, int gpu, CUdeviceptr* out, std::uint64_t size, CUstream stream,
                  Call call) {
  const Hold hold(lock);
  __atomic_store_n(&pools_used, true, __ATOMIC_RELAXED);
  const auto key = reinterpret_cast<std::uintptr_t>(handle);
  if (pools.find(key) == nullptr && !pools.insert({key, 0, 0, gpu, pool_live})) return kOutOfMemory;
  Record* pool = pools.find(key);
  (void)settle(pool);
  std::uint64_t more = growth(*pool, size);
  if (more != 0) {
    if (!reserve_growth(gpu, more)) return kOutOfMemory;
    // A squeeze may have made it smaller meanwhile: then it may grow by more.
    const std::uint64_t now = growth(*pool, size);
    if (now > more) {
      if (!reserve(gpu, now - more)) {
        release(gpu, more);
        count_refusal(gpu);
        return kOutOfMemory;
      }
      more = now;
    }
  }
  pool->size += more;
  const CUresult r = insist(call);
  const bool fits = settle(pool);
  if (r != kSuccess) return r;
  if (!fits) {
    // It grew by more than pools do. Give it back at once.
    (void)real::cuMemFreeAsync(*out, stream);
    (void)real::cuStreamSynchronize(stream);
    squeeze_locked(gpu);
    count_refusal(gpu);
    return kOutOfMemory;
  }
  track(*out, size, gpu, block_pool, key);
  return r;
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
CUresult free_async(CUdeviceptr address, Call call) {
  Record record{};
  const bool known = untrack(address, &record);
  const CUresult r = call();
  if (!known) return r;
  if (r == kSuccess)
    refund(record);
  else
    put_back(record);
  return r;
}

// ---- graphs -----------------------------------------------------------------------------------

constexpr int kDeepest = 8;

// Not from the program's malloc, which may be what called us.
void* scratch(std::size_t size) {
  void* memory = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  return memory == MAP_FAILED ? nullptr : memory;
}

void add_needs(CUgraph graph, std::uint64_t* needs, int depth) {
  std::size_t count = 0;
  if (depth > kDeepest || real::cuGraphGetNodes(graph, nullptr, &count) != kSuccess) return;
  constexpr std::size_t kMost = 1U << 20;
  if (count == 0 || count > kMost) return;
  CUgraphNode few[64];
  CUgraphNode* all = few;
  void* memory = nullptr;
  const std::size_t room = count;
  if (room > 64) {
    memory = scratch(room * sizeof(CUgraphNode));
    if (memory == nullptr) return;
    all = static_cast<CUgraphNode*>(memory);
  }
  if (real::cuGraphGetNodes(graph, all, &count) == kSuccess)
    for (std::size_t i = 0; i < count; ++i) {
      int type = -1;
      if (real::cuGraphNodeGetType(all[i], &type) != kSuccess) continue;
      if (type == kNodeGraph) {
        CUgraph child = nullptr;
        if (real::cuGraphChildGraphNodeGetGraph(all[i], &child) == kSuccess)
          add_needs(child, needs, depth + 1);
      }
      CUDA_MEM_ALLOC_NODE_PARAMS params{};
      if (type != kNodeMemAlloc || real::cuGraphMemAllocNodeGetParams(all[i], &params) != kSuccess)
        continue;
      const int gpu = gpu_of_device(params.poolProps.location.id);
      if (gpu < 0) continue;
      needs[gpu] += round_up(params.bytesize, kGranularity);
      graph_device[gpu] = params.poolProps.location.id;
    }
  if (memory != nullptr) (void)munmap(memory, room * sizeof(CUgraphNode));
}

template <class Call>
CUresult instantiate(CUgraphExec* out, CUgraph graph, Call call) {
  const bool ours = governed();
  const CUresult r = call();
  if (!ours || r != kSuccess || out == nullptr) return r;
  const Hold hold(lock);
  std::uint64_t needs[ALIQUOT_MAX_GPUS] = {};
  add_needs(graph, needs, 0);
  for (int gpu = 0; gpu < ALIQUOT_MAX_GPUS; ++gpu)
    if (needs[gpu] != 0) {
      const auto key = reinterpret_cast<std::uintptr_t>(*out) + static_cast<unsigned>(gpu);
      (void)execs.insert({key, needs[gpu], 0, gpu, 0});
      graphs_used[gpu] = true;
      __atomic_store_n(&pools_used, true, __ATOMIC_RELAXED);
    }
  return r;
}

}  // namespace

bool pools_used = false;

void reset_pools() {
  lock = {};
  pools.reset();
  execs.reset();
  pools_used = false;
  for (int gpu = 0; gpu < ALIQUOT_MAX_GPUS; ++gpu) {
    graph_charged[gpu] = 0;
    graphs_used[gpu] = false;
  }
}

void squeeze(int gpu) {
  if (gpu < 0 || !__atomic_load_n(&pools_used, __ATOMIC_RELAXED)) return;
  const Hold hold(lock);
  squeeze_locked(gpu);
}

void settle_pools() {
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
  // A stream of another context than the current one is rare; the driver then wants that one.
  (void)stream;
  if (real::cuCtxGetDevice(device) != kSuccess) return false;
  *gpu = gpu_of_device(*device);
  return true;
}

bool is_capturing(CUstream stream) {
  int status = kCaptureNone;
  return real::cuStreamIsCapturing(stream, &status) != kSuccess || status != kCaptureNone;
}

// Runs a graph, reserving first what its allocations may add to the stock.
CUresult with_graph_memory(CUgraphExec exec, CUresult (*call)(CUgraphExec, CUstream),
                           CUstream stream) {
  if (execs.size() == 0) return call(exec, stream);
  const Hold hold(lock);
  bool any = false;
  bool fits = true;
  for (int gpu = 0; gpu < ALIQUOT_MAX_GPUS && fits; ++gpu) {
    const Record* need =
        execs.find(reinterpret_cast<std::uintptr_t>(exec) + static_cast<unsigned>(gpu));
    if (need == nullptr) continue;
    any = true;
    settle_graphs(gpu);
    std::uint64_t used = 0;
    (void)real::cuDeviceGetGraphMemAttribute(graph_device[gpu], kGraphUsedCurrent, &used);
    const std::uint64_t wanted = used + need->size;
    if (wanted <= graph_charged[gpu]) continue;
    const std::uint64_t more = wanted - graph_charged[gpu];
    fits = reserve_growth(gpu, more);
    if (!fits) break;
    graph_charged[gpu] += more;
    // A squeeze may have taken the stock away meanwhile.
    if (wanted > graph_charged[gpu]) {
      fits = reserve(gpu, wanted - graph_charged[gpu]);
      if (fits) graph_charged[gpu] = wanted;
    }
  }
  const CUresult r = fits ? call(exec, stream) : kOutOfMemory;
  if (any) settle_all();
  return r;
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
  return governed() ? free_async(address, call) : call();
}

ALIQUOT_HOOK cuMemFreeAsync_ptsz(CUdeviceptr address, CUstream stream) {
  const auto call = [&] { return real::cuMemFreeAsync_ptsz(address, stream); };
  return governed() ? free_async(address, call) : call();
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
  const CUresult r = real::cuMemPoolDestroy(pool);
  Record* known = pools.find(reinterpret_cast<std::uintptr_t>(pool));
  if (r != kSuccess || known == nullptr) return r;
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

ALIQUOT_HOOK cuDeviceGraphMemTrim(CUdevice device) {
  const bool ours = governed();
  const CUresult r = real::cuDeviceGraphMemTrim(device);
  if (ours) settle_pools();
  return r;
}

ALIQUOT_HOOK cuGraphInstantiate(CUgraphExec* out, CUgraph graph, CUgraphNode* node, char* log,
                                std::size_t size) {
  return instantiate(out, graph,
                     [&] { return real::cuGraphInstantiate(out, graph, node, log, size); });
}

ALIQUOT_HOOK cuGraphInstantiate_v2(CUgraphExec* out, CUgraph graph, CUgraphNode* node, char* log,
                                   std::size_t size) {
  return instantiate(out, graph,
                     [&] { return real::cuGraphInstantiate_v2(out, graph, node, log, size); });
}

ALIQUOT_HOOK cuGraphInstantiateWithFlags(CUgraphExec* out, CUgraph graph,
                                         unsigned long long flags) {
  return instantiate(out, graph,
                     [&] { return real::cuGraphInstantiateWithFlags(out, graph, flags); });
}

ALIQUOT_HOOK cuGraphInstantiateWithParams(CUgraphExec* out, CUgraph graph, void* params) {
  return instantiate(out, graph,
                     [&] { return real::cuGraphInstantiateWithParams(out, graph, params); });
}

ALIQUOT_HOOK cuGraphInstantiateWithParams_ptsz(CUgraphExec* out, CUgraph graph, void* params) {
  return instantiate(out, graph,
                     [&] { return real::cuGraphInstantiateWithParams_ptsz(out, graph, params); });
}

ALIQUOT_HOOK cuGraphExecDestroy(CUgraphExec exec) {
  const bool ours = governed();
  const CUresult r = real::cuGraphExecDestroy(exec);
  if (!ours || r != kSuccess || execs.size() == 0) return r;
  const Hold hold(lock);
  for (unsigned gpu = 0; gpu < ALIQUOT_MAX_GPUS; ++gpu) {
    Record gone{};
    (void)execs.remove(reinterpret_cast<std::uintptr_t>(exec) + gpu, &gone);
  }
  settle_all();
  return r;
}

ALIQUOT_HOOK cuGraphUpload(CUgraphExec exec, CUstream stream) {
  return governed() ? with_graph_memory(exec, real::cuGraphUpload, stream)
                    : real::cuGraphUpload(exec, stream);
}

ALIQUOT_HOOK cuGraphUpload_ptsz(CUgraphExec exec, CUstream stream) {
  return governed() ? with_graph_memory(exec, real::cuGraphUpload_ptsz, stream)
                    : real::cuGraphUpload_ptsz(exec, stream);
}

}  // namespace aliquot::enforce
