// The job's grant as this process sees it: the limits, the usage region all processes of the job
// share, and this process's slot in it. Reserves and releases bytes; knows nothing of CUDA except
// the UUIDs of GPUs. A GPU is its index in the limits file; kNoGpu is one the job was not given.
#pragma once

#include <cstdint>

#include "enforce/grant_files.hpp"
#include "enforce/lock.hpp"

namespace aliquot::enforce {

inline constexpr int kNoGpu = -1;

// The grant is mapped and this process has its slot. False: nothing may be allocated.
bool grant_ready();
// The limits, or null while not ready.
const aliquot_limits* grant_limits();
// The GPU with these 16 bytes, or kNoGpu.
int gpu_by_uuid(const unsigned char* uuid);

// True: the bytes are ours, and all the job's processes together are within the limit. `context`
// says that they are for a context.
bool reserve(int gpu, std::uint64_t bytes, bool context = false);
// The bytes are in use already, whatever the limit says: memory the driver took by itself.
void reserve_anyway(int gpu, std::uint64_t bytes, bool context = false);
void release(int gpu, std::uint64_t bytes, bool context = false);
// Reserved for a context, turned into what it really costs. False, and nothing changed, when that
// is more than the limit allows.
bool settle_context(int gpu, std::uint64_t guess, std::uint64_t cost);
// What to reserve before a context is made.
std::uint64_t context_guess(int gpu);

// Held by the living processes of the job; the limit, 0 = none.
std::uint64_t job_bytes(int gpu);
std::uint64_t limit_of(int gpu);
void count_refusal(int gpu);
// Whether another process of the job has memory of others open.
bool others_import(int gpu);

// What the slot tells about the bytes that are charged.
enum Detail : int {
  detail_imports,
  detail_unattributed,
  detail_exported,
  detail_room,
  detail_count
};
void add_detail(Detail which, int gpu, std::uint64_t more);
void remove_detail(Detail which, int gpu, std::uint64_t less);

// Processes of the job with something in flight on the GPU, as they say; at least one.
unsigned launching_processes(int gpu);

// This process's own words in the slot; null without a slot or GPU.
aliquot_use* own_use(int gpu);

std::uint64_t now_ns();

}  // namespace aliquot::enforce
