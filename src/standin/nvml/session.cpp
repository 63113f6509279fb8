#include "standin/nvml/session.hpp"

#include <cstdio>
#include <cstring>
#include <mutex>

#include "standin/state/compute_model.hpp"

namespace aliquot::standin {
namespace {

std::mutex mutex;
int sessions = 0;
State* state = nullptr;  // opened once and kept: see State

nvmlReturn begin() {
  const std::lock_guard lock(mutex);
  if (state == nullptr) {
    std::string why;
    state = State::open(&why).release();
    if (state == nullptr) {
      std::fprintf(stderr, "aliquot-standin: no simulated GPUs: %s\n", why.c_str());
      return kNvmlDriverNotLoaded;
    }
  }
  ++sessions;
  return kNvmlSuccess;
}

}  // namespace

State* nvml_state() {
  const std::lock_guard lock(mutex);
  return sessions > 0 ? state : nullptr;
}

nvmlDevice nvml_handle(unsigned index) {
  return reinterpret_cast<nvmlDevice>(std::uintptr_t{0x1000} + index);
}

nvmlReturn nvml_gpu(nvmlDevice device, unsigned* index) {
  State* s = nvml_state();
  if (s == nullptr) return kNvmlUninitialized;
  const auto number = reinterpret_cast<std::uintptr_t>(device) - 0x1000;
  if (number >= s->gpu_count()) return kNvmlInvalidArgument;
  *index = static_cast<unsigned>(number);
  return s->gpu(*index).lost ? kNvmlGpuLost : kNvmlSuccess;
}

Look::Look(State& s) : guard_(s, false) {
  s.reap();
  for (unsigned g = 0; g < s.gpu_count(); ++g) advance(s.gpu(g).compute, s.now());
}

nvmlReturn put_text(const std::string& text, char* out, unsigned size) {
  if (out == nullptr) return kNvmlInvalidArgument;
  if (size <= text.size()) return kNvmlInsufficientSize;
  std::memcpy(out, text.c_str(), text.size() + 1);
  return kNvmlSuccess;
}

NVML_API nvmlInit_v2() { return begin(); }
NVML_API nvmlInit() { return begin(); }
NVML_API nvmlInitWithFlags(unsigned) { return begin(); }

NVML_API nvmlShutdown() {
  const std::lock_guard lock(mutex);
  if (sessions == 0) return kNvmlUninitialized;
  --sessions;
  return kNvmlSuccess;
}

NVML_API nvmlSystemGetDriverVersion(char* out, unsigned size) {
  return nvml_state() == nullptr ? kNvmlUninitialized : put_text(kDriverVersionText, out, size);
}

NVML_API nvmlSystemGetNVMLVersion(char* out, unsigned size) {
  return nvml_state() == nullptr ? kNvmlUninitialized
                                 : put_text(std::string("13.") + kDriverVersionText, out, size);
}

NVML_API nvmlSystemGetCudaDriverVersion(int* out) { return put(out, kCudaVersion); }
NVML_API nvmlSystemGetCudaDriverVersion_v2(int* out) { return put(out, kCudaVersion); }

NVML_API nvmlSystemGetProcessName(unsigned pid, char* out, unsigned size) {
  State* s = nvml_state();
  if (s == nullptr) return kNvmlUninitialized;
  if (out == nullptr || size == 0) return kNvmlInvalidArgument;
  const State::Guard guard(*s, false);
  const int slot = s->find_pid(static_cast<int>(pid));
  if (slot < 0) return kNvmlNotFound;
  std::snprintf(out, size, "%s", s->process(slot).name);
  return kNvmlSuccess;
}

extern "C" __attribute__((visibility("default"))) const char* nvmlErrorString(nvmlReturn code) {
  switch (code) {
    case kNvmlSuccess:
      return "Success";
    case kNvmlUninitialized:
      return "Uninitialized";
    case kNvmlInvalidArgument:
      return "Invalid Argument";
    case kNvmlNotSupported:
      return "Not Supported";
    case kNvmlNoPermission:
      return "Insufficient Permissions";
    case kNvmlNotFound:
      return "Not Found";
    case kNvmlInsufficientSize:
      return "Insufficient Size";
    case kNvmlDriverNotLoaded:
      return "Driver Not Loaded";
    case kNvmlTimeout:
      return "Timeout";
    case kNvmlGpuLost:
      return "GPU is lost";
    case kNvmlVersionMismatch:
      return "Argument version mismatch";
    default:
      return "Unknown Error";
  }
}

}  // namespace aliquot::standin
