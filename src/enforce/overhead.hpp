// What the driver takes by itself in a context: code that is loaded when it is first used,
// variables of modules, local memory, the buffers of printf and malloc. It is known only
// afterwards, from NVML. So a part of the job's memory is kept free for it, the room: what a
// program allocates never takes the place of what its own code will need. What the driver took
// comes out of the room; a process whose room is used up and cannot be refilled is refused new
// code, as on a full card.
#pragma once

#include "enforce/driver.hpp"
#include "enforce/grant.hpp"

namespace aliquot::enforce {

// Enough for one step of the driver's: a function, a module, a few streams. Below it, no new code.
std::uint64_t least_room(int gpu);

// How much room to keep beside a context that cost so much more than was reserved for it.
std::uint64_t room_for(int gpu, std::uint64_t more);
// The room was reserved with the first context, and is given back with the last.
void room_kept(int gpu, std::uint64_t room);
void room_ends(int gpu);

// Memory that is charged to this process and that NVML attributes to nobody.
void add_unattributed(int gpu, std::uint64_t bytes);
void remove_unattributed(int gpu, std::uint64_t bytes);

// Charges what NVML counts beyond what is charged. False: that passed the limit.
bool look_now(int gpu);
// The same, at most once a second.
void look_for_overhead(int gpu);
// Some of what was seen is gone again.
void overhead_gone(int gpu);

// Makes sure that the driver can take so much, and one step more, by itself; counts the refusal.
bool have_room(int gpu, std::uint64_t bytes = 0);
// The same for what it will take later, all at once: kept for that beside the rest.
bool promise_room(int gpu, std::uint64_t bytes);
// It will not, after all.
void promise_less(int gpu, std::uint64_t bytes);

// Local memory: the driver keeps as much for every thread the GPU can hold as the greediest
// function launched so far needs. What more it takes for one that needs so many bytes a thread.
std::uint64_t local_growth(int gpu, CUdevice device, std::uint64_t bytes);
void local_grown(int gpu, std::uint64_t bytes);

// Functions that were launched before, whose code is there: each in one of a few places. Where
// those are taken by others, it counts as seen.
inline constexpr unsigned kSeenBits = 14;
inline constexpr std::size_t kSeenPlaces = 1U << kSeenBits;
inline constexpr std::size_t kSeenTries = 8;
extern CUfunction seen_functions[kSeenPlaces];

// The place of the function, or the free one it may have, or null.
inline CUfunction* seen_place(CUfunction f) {
  std::size_t at =
      (reinterpret_cast<std::uintptr_t>(f) >> 4) * 0x9E3779B97F4A7C15ULL >> (64 - kSeenBits);
  for (std::size_t i = 0; i < kSeenTries; ++i, at = (at + 1) % kSeenPlaces) {
    const CUfunction there = __atomic_load_n(&seen_functions[at], __ATOMIC_RELAXED);
    if (there == f || there == nullptr) return &seen_functions[at];
  }
  return nullptr;
}

inline bool is_seen(CUfunction f) {
  const CUfunction* place = seen_place(f);
  return place == nullptr || __atomic_load_n(place, __ATOMIC_RELAXED) == f;
}

bool first_use_begins(CUfunction f);
void first_use_ended(CUfunction f);
// Handles of functions may be used anew.
void forget_functions();
// Bytes of local memory a thread of the function needs, where that is known (modules.cpp).
std::uint64_t local_bytes(CUfunction f, CUdevice device);

// Around every launch of a function.
template <class Call>
CUresult with_code(CUfunction f, Call call) {
  if (is_seen(f) || !grant_wanted()) [[likely]]
    return call();
  if (!first_use_begins(f)) return kOutOfMemory;
  const CUresult r = call();
  first_use_ended(f);
  return r;
}

}  // namespace aliquot::enforce
