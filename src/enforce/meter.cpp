#include "enforce/meter.hpp"

#include "enforce/gate.hpp"

namespace aliquot::enforce {
namespace {

constexpr std::uint64_t kEvery = 10'000'000;  // ns
constexpr std::uint64_t kMostQueued = 500'000'000;
constexpr std::uint64_t kUnusual = 4;
constexpr std::uint64_t kShort = 10'000;

enum class Sample { none, starting, running };

struct Meter {
  Sample sample = Sample::none;
  CUevent from = nullptr, to = nullptr;
  CUcontext context = nullptr;
  std::uint64_t mean_ns = 0;
  std::uint64_t uncounted = 0;  // launches whose time is not added yet
  std::uint64_t queued_ns = 0;  // estimated, and not over yet as far as we can tell
  std::uint64_t added_at = 0;   // CLOCK_MONOTONIC
};

struct GpuMeter {
  std::uint64_t sampled_at = 0;
  Meter kinds[launch_kinds];
};

Lock lock;
bool metering = false;
unsigned samples_running = 0;
GpuMeter meters[ALIQUOT_MAX_GPUS];

// Launches are counted when they are handed over, and may run later: what does not fit into the
// time that passed is kept for the next look, up to a point, since streams may also overlap.
void add_time(int gpu, Meter* meter, std::uint64_t now) {
  if (meter->mean_ns == 0) return;
  const std::uint64_t launches = __atomic_exchange_n(&meter->uncounted, 0, __ATOMIC_RELAXED);
  meter->queued_ns += meter->mean_ns * launches;
  if (meter->queued_ns == 0) {
    meter->added_at = now;
    return;
  }
  const std::uint64_t passed = now - meter->added_at;
  const std::uint64_t time = meter->queued_ns < passed ? meter->queued_ns : passed;
  meter->queued_ns -= time;
  if (meter->queued_ns > kMostQueued) meter->queued_ns = kMostQueued;
  meter->added_at = now;
  if (aliquot_use* use = own_use(gpu))
    (void)__atomic_add_fetch(&use->gpu_ns, time, __ATOMIC_RELAXED);
}

void finish_sample(Meter* meter) {
  meter->sample = Sample::none;
  (void)__atomic_sub_fetch(&samples_running, 1, __ATOMIC_RELAXED);
}

void harvest_locked(int gpu, std::uint64_t now) {
  constexpr CUresult kNotReady = 600;
  for (Meter& meter : meters[gpu].kinds) {
    if (meter.sample == Sample::running) {
      const CUresult r = real::cuEventQuery(meter.to);
      if (r == kNotReady) continue;
      float ms = 0;
      if (r == kSuccess && real::cuEventElapsedTime(&ms, meter.from, meter.to) == kSuccess &&
          ms >= 0) {
        auto ns = static_cast<std::uint64_t>(static_cast<double>(ms) * 1e6);
        // One that was interrupted for a neighbour's turn lasted a thousand times as long: that is
        // not ours.
        const std::uint64_t most = meter.mean_ns * kUnusual + kShort;
        if (meter.mean_ns != 0 && ns > most) ns = most;
        // A slow average: launches differ, and each sample is one of many.
        meter.mean_ns = meter.mean_ns == 0 ? ns + 1 : (meter.mean_ns * 7 + ns) / 8 + 1;
      }
      finish_sample(&meter);
    }
    add_time(gpu, &meter, now);
  }
}

void drop_events(Meter* meter) {
  if (meter->from != nullptr) (void)real::cuEventDestroy_v2(meter->from);
  if (meter->to != nullptr) (void)real::cuEventDestroy_v2(meter->to);
  meter->from = meter->to = nullptr;
  meter->context = nullptr;
}

bool make_events(Meter* meter) {
  CUcontext context = nullptr;
  if (real::cuCtxGetCurrent(&context) != kSuccess || context == nullptr) return false;
  if (meter->context == context && meter->to != nullptr) return true;
  drop_events(meter);
  if (real::cuEventCreate(&meter->from, 0) != kSuccess) meter->from = nullptr;
  if (real::cuEventCreate(&meter->to, 0) != kSuccess) meter->to = nullptr;
  if (meter->from == nullptr || meter->to == nullptr) {
    drop_events(meter);
    return false;
  }
  meter->context = context;
  return true;
}

}  // namespace

void meter_set_up(bool on) { metering = on; }

void reset_meter() {
  lock = {};
  samples_running = 0;
  for (GpuMeter& meter : meters) meter = {};
}

void meter_count(int gpu, unsigned kind, unsigned launches) {
  if (!metering || launches == 0) return;
  Meter& meter = meters[gpu].kinds[kind];
  if (meter.added_at == 0) meter.added_at = now_ns();
  (void)__atomic_add_fetch(&meter.uncounted, launches, __ATOMIC_RELAXED);
}

bool meter_due(int gpu, std::uint64_t now) {
  return metering && now - __atomic_load_n(&meters[gpu].sampled_at, __ATOMIC_RELAXED) >= kEvery;
}

bool meter_begin(int gpu, unsigned kind, CUstream stream, std::uint64_t now) {
  if (!meter_due(gpu, now)) return false;
  const Hold hold(lock);
  harvest_locked(gpu, now);
  __atomic_store_n(&meters[gpu].sampled_at, now, __ATOMIC_RELAXED);
  Meter& meter = meters[gpu].kinds[kind];
  if (meter.sample != Sample::none || !make_events(&meter) ||
      real::cuEventRecord(meter.from, stream) != kSuccess)
    return false;
  meter.sample = Sample::starting;
  (void)__atomic_add_fetch(&samples_running, 1, __ATOMIC_RELAXED);
  return true;
}

void meter_end(int gpu, unsigned kind, CUstream stream, bool launched) {
  const Hold hold(lock);
  Meter& meter = meters[gpu].kinds[kind];
  if (meter.sample != Sample::starting) return;
  if (launched && meter.to != nullptr && real::cuEventRecord(meter.to, stream) == kSuccess)
    meter.sample = Sample::running;
  else
    finish_sample(&meter);
}

std::uint64_t meter_mean(int gpu, unsigned kind) {
  return __atomic_load_n(&meters[gpu].kinds[kind].mean_ns, __ATOMIC_RELAXED);
}

bool meter_pending() {
  return metering && __atomic_load_n(&samples_running, __ATOMIC_RELAXED) != 0;
}

void meter_harvest(int gpu, std::uint64_t now, bool all_over) {
  const Hold hold(lock);
  harvest_locked(gpu, now);
  if (!all_over) return;
  for (Meter& meter : meters[gpu].kinds) meter.queued_ns = 0;
}

void meter_context_ends(CUcontext context) {
  const Hold hold(lock);
  for (GpuMeter& gpu : meters)
    for (Meter& meter : gpu.kinds) {
      if (meter.context != context) continue;
      if (meter.sample != Sample::none) finish_sample(&meter);
      drop_events(&meter);
    }
}

}  // namespace aliquot::enforce
