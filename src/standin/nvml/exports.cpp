// An answer for every NVML function that the stand-in does not simulate: each name of exports.def
// is defined here weakly, and the linker prefers the definition in another file where there is one.
#include "standin/abi/nvml.hpp"

namespace aliquot::standin {

#define X(symbol)                                                               \
  extern "C" __attribute__((weak, visibility("default"))) nvmlReturn symbol() { \
    return kNvmlNotSupported;                                                   \
  }
#include "standin/nvml/exports.def"
#undef X

}  // namespace aliquot::standin
