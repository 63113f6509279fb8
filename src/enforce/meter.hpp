// GPU time by sampling: at most every ten milliseconds one launch is bracketed by two events. The
// mean time of a launch, times the launches counted, is what the job used; never more than the time
// that passed. Works under MPS, where nothing else tells one client from another. Kernels and
// graphs have a mean each.
#pragma once

#include "enforce/driver.hpp"

namespace aliquot::enforce {

void meter_set_up(bool on);
void reset_meter();
// So many launches more; they are added to gpu_ns as soon as a mean is known.
void meter_count(int gpu, unsigned kind, unsigned launches);
// Is it time for another sample?
bool meter_due(int gpu, std::uint64_t now);
// True: this launch is measured; meter_end must follow. The stream is not capturing.
bool meter_begin(int gpu, unsigned kind, CUstream stream, std::uint64_t now);
void meter_end(int gpu, unsigned kind, CUstream stream, bool launched);
// How long a launch lasts, on average; 0: not known.
std::uint64_t meter_mean(int gpu, unsigned kind);
// A sample waits for its end.
bool meter_pending();
// all_over: nothing of the current context is queued any more.
void meter_harvest(int gpu, std::uint64_t now, bool all_over);
void meter_context_ends(CUcontext context);

}  // namespace aliquot::enforce
