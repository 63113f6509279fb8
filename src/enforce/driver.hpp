// The real driver: a typed pointer to each function of entries.def, found once in the libcuda the
// program loaded; and the way from an address of the driver to the wrapper that stands for it.
// Nothing here loads libcuda: a program that never did gets no driver from us.
#pragma once

#include "enforce/cuda.hpp"

#define ALIQUOT_HOOK extern "C" __attribute__((visibility("default"))) CUresult

namespace aliquot::enforce {

// real::cuMemAlloc_v2(…) is the driver's own. Valid once bind_driver() has said true.
namespace real {
#define HOOK(name, params) extern CUresult(*name) params;
#define USED(name, params) extern CUresult(*name) params;
#include "enforce/entries.def"
#undef HOOK
#undef USED
}  // namespace real

// True when the driver is there. Cheap after the first time.
bool bind_driver();
extern bool driver_bound;

// The wrapper for a name that libcuda or libnvidia-ml exports; null for any other name.
void* wrapper_by_name(const char* name);
// The wrapper for an address inside the driver; the address itself where there is none.
void* wrapper_by_address(void* address);

// dlsym without ourselves in between.
using DlsymFn = void* (*)(void*, const char*);
DlsymFn real_dlsym();
// The handle of a library that is loaded already, or null. Loads nothing.
void* loaded_library(const char* name);

}  // namespace aliquot::enforce

#define HOOK(name, params) ALIQUOT_HOOK name params;
#define USED(name, params)
namespace aliquot::enforce {
#include "enforce/entries.def"
}
#undef HOOK
#undef USED
