// What this process holds, and what that costs in the driver's own units. Each kind of memory has a
// file of its own (blocks, pools, mappings, contexts); they share these.
#pragma once

#include <initializer_list>

#include "enforce/driver.hpp"
#include "enforce/grant.hpp"
#include "enforce/table.hpp"

namespace aliquot::enforce {

// As measured (H200, driver 580): up to 1 MiB comes out of shared slabs of 2 MiB, in pieces of 512
// bytes; more is rounded up to 2 MiB; pools grow by 32 MiB.
inline constexpr std::uint64_t kGranularity = 2ULL << 20;
inline constexpr std::uint64_t kSmallLimit = 1ULL << 20;
inline constexpr std::uint64_t kSmallPiece = 512;
inline constexpr std::uint64_t kPoolPiece = 32ULL << 20;

// Saturates: a size that cannot be is over every limit.
inline std::uint64_t round_up(std::uint64_t value, std::uint64_t to) {
  return value > UINT64_MAX - to ? UINT64_MAX / to * to : (value + to - 1) / to * to;
}

enum BlockKind : std::uint32_t { block_device, block_managed, block_pool };

// The GPU of a device of this process, of the current context, of a stream's context.
int gpu_of_device(CUdevice device);
bool current_gpu(int* gpu, CUcontext* context);
bool stream_gpu(CUstream stream, int* gpu, CUdevice* device);
bool is_capturing(CUstream stream);

// Run before a refusal, as the driver itself does when it runs out: unused memory in pools and
// graphs goes back to the driver (squeeze); frees that wait for their stream are waited for, within
// reason, and then it is squeezed again (make_room).
void squeeze(int gpu);
void make_room(int gpu);
// reserve, and after each of these once more; counts the refusal.
bool reserve_or_squeeze(int gpu, std::uint64_t bytes, bool context = false);

// Tries, helps and tries again, until it is not refused any more; counts the refusal.
inline constexpr CUresult kRefused = -1;
template <class Attempt>
CUresult persevere(int gpu, Attempt attempt) {
  CUresult r = attempt();
  for (void (*help)(int) : {squeeze, make_room}) {
    if (r != kRefused) return r;
    help(gpu);
    r = attempt();
  }
  if (r != kRefused) return r;
  count_refusal(gpu);
  return kOutOfMemory;
}

// Blocks (blocks.cpp): memory of cuMemAlloc and its like, arrays included.
void track(std::uint64_t key, std::uint64_t size, int gpu, BlockKind kind, std::uint64_t owner);
// Forgets a block before the driver frees it; put_back if the driver then does not.
bool untrack(std::uint64_t key, Record* record);
void put_back(const Record& record);
// Both around the driver's own free; then, for a block that is known and gone, freed(record).
template <class Free, class Freed>
CUresult free_tracked(std::uint64_t key, Free free, Freed freed) {
  Record record{};
  const bool known = untrack(key, &record);
  const CUresult r = free();
  if (known && r == kSuccess) freed(record);
  if (known && r != kSuccess) put_back(record);
  return r;
}
void refund(const Record& record);
// The context is gone, and with it its blocks.
void context_gone(CUcontext context);

// Pools (pools.cpp).
extern bool pools_used;
void settle_pools();
void pool_block_freed(const Record& record);
// Makes a charge what it should be. False, and charged all the same, when that passes the limit.
bool change_charge(int gpu, std::uint64_t* charged, std::uint64_t wanted);
// The program waited for the stream, or with all for everything in its context.
void pools_waited(CUstream stream, bool all);
// A stream that is gone cannot be waited for.
void pools_stream_gone(CUstream stream);
// Whether the stream has got to its end, within a time.
bool wait_for_stream(CUstream stream, std::uint64_t until_ns);

// What graphs allocate when they run (graphs.cpp).
void settle_graphs();
void trim_graphs(int gpu);
void wait_for_graphs(int gpu, std::uint64_t until_ns);
void graphs_stream_gone(CUstream stream);
CUresult with_graph_memory(CUgraphExec exec, CUresult (*call)(CUgraphExec, CUstream),
                           CUstream stream);

// Sparse arrays (bindings.cpp).
void bindings_array_gone(CUarray array);
void bindings_stream_gone(CUstream stream);
void look_at_bindings();

// Before a context may end: the gate's events in it must not be asked any more (gate.cpp).
void gate_context_ends(CUcontext context);

// Our own calls must not spoil a capture that another thread has under way.
class RelaxedCapture {
 public:
  RelaxedCapture() { (void)real::cuThreadExchangeStreamCaptureMode(&mode_); }
  ~RelaxedCapture() { (void)real::cuThreadExchangeStreamCaptureMode(&mode_); }
  RelaxedCapture(const RelaxedCapture&) = delete;
  RelaxedCapture& operator=(const RelaxedCapture&) = delete;

 private:
  int mode_ = kCaptureModeRelaxed;
};

// First in every hook: the driver is bound, and whether the job has limits.
inline bool governed() {
  if (!__atomic_load_n(&driver_bound, __ATOMIC_ACQUIRE)) (void)bind_driver();
  return grant_wanted();
}

}  // namespace aliquot::enforce
