#include "standin/cuda/stream.hpp"

#include <algorithm>
#include <cmath>
#include <condition_variable>
#include <cstdint>
#include <ctime>

#include "standin/cuda/graph.hpp"
#include "standin/cuda/pool.hpp"
#include "standin/state/compute_model.hpp"

namespace aliquot::standin {
namespace {

constexpr std::size_t kQueueDepth = 1024;  // launches a stream takes before it blocks the caller

// Functions of the program run on one thread, in order, each when its stream has reached it.
class HostFunctions {
 public:
  static HostFunctions& instance() {
    static HostFunctions* const functions = new HostFunctions;
    return *functions;
  }

  void add(Stream* stream, double mark, std::function<void()> function) {
    ++stream->callbacks;
    const std::lock_guard lock(mutex_);
    queue_.push_back({stream, stream->lane, mark, std::move(function)});
    if (!started_) {
      started_ = true;
      std::thread([this] { run(); }).detach();
    }
    wake_.notify_one();
  }

 private:
  struct Item {
    Stream* stream;
    std::shared_ptr<LaneRef> lane;
    double mark;
    std::function<void()> function;
  };

  void run() {
    for (;;) {
      std::unique_lock lock(mutex_);
      wake_.wait(lock, [this] { return !queue_.empty(); });
      Item item = std::move(queue_.front());
      queue_.pop_front();
      lock.unlock();
      if (wait_for(*item.lane, item.mark) == kSuccess) item.function();
      --item.stream->callbacks;
    }
  }

  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<Item> queue_;
  bool started_ = false;
};

void nap(double ns) {
  ns = std::max(ns, 20'000.0);
  const timespec pause{static_cast<time_t>(ns / 1e9), static_cast<long>(std::fmod(ns, 1e9))};
  nanosleep(&pause, nullptr);
}

// Forgets launches that are done; under the state's lock.
void forget_done(Stream& stream, const GpuCompute& compute) {
  while (!stream.pending.empty() && finished(compute, stream.lane->lane, stream.pending.front()))
    stream.pending.pop_front();
}

}  // namespace

Stream::~Stream() {
  graph_stream_gone(this);
  while (callbacks.load() != 0) nap(1e5);
}

void sleep_simulated(double ns) { nap(ns / Driver::instance().state().data().speed); }

CUresult resolve_stream(CUstream handle, Stream** out) {
  Driver& driver = Driver::instance();
  Context* context = nullptr;
  if (const CUresult r = driver.current(&context); r != kSuccess) return r;
  const std::lock_guard lock(driver.mutex);
  const auto number = reinterpret_cast<std::uintptr_t>(handle);
  if (number == 2 || (number == 0 && PerThreadDefault::active())) {
    auto& own = context->per_thread[std::this_thread::get_id()];
    if (!own) own = std::make_unique<Stream>(context, 0U);
    *out = own.get();
    return kSuccess;
  }
  if (number <= 1) {
    *out = context->legacy.get();
    return kSuccess;
  }
  const bool known = std::any_of(driver.contexts.begin(), driver.contexts.end(),
                                 [&](Context* c) { return c->streams.contains(handle); });
  if (!known) return kInvalidHandle;
  *out = handle;
  return kSuccess;
}

CUresult ensure_lane(Stream* stream) {
  Driver& driver = Driver::instance();
  const std::lock_guard lock(driver.mutex);
  if (stream->lane) return kSuccess;
  State& state = driver.state();
  const unsigned gpu = stream->context->gpu;
  const State::Guard guard(state);
  advance(state.gpu(gpu).compute, state.now());
  const Process& self = driver.self();
  const int group = self.kind == Kind::client ? self.server : driver.slot();
  const int lane = open_lane(state.gpu(gpu).compute, driver.slot(), group, self.cap);
  if (lane < 0) return kOperatingSystem;
  stream->lane = std::make_shared<LaneRef>(gpu, lane);
  return kSuccess;
}

CUresult enqueue(Stream* stream, Operation operation) {
  if (stream->capture != nullptr) return capture_operation(stream, std::move(operation));
  if (const CUresult r = ensure_lane(stream); r != kSuccess) return r;
  if (operation.effect) operation.effect();

  Driver& driver = Driver::instance();
  State& state = driver.state();
  GpuCompute& compute = state.gpu(stream->lane->gpu).compute;
  double mark = 0;
  double wait_until = 0;
  {
    const std::lock_guard lock(driver.mutex);
    const State::Guard guard(state);
    advance(compute, state.now());
    if (operation.work_ns > 0) {
      mark = submit(compute, stream->lane->lane, operation.work_ns, operation.width);
      stream->pending.push_back(mark);
      forget_done(*stream, compute);
      if (stream->pending.size() > kQueueDepth) wait_until = stream->pending[kQueueDepth / 2];
    } else {
      mark = compute.lanes[stream->lane->lane].submitted;
    }
    if (operation.faults) state.fault(driver.slot(), kIllegalAddress);
  }
  if (operation.host) HostFunctions::instance().add(stream, mark, std::move(operation.host));
  return wait_until > 0 ? wait_for(*stream->lane, wait_until) : kSuccess;
}

CUresult wait_for(const LaneRef& lane, double mark) {
  Driver& driver = Driver::instance();
  State& state = driver.state();
  for (;;) {
    double left = 0;
    {
      const State::Guard guard(state);
      // The dead stop taking their share of the GPU here.
      state.reap();
      if (const CUresult r = driver.health(); r != kSuccess) return r;
      Gpu& gpu = state.gpu(lane.gpu);
      if (gpu.lost) return kUnknown;
      advance(gpu.compute, state.now());
      if (finished(gpu.compute, lane.lane, mark)) return kSuccess;
      left = eta(gpu.compute, lane.lane, mark) / state.data().speed;
    }
    // Others may leave meanwhile and make it faster: look again in between.
    nap(std::min({left, std::max(2e6, left / 2), 20e6}));
  }
}

CUresult synchronize(Stream* stream) {
  if (stream->capture != nullptr) {
    stream->capture_broken = true;
    return kCaptureUnsupported;
  }
  if (stream->lane) {
    if (const CUresult r = wait_for(*stream->lane, last_mark(*stream)); r != kSuccess) return r;
  }
  while (stream->callbacks.load() != 0) nap(1e5);
  pools_synchronized(stream->context->gpu);
  return Driver::instance().health();
}

double last_mark(const Stream& stream) {
  if (!stream.lane) return 0;
  State& state = Driver::instance().state();
  const State::Guard guard(state);
  return state.gpu(stream.lane->gpu).compute.lanes[stream.lane->lane].submitted;
}

bool reached(const LaneRef& lane, double mark) {
  State& state = Driver::instance().state();
  const State::Guard guard(state);
  GpuCompute& compute = state.gpu(lane.gpu).compute;
  advance(compute, state.now());
  return finished(compute, lane.lane, mark);
}

bool drained(Stream* stream) {
  if (stream->callbacks.load() != 0) return false;
  return !stream->lane || reached(*stream->lane, last_mark(*stream));
}

}  // namespace aliquot::standin
