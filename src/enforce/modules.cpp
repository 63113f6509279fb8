// Modules, the functions in them, streams, and the limits of a context: what the driver takes
// memory for by itself (overhead.hpp).
#include "enforce/memory.hpp"
#include "enforce/overhead.hpp"
#include "enforce/reset.hpp"

namespace aliquot::enforce {
namespace {

enum HandleKind : std::uint32_t { handle_function, handle_kernel };

constexpr int kLocalBytes = 3;  // an attribute of functions
constexpr int kStackLimit = 0;
constexpr int kHeapLimit = 2;

Lock lock;
Table handles;  // key: a function or kernel; which of them it is decides whom to ask about it

void note(const void* handle, HandleKind kind) {
  const auto key = reinterpret_cast<std::uintptr_t>(handle);
  const Hold hold(lock);
  if (Record* known = handles.find(key))
    known->kind = kind;
  else
    (void)handles.insert({key, 0, 0, 0, kind});
}

// Variables take their memory when a module is loaded, and nothing says beforehand how much.
template <class Load>
CUresult load(CUmodule* out, Load call) {
  int gpu = kNoGpu;
  CUcontext context = nullptr;
  if (!governed() || out == nullptr || !current_gpu(&gpu, &context)) return call();
  if (!have_room(gpu)) return kOutOfMemory;
  const CUresult r = call();
  if (r != kSuccess || look_now(gpu)) return r;
  (void)real::cuModuleUnload(*out);
  *out = nullptr;
  count_refusal(gpu);
  overhead_gone(gpu);
  return kOutOfMemory;
}

template <class Get>
CUresult get_handle(CUfunction* out, HandleKind kind, Get call) {
  const bool ours = governed();
  const CUresult r = call();
  if (ours && r == kSuccess && out != nullptr) note(*out, kind);
  return r;
}

template <class Make>
CUresult make_stream(Make call) {
  int gpu = kNoGpu;
  CUcontext context = nullptr;
  if (!governed() || !current_gpu(&gpu, &context)) return call();
  if (!have_room(gpu)) return kOutOfMemory;
  const CUresult r = call();
  (void)look_now(gpu);
  return r;
}

}  // namespace

void reset_modules_loaded() {
  lock = {};
  handles.reset();
}

std::uint64_t local_bytes(CUfunction f, CUdevice device) {
  HandleKind kind = handle_function;
  {
    const Hold hold(lock);
    const Record* known = handles.find(reinterpret_cast<std::uintptr_t>(f));
    if (known == nullptr) return 0;
    kind = static_cast<HandleKind>(known->kind);
  }
  int bytes = 0;
  const CUresult r = kind == handle_function
                         ? real::cuFuncGetAttribute(&bytes, kLocalBytes, f)
                         : real::cuKernelGetAttribute(&bytes, kLocalBytes, f, device);
  return r == kSuccess && bytes > 0 ? static_cast<std::uint64_t>(bytes) : 0;
}

ALIQUOT_HOOK cuModuleLoad(CUmodule* out, const char* path) {
  return load(out, [&] { return real::cuModuleLoad(out, path); });
}

ALIQUOT_HOOK cuModuleLoadData(CUmodule* out, const void* image) {
  return load(out, [&] { return real::cuModuleLoadData(out, image); });
}

ALIQUOT_HOOK cuModuleLoadDataEx(CUmodule* out, const void* image, unsigned count, int* options,
                                void** values) {
  return load(out, [&] { return real::cuModuleLoadDataEx(out, image, count, options, values); });
}

ALIQUOT_HOOK cuModuleLoadFatBinary(CUmodule* out, const void* image) {
  return load(out, [&] { return real::cuModuleLoadFatBinary(out, image); });
}

ALIQUOT_HOOK cuModuleUnload(CUmodule module) {
  if (governed()) forget_functions();
  return real::cuModuleUnload(module);
}

ALIQUOT_HOOK cuLibraryUnload(CUlibrary library) {
  if (governed()) forget_functions();
  return real::cuLibraryUnload(library);
}

ALIQUOT_HOOK cuModuleGetFunction(CUfunction* out, CUmodule module, const char* name) {
  return get_handle(out, handle_function,
                    [&] { return real::cuModuleGetFunction(out, module, name); });
}

ALIQUOT_HOOK cuKernelGetFunction(CUfunction* out, CUfunction kernel) {
  return get_handle(out, handle_function, [&] { return real::cuKernelGetFunction(out, kernel); });
}

ALIQUOT_HOOK cuLibraryGetKernel(CUfunction* out, CUlibrary library, const char* name) {
  return get_handle(out, handle_kernel,
                    [&] { return real::cuLibraryGetKernel(out, library, name); });
}

// Streams have memory of the driver's too: a few dozen of them 70 MiB (measured).
ALIQUOT_HOOK cuStreamCreate(CUstream* out, unsigned flags) {
  return make_stream([&] { return real::cuStreamCreate(out, flags); });
}

ALIQUOT_HOOK cuStreamCreateWithPriority(CUstream* out, unsigned flags, int priority) {
  return make_stream([&] { return real::cuStreamCreateWithPriority(out, flags, priority); });
}

// The heap of the device's malloc is taken when a function that uses it is first launched, the
// stack at once.
ALIQUOT_HOOK cuCtxSetLimit(int limit, std::size_t value) {
  const auto call = [&] { return real::cuCtxSetLimit(limit, value); };
  int gpu = kNoGpu;
  CUcontext context = nullptr;
  CUdevice device = 0;
  std::size_t before = 0;
  if (!governed() || (limit != kStackLimit && limit != kHeapLimit) ||
      !current_gpu(&gpu, &context) || gpu < 0 || real::cuCtxGetDevice(&device) != kSuccess ||
      real::cuCtxGetLimit(&before, limit) != kSuccess)
    return call();
  if (limit == kHeapLimit && value > before && !promise_room(gpu, value - before))
    return kOutOfMemory;
  if (limit == kStackLimit && !have_room(gpu, local_growth(gpu, device, value)))
    return kOutOfMemory;
  const CUresult r = call();
  if (r == kSuccess && limit == kStackLimit) local_grown(gpu, value);
  if (limit == kHeapLimit && r != kSuccess && value > before) promise_less(gpu, value - before);
  if (limit == kHeapLimit && r == kSuccess && value < before) promise_less(gpu, before - value);
  return r;
}

}  // namespace aliquot::enforce
