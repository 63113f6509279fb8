// GPU time by sampling: at most every ten milliseconds one launch is bracketed by two events, and a
// third one before the next tells how long the GPU had nothing to do in between. The mean time of a
// launch, times the launches counted, is what the job used; never more than the time that passed.
// Works under MPS, where nothing else tells one client from another. Kernels, graphs and copies
// have a mean each.
#pragma once

#include "enforce/driver.hpp"

namespace aliquot::enforce {

void meter_set_up(bool on);
void reset_meter();
// So many launches more; they are added to gpu_ns as soon as a mean is known.
void meter_count(int gpu, unsigned kind, unsigned launches);
// Is it time for another sample? More often while turns are taken.
bool meter_due(int gpu, std::uint64_t now, bool turns);
// The launch before this one on the stream was measured, and what came between is not known yet.
bool meter_follows(int gpu, CUstream stream);
// True: this launch is measured; meter_end must follow. The stream is not capturing. `contended` is
// what the board says (ALIQUOT_CONTENDED_…): whether somebody else may be on the GPU.
bool meter_begin(int gpu, unsigned kind, CUstream stream, std::uint64_t now,
                 std::uint32_t contended);
void meter_end(int gpu, unsigned kind, CUstream stream, bool launched);
// How long a launch takes by itself, on average; 0: not known.
std::uint64_t meter_mean(int gpu, unsigned kind);
// A sample waits for its end.
bool meter_pending();
// all_over: nothing of the current context is queued any more.
void meter_harvest(int gpu, std::uint64_t now, bool all_over);
void meter_context_ends(CUcontext context);

}  // namespace aliquot::enforce
