// Contexts: primary and created ones, the thread's stack, synchronisation.
#include <algorithm>
#include <vector>

#include "standin/cuda/driver.hpp"
#include "standin/cuda/stream.hpp"

namespace aliquot::standin {
namespace {

std::vector<Stream*> streams_of(Context* context) {
  const std::lock_guard lock(Driver::instance().mutex);
  std::vector<Stream*> all{context->legacy.get()};
  for (auto& [thread, stream] : context->per_thread) all.push_back(stream.get());
  all.insert(all.end(), context->streams.begin(), context->streams.end());
  return all;
}

CUresult create(CUcontext* out, unsigned flags, CUdevice device) {
  Driver& driver = Driver::instance();
  const CUresult health = driver.ready();
  // With its server gone, a new context of a client would have to connect again.
  if (health != kSuccess) return health == kMpsRpcFailure ? kMpsConnectionFailed : health;
  if (out == nullptr) return kInvalidValue;
  if (const CUresult r = driver.create_context(device, flags, false, out); r != kSuccess) return r;
  context_stack().push_back(*out);
  return kSuccess;
}

void forget(Context* context) {
  auto& stack = context_stack();
  std::replace(stack.begin(), stack.end(), context, static_cast<Context*>(nullptr));
  while (!stack.empty() && stack.back() == nullptr) stack.pop_back();
}

CUresult check_device(CUdevice device) {
  Driver& driver = Driver::instance();
  if (const CUresult r = driver.ready(); r != kSuccess) return r;
  return driver.is_device(device) ? kSuccess : kInvalidDevice;
}

// A fault leaves contexts that can only be destroyed: no health check on the way out.
bool started() { return Driver::instance().ready() != kNotInitialized; }

template <class End>
CUresult end_primary(CUdevice device, End end) {
  if (!started()) return kNotInitialized;
  Driver& driver = Driver::instance();
  if (!driver.is_device(device)) return kInvalidDevice;
  const std::lock_guard lock(driver.mutex);
  return end(driver, driver.primaries[driver.gpu_of(device)]);
}

}  // namespace

CU_API cuCtxCreate_v2(CUcontext* out, unsigned flags, CUdevice device) {
  return create(out, flags, device);
}

CU_API cuCtxCreate_v3(CUcontext* out, void*, int, unsigned flags, CUdevice device) {
  return create(out, flags, device);
}

CU_API cuCtxCreate_v4(CUcontext* out, void*, unsigned flags, CUdevice device) {
  return create(out, flags, device);
}

CU_API cuCtxDestroy_v2(CUcontext context) {
  if (!started()) return kNotInitialized;
  Driver& driver = Driver::instance();
  if (context == nullptr) return kInvalidValue;
  if (!driver.is_context(context) || context->primary) return kInvalidContext;
  forget(context);
  driver.destroy_context(context);
  return kSuccess;
}

CU_API cuCtxDestroy(CUcontext context) { return cuCtxDestroy_v2(context); }

CU_API cuCtxPushCurrent_v2(CUcontext context) {
  if (const CUresult r = Driver::instance().ready(); r != kSuccess) return r;
  if (!Driver::instance().is_context(context)) return kInvalidContext;
  context_stack().push_back(context);
  return kSuccess;
}

CU_API cuCtxPopCurrent_v2(CUcontext* out) {
  if (const CUresult r = Driver::instance().ready(); r != kSuccess) return r;
  auto& stack = context_stack();
  if (stack.empty()) return kInvalidContext;
  if (out != nullptr) *out = stack.back();
  stack.pop_back();
  return kSuccess;
}

CU_API cuCtxSetCurrent(CUcontext context) {
  if (const CUresult r = Driver::instance().ready(); r != kSuccess) return r;
  auto& stack = context_stack();
  if (context != nullptr && !Driver::instance().is_context(context)) return kInvalidContext;
  if (!stack.empty()) stack.pop_back();
  if (context != nullptr) stack.push_back(context);
  return kSuccess;
}

CU_API cuCtxGetCurrent(CUcontext* out) {
  if (!started()) return kNotInitialized;
  auto& stack = context_stack();
  return give(out, stack.empty() ? nullptr : stack.back());
}

CU_API cuCtxGetDevice(CUdevice* out) {
  Context* context = nullptr;
  if (const CUresult r = Driver::instance().current(&context); r != kSuccess) return r;
  return give(out, context->device);
}

CU_API cuCtxGetFlags(unsigned* out) {
  Context* context = nullptr;
  if (const CUresult r = Driver::instance().current(&context); r != kSuccess) return r;
  return give(out, context->flags);
}

CU_API cuCtxGetId(CUcontext context, unsigned long long* out) {
  Context* chosen = context;
  if (chosen == nullptr)
    if (const CUresult r = Driver::instance().current(&chosen); r != kSuccess) return r;
  return Driver::instance().is_context(chosen) ? give(out, chosen->id) : kInvalidContext;
}

CU_API cuCtxGetApiVersion(CUcontext context, unsigned* out) {
  if (context != nullptr && !Driver::instance().is_context(context)) return kInvalidContext;
  return give(out, 3020U);
}

CU_API cuCtxSynchronize() {
  Context* context = nullptr;
  if (const CUresult r = Driver::instance().current(&context); r != kSuccess) return r;
  for (Stream* stream : streams_of(context))
    if (const CUresult r = synchronize(stream); r != kSuccess) return r;
  return kSuccess;
}

CU_API cuCtxGetLimit(std::size_t* out, int limit) {
  Context* context = nullptr;
  if (const CUresult r = Driver::instance().current(&context); r != kSuccess) return r;
  return give(out, context->limits[limit]);
}

CU_API cuCtxSetLimit(int limit, std::size_t value) {
  Context* context = nullptr;
  if (const CUresult r = Driver::instance().current(&context); r != kSuccess) return r;
  context->limits[limit] = value;
  return kSuccess;
}

CU_API cuCtxGetStreamPriorityRange(int* least, int* greatest) {
  if (least != nullptr) *least = 0;
  if (greatest != nullptr) *greatest = -5;
  return kSuccess;
}

CU_API cuCtxEnablePeerAccess(CUcontext peer, unsigned) {
  return Driver::instance().is_context(peer) ? kSuccess : kInvalidContext;
}

CU_API cuCtxDisablePeerAccess(CUcontext peer) {
  return Driver::instance().is_context(peer) ? kSuccess : kInvalidContext;
}

CU_API cuDevicePrimaryCtxRetain(CUcontext* out, CUdevice device) {
  if (const CUresult r = check_device(device); r != kSuccess) return r;
  if (out == nullptr) return kInvalidValue;
  Driver& driver = Driver::instance();
  const std::lock_guard lock(driver.mutex);
  auto& primary = driver.primaries[driver.gpu_of(device)];
  if (primary.context == nullptr) {
    const CUresult r = driver.create_context(device, primary.flags, true, &primary.context);
    if (r != kSuccess) return r;
  }
  ++primary.references;
  *out = primary.context;
  return kSuccess;
}

CU_API cuDevicePrimaryCtxRelease_v2(CUdevice device) {
  return end_primary(device, [](Driver& driver, auto& primary) {
    if (primary.context == nullptr) return kInvalidContext;
    if (--primary.references > 0) return kSuccess;
    // The handle stays valid for a later retain as far as a program can tell: its thread just has
    // no context.
    driver.destroy_context(primary.context);
    primary.context = nullptr;
    return kSuccess;
  });
}

CU_API cuDevicePrimaryCtxRelease(CUdevice device) { return cuDevicePrimaryCtxRelease_v2(device); }

CU_API cuDevicePrimaryCtxReset_v2(CUdevice device) {
  return end_primary(device, [](Driver& driver, auto& primary) {
    if (primary.context != nullptr) driver.destroy_context(primary.context);
    primary = {};
    return kSuccess;
  });
}

CU_API cuDevicePrimaryCtxReset(CUdevice device) { return cuDevicePrimaryCtxReset_v2(device); }

CU_API cuDevicePrimaryCtxSetFlags_v2(CUdevice device, unsigned flags) {
  if (const CUresult r = check_device(device); r != kSuccess) return r;
  Driver& driver = Driver::instance();
  const std::lock_guard lock(driver.mutex);
  auto& primary = driver.primaries[driver.gpu_of(device)];
  primary.flags = flags;
  if (primary.context != nullptr) primary.context->flags = flags;
  return kSuccess;
}

CU_API cuDevicePrimaryCtxGetState(CUdevice device, unsigned* flags, int* active) {
  if (const CUresult r = check_device(device); r != kSuccess) return r;
  if (flags == nullptr || active == nullptr) return kInvalidValue;
  Driver& driver = Driver::instance();
  const auto& primary = driver.primaries[driver.gpu_of(device)];
  *flags = primary.flags;
  *active = primary.context != nullptr ? 1 : 0;
  return kSuccess;
}

}  // namespace aliquot::standin
