// The table of exported names: cuGetProcAddress, and an answer for every name that is not
// implemented. Each name of exports.def is defined here weakly; where another file defines it, the
// linker takes that one, and the table holds its address. So an address handed out is always that
// of an exported name, as with the real driver.
#include "standin/cuda/exports.hpp"

#include <cstring>

#define CU_WEAK extern "C" __attribute__((weak, visibility("default")))

namespace aliquot::standin {

#define X(base, symbol, version, per_thread) \
  CU_WEAK CUresult symbol() { return kNotSupported; }
#include "standin/cuda/exports.def"
#undef X

namespace {

constexpr int kNewestVersion = 13000;
constexpr std::uint64_t kPerThreadFlag = 2;
constexpr int kSymbolFound = 0;
constexpr int kSymbolNotFound = 1;
constexpr int kVersionNotSufficient = 2;

struct Export {
  const char* base;
  CUresult (*address)();
  int version;
  bool per_thread;
};

const Export kExports[] = {
#define X(base, symbol, version, per_thread) {#base, symbol, version, per_thread != 0},
#include "standin/cuda/exports.def"
#undef X
};

}  // namespace

// With the per-thread flag only the per-thread variants of a name count, if it has any; of those
// that count, the newest one not newer than the version asked for.
CUresult look_up_export(const char* symbol, void** out, int version, std::uint64_t flags,
                        int* status) {
  if (symbol == nullptr || out == nullptr || version > kNewestVersion) return kInvalidValue;
  const Export* best = nullptr;
  bool known = false;
  bool has_per_thread = false;
  for (const Export& e : kExports) {
    if (std::strcmp(e.base, symbol) != 0) continue;
    known = true;
    has_per_thread |= e.per_thread;
  }
  const bool per_thread = has_per_thread && (flags & kPerThreadFlag) != 0;
  for (const Export& e : kExports)
    if (std::strcmp(e.base, symbol) == 0 && e.per_thread == per_thread && e.version <= version &&
        (best == nullptr || e.version > best->version))
      best = &e;
  *out = best == nullptr ? nullptr : reinterpret_cast<void*>(best->address);
  if (status != nullptr)
    *status = best != nullptr ? kSymbolFound : known ? kVersionNotSufficient : kSymbolNotFound;
  return kSuccess;
}

}  // namespace aliquot::standin
