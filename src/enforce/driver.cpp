#include "enforce/driver.hpp"

#include <dlfcn.h>

#include <cstring>
#include <initializer_list>

#include "enforce/grant.hpp"
#include "enforce/nvml.hpp"
#include "enforce/reset.hpp"

namespace aliquot::enforce {
namespace {

using AnyFn = void (*)();

// What a driver without the function would answer. Called with any arguments: it looks at none.
CUresult missing() { return kNoDevice; }

struct Hook {
  const char* name;
  void* wrapper;
  void** real;
};
struct Used {
  const char* name;
  void** real;
};

}  // namespace

namespace real {
#define HOOK(name, params) \
  CUresult(*name) params = reinterpret_cast<CUresult(*) params>(reinterpret_cast<AnyFn>(missing));
#define USED HOOK
#include "enforce/entries.def"
#undef HOOK
#undef USED
}  // namespace real

bool driver_bound = false;

namespace {

const Hook kHooks[] = {
#define HOOK(name, params)                                                         \
  {#name, reinterpret_cast<void*>(static_cast<CUresult(*) params>(enforce::name)), \
   reinterpret_cast<void**>(&real::name)},
#define USED(name, params)
#include "enforce/entries.def"
#undef HOOK
#undef USED
};

const Used kUsed[] = {
#define HOOK(name, params)
#define USED(name, params) {#name, reinterpret_cast<void**>(&real::name)},
#include "enforce/entries.def"
#undef HOOK
#undef USED
};

constexpr std::size_t kHookCount = sizeof kHooks / sizeof kHooks[0];

// From the driver's addresses to ours: open addressing, written once under the lock.
constexpr std::size_t kMapSize = 512;
static_assert(kHookCount * 2 < kMapSize);
struct Mapped {
  void* from;
  void* to;
};
Mapped address_map[kMapSize];

std::size_t place_of(const void* address) {
  return (reinterpret_cast<std::uintptr_t>(address) >> 4) * 0x9E3779B97F4A7C15ULL >> 55;
}

void remember(void* from, void* to) {
  for (std::size_t i = place_of(from);; i = (i + 1) % kMapSize) {
    // Names that are one function in this driver keep the first wrapper.
    if (address_map[i].from == from) return;
    if (address_map[i].from == nullptr) {
      address_map[i] = {from, to};
      return;
    }
  }
}

void bind_from(void* library) {
  const DlsymFn look_up = real_dlsym();
  for (const Hook& hook : kHooks)
    if (void* found = look_up(library, hook.name)) {
      *hook.real = found;
      remember(found, hook.wrapper);
    }
  for (const Used& used : kUsed)
    if (void* found = look_up(library, used.name)) *used.real = found;
}

Lock bind_lock;

}  // namespace

void reset_driver() { bind_lock = {}; }

DlsymFn real_dlsym() {
  static DlsymFn found = nullptr;
  DlsymFn known = __atomic_load_n(&found, __ATOMIC_ACQUIRE);
  if (known != nullptr) return known;
  for (const char* version : {"GLIBC_2.34", "GLIBC_2.2.5", "GLIBC_2.17"}) {
    void* address = dlvsym(RTLD_NEXT, "dlsym", version);
    if (address == nullptr) {
      (void)dlerror();  // the program asks about its own calls
      continue;
    }
    known = reinterpret_cast<DlsymFn>(address);
    __atomic_store_n(&found, known, __ATOMIC_RELEASE);
    return known;
  }
  return nullptr;
}

void* loaded_library(const char* name) {
  void* library = dlopen(name, RTLD_LAZY | RTLD_NOLOAD);
  // The program asks dlerror about its own calls.
  if (library == nullptr) (void)dlerror();
  return library;
}

namespace {

bool bind_to(void* library) {
  if (library == nullptr || real_dlsym()(library, "cuInit") == nullptr) {
    (void)dlerror();
    return false;
  }
  const Hold hold(bind_lock);
  if (!driver_bound) {
    bind_from(library);
    (void)dlerror();
    __atomic_store_n(&driver_bound, true, __ATOMIC_RELEASE);
  }
  return true;
}

}  // namespace

bool bind_driver() {
  if (__atomic_load_n(&driver_bound, __ATOMIC_ACQUIRE)) return true;
  if (real_dlsym() == nullptr) return false;
  void* library = loaded_library("libcuda.so.1");
  if (library == nullptr) library = loaded_library("libcuda.so");
  return bind_to(library);
}

void* wrapper_by_name(const char* name) {
  if (name == nullptr) return nullptr;
  if (name[0] == 'n') return nvml_wrapper(name);
  if (name[0] != 'c' || name[1] != 'u') return nullptr;
  for (const Hook& hook : kHooks)
    if (std::strcmp(hook.name, name) == 0) return hook.wrapper;
  return nullptr;
}

void* wrapper_by_address(void* address) {
  for (std::size_t i = place_of(address); address_map[i].from != nullptr; i = (i + 1) % kMapSize)
    if (address_map[i].from == address) return address_map[i].to;
  return address;
}

// ---- dlsym ------------------------------------------------------------------------------------

// What the stub in dlsym.S asks: the answer, or null and the stub goes on to the real dlsym, with
// the handle it finds in *handle, as if the program had called that itself.
extern "C" __attribute__((visibility("hidden"))) void* aliquot_dlsym_answer(void** handle,
                                                                            const char* name) {
  void* wrapper = wrapper_by_name(name);
  if (wrapper == nullptr) return nullptr;
  const bool nvml = name[0] == 'n';
  if (*handle == RTLD_DEFAULT || *handle == RTLD_NEXT) {
    const bool there = nvml ? bind_nvml() : bind_driver();
    if (there) return grant_wanted() ? wrapper : nullptr;
    // Without a library behind them our own exports must not be found: let libc say so.
    if (void* libc = loaded_library("libc.so.6")) *handle = libc;
    return nullptr;
  }
  if (!grant_wanted()) return nullptr;
  // Only where the library that was asked has the name. An exported name has one signature, so the
  // wrapper of that name is the right one, wherever the function lies.
  void* found = real_dlsym()(*handle, name);
  if (found == nullptr) return nullptr;
  if (nvml)
    (void)bind_nvml();
  else if (!bind_driver())
    (void)bind_to(*handle);  // a libcuda by another name
  return wrapper;
}

extern "C" __attribute__((visibility("hidden"))) void* aliquot_real_dlsym() {
  return reinterpret_cast<void*>(real_dlsym());
}

ALIQUOT_HOOK cuGetProcAddress_v2(const char* symbol, void** out, int version, std::uint64_t flags,
                                 int* status) {
  (void)bind_driver();
  const CUresult r = real::cuGetProcAddress_v2(symbol, out, version, flags, status);
  if (r == kSuccess && out != nullptr && *out != nullptr && grant_wanted())
    *out = wrapper_by_address(*out);
  return r;
}

ALIQUOT_HOOK cuGetProcAddress(const char* symbol, void** out, int version, std::uint64_t flags) {
  (void)bind_driver();
  const CUresult r = real::cuGetProcAddress(symbol, out, version, flags);
  if (r == kSuccess && out != nullptr && *out != nullptr && grant_wanted())
    *out = wrapper_by_address(*out);
  return r;
}

ALIQUOT_HOOK cuInit(unsigned flags) {
  // Registered before the driver knows of the process: the daemon never sees one on the GPU that
  // has the library and is not on its list. And a broken grant is said early.
  if (bind_driver() && grant_wanted()) (void)grant_ready();
  return real::cuInit(flags);
}

}  // namespace aliquot::enforce
