// The gate that everything passes which makes the GPU work: kernels, graphs, copies within the GPU,
// fills. While the boards say nothing, passing is a few loads and a thread's own counter. A paused
// job waits here; where several jobs use the GPU what is in flight is limited (flight.hpp), so that
// a pause takes effect soon; now and then a launch is measured (meter.hpp). In a stream capture
// nothing is waited for and nothing recorded.
#pragma once

#include "enforce/driver.hpp"
#include "enforce/grant.hpp"
#include "enforce/memory.hpp"

namespace aliquot::enforce {

enum LaunchKind : unsigned { launch_kernel, launch_graph, launch_copy, launch_kinds };

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
  CUstream last_stream;
};
extern constinit thread_local ThreadGate thread_gate __attribute__((tls_model("initial-exec")));

// What one slow launch has under way between before and after.
struct Passage {
  int gpu;
  std::uint32_t contended;  // ALIQUOT_CONTENDED_…, as it was before
  bool followed;            // an event may go behind it
  bool measured;            // bracketed by events
  LaunchKind kind;
  CUstream stream;
};

void before_launch(Passage* passage);
void after_launch(const Passage& passage, CUresult result);
// A stream that cannot be: of a wait for something else, as an event.
inline const CUstream kNoStream = reinterpret_cast<CUstream>(-1);
// The program is about to wait for the GPU, in the driver. Which GPU it says to wait for, if any:
// for gate_synchronized, which must follow then.
int gate_waits(CUstream stream);
// It has waited for the stream, or with all for everything in its context; `waited`: what
// gate_waits said before, or kNoGpu. `over`: it came to its end.
void gate_synchronized(CUstream stream, bool all, int waited, bool over);

// In the per-thread entry points stream 0 is the thread's own.
inline CUstream own_stream(CUstream stream) {
  return stream == nullptr ? kPerThreadStream : stream;
}

// First in the hooks here: nothing else is looked at before.
inline void bind() {
  if (!__atomic_load_n(&driver_bound, __ATOMIC_RELAXED)) (void)bind_driver();
}

inline bool boards_quiet() {
  std::uint32_t any = 0;
  for (unsigned i = 0; i < watch_count; ++i)
    any |= __atomic_load_n(watches[i].word, __ATOMIC_RELAXED) |
           (__atomic_load_n(watches[i].contended, __ATOMIC_RELAXED) & ALIQUOT_CONTENDED_TURNS);
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
  Passage passage{kNoGpu, 0, false, false, kind, stream};
  before_launch(&passage);
  const CUresult r = call();
  after_launch(passage, r);
  return r;
}

// Of a call that returns when the stream, or with all everything in the context, is done.
template <class Call>
CUresult pass_wait(CUstream stream, bool all, Call call) {
  if (!grant_wanted()) return call();
  const int waits = gate_waits(stream);
  const CUresult r = call();
  gate_synchronized(stream, all, waits, r == kSuccess);
  if (r == kSuccess) pools_waited(stream, all);
  return r;
}

}  // namespace aliquot::enforce
