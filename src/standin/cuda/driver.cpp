#include "standin/cuda/driver.hpp"

#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <ctime>

#include "standin/cuda/kernel.hpp"
#include "standin/cuda/memory.hpp"
#include "standin/cuda/mps_client.hpp"
#include "standin/cuda/stream.hpp"
#include "standin/state/compute_model.hpp"
#include "standin/state/visible.hpp"

namespace aliquot::standin {
namespace {

constexpr std::uint64_t kHidden = 8ULL << 20;

bool forked = false;

void after_fork() {
  forked = true;
  mps_forget();
}

// Who ends in order leaves nothing running, whatever it did not wait for.
void at_exit() {
  if (forked) return;
  Driver& driver = Driver::instance();
  const State::Guard guard(driver.state(), false);
  driver.state().end_work(driver.slot(), driver.self().fault);
}

}  // namespace

Driver& Driver::instance() {
  static Driver* const driver = new Driver;
  return *driver;
}

std::vector<Context*>& context_stack() {
  static thread_local std::vector<Context*> stack;
  return stack;
}

CUresult Driver::init() {
  if (forked) return kNotInitialized;
  const std::lock_guard lock(mutex);
  if (initialized_) return kSuccess;
  std::string why;
  state_ = State::open(&why);
  if (!state_) {
    std::fprintf(stderr, "aliquot-standin: no simulated GPUs: %s\n", why.c_str());
    return kNoDevice;
  }
  std::vector<unsigned> offered;
  mps_ = mps_connect(*state_, &offered);
  if (!mps_) offered = device_order(*state_);
  visible_ = visible_devices(*state_, offered);
  if (visible_.empty()) return kNoDevice;
  slot_ = state_->enlist(Kind::plain);
  if (slot_ < 0) return kOperatingSystem;
  pthread_atfork(nullptr, nullptr, after_fork);
  std::atexit(at_exit);
  initialized_ = true;
  return kSuccess;
}

CUresult Driver::health() {
  const Process& p = self();
  if (p.fault != 0) return p.fault;
  if (p.kind == Kind::client) {
    const Process& server = state_->process(p.server);
    if (server.kind != Kind::server || server.generation != p.server_generation)
      return kMpsRpcFailure;
  }
  return kSuccess;
}

CUresult Driver::ready() {
  if (forked || !initialized_) return kNotInitialized;
  // cuCheckpointProcessLock holds a process at its next call.
  const volatile CheckpointState& checkpoint = self().checkpoint;
  while (checkpoint != CheckpointState::running) {
    const timespec pause{0, 1'000'000};
    nanosleep(&pause, nullptr);
  }
  return health();
}

CUresult Driver::current(Context** context) {
  if (const CUresult r = ready(); r != kSuccess) return r;
  auto& stack = context_stack();
  if (stack.empty() || stack.back() == nullptr) return kInvalidContext;
  *context = stack.back();
  if (!is_context(*context)) return kInvalidContext;
  return state_->gpu((*context)->gpu).lost ? kUnknown : kSuccess;
}

CUresult Driver::charge(unsigned gpu, std::uint64_t bytes, bool managed) {
  const State::Guard guard(*state_);
  return state_->charge(slot_, gpu, bytes, managed) ? kSuccess : kOutOfMemory;
}

void Driver::refund(unsigned gpu, std::uint64_t bytes, bool managed) {
  const State::Guard guard(*state_);
  state_->refund(slot_, gpu, bytes, managed);
}

bool Driver::is_context(Context* context) {
  const std::lock_guard lock(mutex);
  return contexts.contains(context);
}

CUresult Driver::attach_mps() {
  if (!mps_ || attached_) return kSuccess;
  MpsPlace place;
  if (const CUresult r = mps_attach(slot_, self().generation, &place); r != kSuccess) return r;
  const State::Guard guard(*state_);
  Process& p = self();
  const Process& server = state_->process(place.server);
  if (server.kind != Kind::server || server.generation != place.generation)
    return kMpsConnectionFailed;
  p.server = place.server;
  p.server_generation = place.generation;
  const bool volta = std::all_of(visible_.begin(), visible_.end(),
                                 [&](unsigned g) { return state_->model(g).volta_mps(); });
  if (volta) {
    p.cap = std::min(place.fraction, mps_own_fraction());
    for (unsigned d = 0; d < visible_.size(); ++d) {
      // A client may tighten its server's limit, never loosen it.
      const auto own = mps_own_limit(d);
      const auto given = place.limit[visible_[d]];
      p.limit[visible_[d]] = own == 0 ? given : given == 0 ? own : std::min(own, given);
    }
  }
  p.kind = Kind::client;
  attached_ = true;
  return kSuccess;
}

CUresult Driver::create_context(CUdevice device, unsigned flags, bool primary, Context** out) {
  if (!is_device(device)) return kInvalidDevice;
  const unsigned gpu = gpu_of(device);
  if (state_->gpu(gpu).lost) return kUnknown;
  const std::lock_guard lock(mutex);
  if (const CUresult r = attach_mps(); r != kSuccess) return r;
  if (!mps_) {
    const State::Guard guard(*state_);
    if (!state_->admits(gpu, slot_)) return kDeviceUnavailable;
  }
  // A little of what a context takes is attributed to nobody (measured).
  if (const CUresult r = charge(gpu, state_->model(gpu).context_cost - kHidden); r != kSuccess)
    return r;
  if (const CUresult r = charge(gpu, kHidden, true); r != kSuccess) {
    refund(gpu, state_->model(gpu).context_cost - kHidden);
    return r;
  }
  {
    const State::Guard guard(*state_);
    ++self().contexts[gpu];
  }
  auto context = std::make_unique<Context>();
  context->device = device;
  context->gpu = gpu;
  context->primary = primary;
  context->flags = flags;
  context->id = next_context_++;
  context->limits = {{0, 1024}, {1, 8650752}, {2, 8 << 20}};
  context->legacy = std::make_unique<Stream>(context.get(), 0U);
  contexts.insert(context.get());
  *out = context.release();
  return kSuccess;
}

void Driver::destroy_context(Context* context) {
  const std::lock_guard lock(mutex);
  contexts.erase(context);
  memory_release_context(context);
  modules_gone(context);
  for (Stream* stream : context->streams) delete stream;
  context->streams.clear();
  const unsigned gpu = context->gpu;
  const std::uint64_t own = context->own_bytes + state_->model(gpu).context_cost - kHidden;
  // Streams first: their lanes close under the state's lock.
  delete context;
  const State::Guard guard(*state_);
  --self().contexts[gpu];
  state_->refund(slot_, gpu, own);
  state_->refund(slot_, gpu, kHidden, true);
}

LaneRef::~LaneRef() {
  State& state = Driver::instance().state();
  const State::Guard guard(state);
  advance(state.gpu(gpu).compute, state.now());
  close_lane(state.gpu(gpu).compute, lane);
}

}  // namespace aliquot::standin
