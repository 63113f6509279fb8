// The gate every launch passes. While the boards say nothing, passing is a few loads and a thread's
// own counter. A paused job waits here; on a contended GPU the launches in flight are limited, so
// that a pause takes effect soon; now and then a launch is measured (meter.hpp). In a stream
// capture nothing is waited for and nothing recorded.
#pragma once

#include "enforce/driver.hpp"
#include "enforce/grant.hpp"
#include "enforce/memory.hpp"

namespace aliquot::enforce {

enum LaunchKind : unsigned { launch_kernel, launch_graph, launch_kinds };

// Off: no grant. Unset: the first launch finds out.
enum GateState : int { gate_unset, gate_off, gate_on };
extern int gate_state;

struct Watch {
  const std::uint32_t* word;
  const std::uint32_t* contended;
};
extern Watch watches[ALIQUOT_MAX_GPUS];
extern unsigned watch_count;

// A thread's own; the loader gives it a fixed place, so reading it is one instruction.
struct ThreadGate {
  unsigned counts[launch_kinds];
  int until_tick;
  std::uint32_t random;
  std::uint64_t last_tick_ns;
  std::uint64_t launches_in_tick;
};
extern constinit thread_local ThreadGate thread_gate __attribute__((tls_model("initial-exec")));

// What one slow launch has under way between before and after.
struct Passage {
  int gpu;
  bool limited;   // counts in flight
  bool measured;  // bracketed by events
  LaunchKind kind;
  CUstream stream;
};

void before_launch(Passage* passage);
void after_launch(const Passage& passage, CUresult result);
// The program waited for the stream, or with all for everything in its context.
void gate_synchronized(CUstream stream, bool all);
void gate_stream_gone(CUstream stream);

inline bool boards_quiet() {
  std::uint32_t any = 0;
  for (unsigned i = 0; i < watch_count; ++i)
    any |= __atomic_load_n(watches[i].word, __ATOMIC_RELAXED) |
           __atomic_load_n(watches[i].contended, __ATOMIC_RELAXED);
  return any == 0;
}

template <class Call>
CUresult pass_gate(CUstream stream, LaunchKind kind, Call call) {
  const int state = __atomic_load_n(&gate_state, __ATOMIC_ACQUIRE);
  if (state == gate_on && boards_quiet() && --thread_gate.until_tick > 0) [[likely]] {
    ++thread_gate.counts[kind];
    return call();
  }
  if (state == gate_off) return call();
  Passage passage{kNoGpu, false, false, kind, stream};
  before_launch(&passage);
  const CUresult r = call();
  after_launch(passage, r);
  return r;
}

}  // namespace aliquot::enforce
