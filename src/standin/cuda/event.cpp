// The calls on streams and events. An event notes the moment its stream has done all that was
// enqueued before it.
#include "standin/cuda/graph.hpp"
#include "standin/cuda/pool.hpp"
#include "standin/cuda/stream.hpp"
#include "standin/state/compute_model.hpp"

namespace aliquot::standin {

struct Event {
  unsigned flags;
  unsigned gpu;
  std::shared_ptr<LaneRef> lane;  // empty: never recorded, and so complete
  std::uint64_t probe = 0;
  double mark = 0;
};

namespace {

constexpr unsigned kDisableTiming = 2;

CUresult create_stream(CUstream* out, unsigned flags, int priority) {
  Driver& driver = Driver::instance();
  Context* context = nullptr;
  if (const CUresult r = driver.current(&context); r != kSuccess) return r;
  if (out == nullptr || flags > 1) return kInvalidValue;
  const std::lock_guard lock(driver.mutex);
  *out = new Stream(context, flags, priority);
  context->streams.insert(*out);
  return kSuccess;
}

// 0 while the event has not happened.
double time_of(const Event& event) {
  State& state = Driver::instance().state();
  const State::Guard guard(state);
  GpuCompute& compute = state.gpu(event.lane->gpu).compute;
  advance(compute, state.now());
  return probe_time(compute, event.lane->lane, event.probe);
}

template <class Use>
CUresult on_stream(CUstream stream, Use use) {
  Stream* s = nullptr;
  if (const CUresult r = resolve_stream(stream, &s); r != kSuccess) return r;
  return use(s);
}

CUresult record(CUevent event, CUstream stream) {
  Stream* s = nullptr;
  if (const CUresult r = resolve_stream(stream, &s); r != kSuccess) return r;
  if (event == nullptr) return kInvalidHandle;
  if (s->capture != nullptr) return kSuccess;
  if (const CUresult r = ensure_lane(s); r != kSuccess) return r;
  State& state = Driver::instance().state();
  std::shared_ptr<LaneRef> previous =
      std::move(event->lane);  // may close a lane: not under the lock
  event->lane = s->lane;
  const State::Guard guard(state);
  GpuCompute& compute = state.gpu(s->lane->gpu).compute;
  advance(compute, state.now());
  event->probe = add_probe(compute, s->lane->lane);
  event->mark = compute.lanes[s->lane->lane].submitted;
  return kSuccess;
}

}  // namespace

CU_API cuStreamCreate(CUstream* out, unsigned flags) { return create_stream(out, flags, 0); }

CU_API cuStreamCreateWithPriority(CUstream* out, unsigned flags, int priority) {
  return create_stream(out, flags, priority);
}

CU_API cuStreamDestroy_v2(CUstream stream) {
  Driver& driver = Driver::instance();
  if (const CUresult r = driver.ready(); r == kNotInitialized) return r;
  const std::lock_guard lock(driver.mutex);
  for (Context* context : driver.contexts) {
    if (context->streams.erase(stream) == 0) continue;
    capture_abandon(stream);
    delete stream;
    return kSuccess;
  }
  return kInvalidHandle;
}

CU_API_STREAM(cuStreamSynchronize, _ptsz, (CUstream stream), (stream)) {
  return on_stream(stream, synchronize);
}

CU_API_STREAM(cuStreamQuery, _ptsz, (CUstream stream), (stream)) {
  return on_stream(stream, [](Stream* s) { return drained(s) ? kSuccess : kNotReady; });
}

CU_API_STREAM(cuStreamWaitEvent, _ptsz, (CUstream stream, CUevent event, unsigned),
              (stream, event, 0U)) {
  return on_stream(stream, [=](Stream*) { return event == nullptr ? kInvalidHandle : kSuccess; });
}

CU_API_STREAM(cuStreamGetFlags, _ptsz, (CUstream stream, unsigned* flags), (stream, flags)) {
  return on_stream(stream, [=](Stream* s) { return give(flags, s->flags); });
}

CU_API_STREAM(cuStreamGetPriority, _ptsz, (CUstream stream, int* priority), (stream, priority)) {
  return on_stream(stream, [=](Stream* s) { return give(priority, s->priority); });
}

CU_API_STREAM(cuStreamGetCtx, _ptsz, (CUstream stream, CUcontext* context), (stream, context)) {
  return on_stream(stream, [=](Stream* s) { return give(context, s->context); });
}

CU_API_STREAM(cuStreamGetDevice, _ptsz, (CUstream stream, CUdevice* device), (stream, device)) {
  return on_stream(stream, [=](Stream* s) { return give(device, s->context->device); });
}

CU_API_STREAM(cuLaunchHostFunc, _ptsz, (CUstream stream, CUhostFn function, void* data),
              (stream, function, data)) {
  Stream* s = nullptr;
  if (const CUresult r = resolve_stream(stream, &s); r != kSuccess) return r;
  if (function == nullptr) return kInvalidValue;
  Operation operation;
  operation.host = [=] { function(data); };
  return enqueue(s, std::move(operation));
}

CU_API_STREAM(cuStreamAddCallback, _ptsz,
              (CUstream stream, CUstreamCallback function, void* data, unsigned),
              (stream, function, data, 0U)) {
  Stream* s = nullptr;
  if (const CUresult r = resolve_stream(stream, &s); r != kSuccess) return r;
  if (function == nullptr) return kInvalidValue;
  if (s->capture != nullptr) return kCaptureUnsupported;
  Operation operation;
  operation.host = [=] { function(stream, kSuccess, data); };
  return enqueue(s, std::move(operation));
}

CU_API cuEventCreate(CUevent* out, unsigned flags) {
  Context* context = nullptr;
  if (const CUresult r = Driver::instance().current(&context); r != kSuccess) return r;
  if (out == nullptr) return kInvalidValue;
  *out = new Event{flags, context->gpu, nullptr};
  return kSuccess;
}

CU_API cuEventDestroy_v2(CUevent event) {
  if (const CUresult r = Driver::instance().ready(); r == kNotInitialized) return r;
  if (event == nullptr) return kInvalidHandle;
  delete event;
  return kSuccess;
}

CU_API_STREAM(cuEventRecord, _ptsz, (CUevent event, CUstream stream), (event, stream)) {
  return record(event, stream);
}

CU_API_STREAM(cuEventRecordWithFlags, _ptsz, (CUevent event, CUstream stream, unsigned),
              (event, stream, 0U)) {
  return record(event, stream);
}

CU_API cuEventQuery(CUevent event) {
  if (const CUresult r = Driver::instance().ready(); r != kSuccess) return r;
  if (event == nullptr) return kInvalidHandle;
  return event->lane && time_of(*event) == 0 ? kNotReady : kSuccess;
}

CU_API cuEventSynchronize(CUevent event) {
  if (const CUresult r = Driver::instance().ready(); r != kSuccess) return r;
  if (event == nullptr) return kInvalidHandle;
  if (!event->lane) return kSuccess;
  if (const CUresult r = wait_for(*event->lane, event->mark); r != kSuccess) return r;
  pools_synchronized(event->gpu);
  return kSuccess;
}

CU_API cuEventElapsedTime(float* ms, CUevent start, CUevent end) {
  if (const CUresult r = Driver::instance().ready(); r != kSuccess) return r;
  if (ms == nullptr || start == nullptr || end == nullptr) return kInvalidValue;
  if (!start->lane || !end->lane || ((start->flags | end->flags) & kDisableTiming) != 0)
    return kInvalidHandle;
  const double from = time_of(*start);
  const double to = time_of(*end);
  if (from == 0 || to == 0) return kNotReady;
  *ms = static_cast<float>((to - from) / 1e6);
  return kSuccess;
}

CU_API cuEventElapsedTime_v2(float* ms, CUevent start, CUevent end) {
  return cuEventElapsedTime(ms, start, end);
}

}  // namespace aliquot::standin
