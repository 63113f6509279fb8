#include "enforce/nvml.hpp"

#include <cstring>

#include <dlfcn.h>
#include <unistd.h>

#include "enforce/driver.hpp"
#include "enforce/grant.hpp"
#include "enforce/reset.hpp"
#include "enforce/uuid.hpp"
#include "enforce/view.hpp"

namespace aliquot::enforce {
namespace {

using Return = int;
using Device = void*;
constexpr Return kNvmlSuccess = 0;
constexpr Return kNvmlUninitialized = 1;

struct Memory {
  unsigned long long total, free, used;
};
struct MemoryV2 {
  unsigned version;
  unsigned long long total, reserved, free, used;
};
struct ProcessInfo {  // v2 and v3
  unsigned pid;
  unsigned long long bytes;
  unsigned gpu_instance, compute_instance;
};
constexpr unsigned long long kUnknownBytes = ~0ULL;

struct Nvml {
  Return (*init)() = nullptr;
  Return (*by_uuid)(const char*, Device*) = nullptr;
  Return (*uuid)(Device, char*, unsigned) = nullptr;
  Return (*compute)(Device, unsigned*, ProcessInfo*) = nullptr;
  Return (*mps)(Device, unsigned*, ProcessInfo*) = nullptr;
  Return (*memory)(Device, Memory*) = nullptr;
  Return (*memory_v2)(Device, MemoryV2*) = nullptr;
};

Nvml nvml;
Lock lock;
bool bound = false;
bool started = false;
bool failed = false;  // not asked a second time

template <class Fn>
void look_up(void* library, Fn** fn, const char* name) {
  *fn = reinterpret_cast<Fn*>(real_dlsym()(library, name));
}

void bind_from(void* library) {
  const Hold hold(lock);
  if (bound) return;
  look_up(library, &nvml.init, "nvmlInit_v2");
  look_up(library, &nvml.by_uuid, "nvmlDeviceGetHandleByUUID");
  look_up(library, &nvml.uuid, "nvmlDeviceGetUUID");
  look_up(library, &nvml.compute, "nvmlDeviceGetComputeRunningProcesses_v3");
  look_up(library, &nvml.mps, "nvmlDeviceGetMPSComputeRunningProcesses_v3");
  look_up(library, &nvml.memory, "nvmlDeviceGetMemoryInfo");
  look_up(library, &nvml.memory_v2, "nvmlDeviceGetMemoryInfo_v2");
  __atomic_store_n(&bound, true, __ATOMIC_RELEASE);
}

int digit_of(char c) {
  return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

int gpu_of(Device device) {
  char text[96] = {};
  if (nvml.uuid == nullptr || nvml.uuid(device, text, sizeof text) != kNvmlSuccess) return kNoGpu;
  const char* at = std::strchr(text, '-');
  if (at == nullptr) return kNoGpu;
  unsigned char bytes[16] = {};
  int digits = 0;
  for (++at; *at != '\0' && digits < 32; ++at) {
    const int digit = digit_of(*at);
    if (digit < 0) continue;
    unsigned char& byte = bytes[digits / 2];
    byte = static_cast<unsigned char>(byte * 16 + digit);
    ++digits;
  }
  return digits == 32 ? gpu_by_uuid(bytes) : kNoGpu;
}

using List = Return (*)(Device, unsigned*, ProcessInfo*);

// Adds what a list says to those that are known already, each process once.
bool add_list(List list, Device device, NvmlProcess* all, unsigned* known) {
  ProcessInfo found[kMostNvmlProcesses];
  unsigned count = kMostNvmlProcesses;
  if (list == nullptr || list(device, &count, found) != kNvmlSuccess) return false;
  for (unsigned i = 0; i < count && i < kMostNvmlProcesses; ++i) {
    if (found[i].bytes == kUnknownBytes) continue;
    unsigned place = 0;
    while (place < *known && all[place].pid != found[i].pid) ++place;
    if (place == kMostNvmlProcesses) continue;
    if (place == *known) all[(*known)++] = {found[i].pid, 0};
    if (found[i].bytes > all[place].bytes) all[place].bytes = found[i].bytes;
  }
  return true;
}

// What NVML answers, changed by `show` to what the job has of the GPU.
template <class Info, class Show>
Return show_share(Return (*Nvml::*entry)(Device, Info*), Device device, Info* out, Show show) {
  if (!bind_nvml() || nvml.*entry == nullptr) return kNvmlUninitialized;
  const Return r = (nvml.*entry)(device, out);
  if (r == kNvmlSuccess && out != nullptr && grant_wanted())
    show(share_view(gpu_of(device), out->free, out->total));
  return r;
}

extern "C" __attribute__((visibility("default"))) Return nvmlDeviceGetMemoryInfo(Device device,
                                                                                 Memory* out) {
  return show_share(&Nvml::memory, device, out, [=](const View& view) {
    *out = {view.total, view.free, view.total - view.free};
  });
}

extern "C" __attribute__((visibility("default"))) Return nvmlDeviceGetMemoryInfo_v2(Device device,
                                                                                    MemoryV2* out) {
  return show_share(&Nvml::memory_v2, device, out, [=](const View& view) {
    if (view.limited) out->reserved = 0;
    out->total = view.total;
    out->free = view.free;
    out->used = view.total - view.free - out->reserved;
  });
}

}  // namespace

void reset_nvml() {
  lock = {};
  started = failed = false;
}

void* nvml_wrapper(const char* name) {
  if (std::strcmp(name, "nvmlDeviceGetMemoryInfo") == 0)
    return reinterpret_cast<void*>(nvmlDeviceGetMemoryInfo);
  if (std::strcmp(name, "nvmlDeviceGetMemoryInfo_v2") == 0)
    return reinterpret_cast<void*>(nvmlDeviceGetMemoryInfo_v2);
  return nullptr;
}

bool bind_nvml() {
  if (__atomic_load_n(&bound, __ATOMIC_ACQUIRE)) return true;
  if (real_dlsym() == nullptr) return false;
  void* library = loaded_library("libnvidia-ml.so.1");
  if (library == nullptr) library = loaded_library("libnvidia-ml.so");
  if (library == nullptr) return false;
  bind_from(library);
  return true;
}

namespace {

// False when NVML cannot say.
bool list_processes(int gpu, NvmlProcess* out, unsigned* count) {
  const KeepErrno keep;
  const aliquot_limits* limits = grant_limits();
  if (gpu < 0 || limits == nullptr || failed) return false;
  if (!bind_nvml()) {
    void* library = dlopen("libnvidia-ml.so.1", RTLD_LAZY | RTLD_LOCAL);
    if (library == nullptr) {
      (void)dlerror();
      failed = true;
      return false;
    }
    bind_from(library);
  }
  if (nvml.init == nullptr || nvml.by_uuid == nullptr) return false;
  // Once for the process, and never shut down: the count of starts is shared with the program.
  if (!started && nvml.init() != kNvmlSuccess) {
    failed = true;
    return false;
  }
  started = true;
  char uuid[kUuidText];
  uuid_text(limits->gpus[gpu].uuid, limits->gpus[gpu].slice != 0, uuid);
  Device device = nullptr;
  if (nvml.by_uuid(uuid, &device) != kNvmlSuccess) return false;
  *count = 0;
  const bool plain = add_list(nvml.compute, device, out, count);
  const bool mps = add_list(nvml.mps, device, out, count);
  return plain || mps;
}

}  // namespace

bool nvml_own_bytes(int gpu, std::uint64_t* bytes) {
  NvmlProcess all[kMostNvmlProcesses];
  unsigned count = 0;
  if (!list_processes(gpu, all, &count)) return false;
  *bytes = 0;
  const auto self = static_cast<unsigned>(getpid());
  for (unsigned i = 0; i < count; ++i)
    if (all[i].pid == self) *bytes = all[i].bytes;
  return true;
}

unsigned nvml_processes(int gpu, NvmlProcess* out) {
  unsigned count = 0;
  return list_processes(gpu, out, &count) ? count : 0;
}

}  // namespace aliquot::enforce
