// What the grant allows and the driver refuses, because the GPU is full, is there a moment later: a
// process that was killed is still giving its memory back (a fifth of a second, measured), or one
// holds what it was not granted, and the daemon's watchdog is about to end it. So the driver is
// asked again for a while before the program hears of it. Where that was in vain the GPU is really
// full: for some time after it nobody waits.
#pragma once

#include <cstdint>

#include "enforce/cuda.hpp"

namespace aliquot::enforce {

// Whether to ask again, after a pause; `tries` counts up from 0.
bool worth_another_try(int tries);

template <class Call>
CUresult insist(Call call) {
  CUresult r = call();
  for (int tries = 0; r == kOutOfMemory && worth_another_try(tries); ++tries) r = call();
  return r;
}

}  // namespace aliquot::enforce
