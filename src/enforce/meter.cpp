#include "enforce/meter.hpp"

#include "enforce/gate.hpp"

namespace aliquot::enforce {
namespace {

constexpr std::uint64_t kEvery = 10'000'000;  // ns
constexpr std::uint64_t kEveryInTurns = 2'000'000;
constexpr unsigned kSlow = 8;     // a mean is that of so many samples
constexpr unsigned kEnough = 64;  // samples: they tell how long launches are,
constexpr unsigned kAlone = 16;   // and so many where nobody else is on the GPU
constexpr std::uint64_t kUnusual = 4;
constexpr std::uint64_t kShort = 10'000;
// A pause of the program, not one between two launches.
constexpr double kLongestGap = 2e6;

enum class Sample { none, starting, running };

struct Meter {
  Sample sample = Sample::none;
  CUevent from = nullptr, to = nullptr, next = nullptr;
  bool followed = false;       // next is recorded
  std::uint64_t ended_at = 0;  // CLOCK_MONOTONIC, when the program got its launch back
  std::uint64_t idle_ns = 0;   // at most: what it then took to come with the next
  CUcontext context = nullptr;
  CUstream stream = nullptr;
  std::uint64_t mean_ns = 0;   // as it goes on
  unsigned in_mean = 0;        // samples, up to kSlow
  std::uint64_t alone_ns = 0;  // as it is where nobody else is on the GPU
  unsigned samples = 0;
  unsigned alone_samples = 0;
  std::uint32_t contended = 0;     // what the board said when the sample began
  std::uint64_t recent_ns = 0;     // of GPU time, that of long ago for less
  std::uint64_t uncounted = 0;     // launches whose time is not added yet
  std::uint64_t queued_ns = 0;     // estimated, and not over yet as far as we can tell
  std::uint64_t since_sample = 0;  // launches added to that since the sample began
};

struct GpuMeter {
  std::uint64_t sampled_at = 0;
  std::uint64_t added_at = 0;      // CLOCK_MONOTONIC
  std::uint64_t waited_at = 0;     // CLOCK_MONOTONIC, when the program came out of a wait
  double busy_ns = 0, all_ns = 0;  // of the last samples, those of long ago for less
  Meter kinds[launch_kinds];
};

Lock lock;
bool metering = false;
unsigned samples_running = 0;
GpuMeter meters[ALIQUOT_MAX_GPUS];

// Launches are counted when they are handed to the driver, and may run seconds later. GPU time that
// does not fit into the time that passed is kept for the next look.
void add_time(int gpu, std::uint64_t now) {
  GpuMeter& own = meters[gpu];
  bool known = false;
  for (const Meter& meter : own.kinds) known |= meter.mean_ns != 0;
  if (!known) return;
  const std::uint64_t passed = own.added_at == 0 ? 0 : now - own.added_at;
  std::uint64_t left = passed;
  for (Meter& meter : own.kinds) {
    if (meter.mean_ns == 0) continue;
    const std::uint64_t launches = __atomic_exchange_n(&meter.uncounted, 0, __ATOMIC_RELAXED);
    meter.queued_ns += meter.mean_ns * launches;
    meter.since_sample += launches;
    const std::uint64_t time = meter.queued_ns < left ? meter.queued_ns : left;
    meter.queued_ns -= time;
    meter.recent_ns += time;
    left -= time;
  }
  own.added_at = now;
  if (left == passed) return;
  if (aliquot_use* use = own_use(gpu))
    (void)__atomic_add_fetch(&use->gpu_ns, passed - left, __ATOMIC_RELAXED);
}

void finish_sample(Meter* meter) {
  meter->sample = Sample::none;
  (void)__atomic_sub_fetch(&samples_running, 1, __ATOMIC_RELAXED);
}

// Between two launches the GPU either went on, or waited for the program.
void learn_busy(int gpu, double launch_ns, double gap_ns) {
  GpuMeter& own = meters[gpu];
  if (gap_ns > kLongestGap) return;
  own.busy_ns += launch_ns - own.busy_ns / 8;
  own.all_ns += launch_ns + gap_ns - own.all_ns / 8;
  const auto thousandths = static_cast<std::uint32_t>(1 + 999 * own.busy_ns / own.all_ns);
  if (aliquot_use* use = own_use(gpu)) __atomic_store_n(&use->busy, thousandths, __ATOMIC_RELAXED);
}

// A launch takes longer beside those of other jobs, and some do even while turns are taken. So a
// shorter measurement counts at once, and a longer one slowly.
void learn_alone(Meter* meter, std::uint64_t ns) {
  const bool shared = meter->contended == ALIQUOT_CONTENDED_WATCHED;
  if (shared && meter->samples > kEnough) return;
  ++meter->samples;
  if (!shared) ++meter->alone_samples;
  std::uint64_t alone = meter->alone_ns;
  if (alone == 0 || meter->contended == 0) {
    alone = alone == 0 ? ns : (alone * 7 + ns) / 8;
  } else if (ns < alone) {
    alone -= (alone - ns) / 4;
  } else {
    alone += (ns - alone < alone + kShort ? ns - alone : alone + kShort) / 32;
  }
  __atomic_store_n(&meter->alone_ns, alone + 1, __ATOMIC_RELAXED);
}

// How long its launches are, for the jobs that share an MPS server with it. A graph counts as many
// launches.
void publish_length(int gpu) {
  Meter* kinds = meters[gpu].kinds;
  unsigned most = 0;
  for (unsigned kind = 0; kind < launch_kinds; ++kind) {
    kinds[kind].recent_ns -= kinds[kind].recent_ns / 8;
    if (kinds[kind].recent_ns > kinds[most].recent_ns) most = kind;
  }
  const bool known = most != launch_graph && kinds[most].alone_samples >= kAlone;
  if (aliquot_use* use = own_use(gpu))
    __atomic_store_n(&use->launch_ns, known ? kinds[most].alone_ns : 0, __ATOMIC_RELAXED);
}

void harvest_sample(int gpu, Meter* meter) {
  constexpr CUresult kNotReady = 600;
  const CUresult r = real::cuEventQuery(meter->followed ? meter->next : meter->to);
  if (r == kNotReady) return;
  float ms = 0;
  if (r == kSuccess && real::cuEventElapsedTime(&ms, meter->from, meter->to) == kSuccess &&
      ms >= 0) {
    auto ns = static_cast<std::uint64_t>(static_cast<double>(ms) * 1e6);
    float gap = 0;
    if (meter->followed && ns > 0 &&
        real::cuEventElapsedTime(&gap, meter->to, meter->next) == kSuccess && gap >= 0) {
      // Between two launches the program was idle only while it had nothing launched: the rest of
      // the time was the slice of another program.
      const auto idle = static_cast<double>(meter->idle_ns);
      const double between = static_cast<double>(gap) * 1e6;
      learn_busy(gpu, static_cast<double>(ns), between < idle ? between : idle);
    }
    // A launch that was interrupted for the turn of another job may last a thousand times as long:
    // that time is not ours.
    const std::uint64_t most = meter->mean_ns * kUnusual + kShort;
    if (meter->contended != 0 && meter->mean_ns != 0 && ns > most) ns = most;
    // A slow average: launches differ, and each sample is one of many. Quick to rise at first: many
    // a program begins with a short launch, by which the others must not be counted for long.
    if (meter->in_mean < kSlow) ++meter->in_mean;
    const std::uint64_t in_mean = ns > meter->mean_ns ? meter->in_mean : kSlow;
    meter->mean_ns = (meter->mean_ns * (in_mean - 1) + ns) / in_mean + 1;
    learn_alone(meter, ns);
  }
  finish_sample(meter);
}

void harvest_locked(int gpu, std::uint64_t now) {
  bool over[launch_kinds] = {};
  for (unsigned kind = 0; kind < launch_kinds; ++kind) {
    Meter& meter = meters[gpu].kinds[kind];
    if (meter.sample != Sample::running) continue;
    harvest_sample(gpu, &meter);
    over[kind] = meter.sample == Sample::none;
  }
  add_time(gpu, now);
  publish_length(gpu);
  // When a sample is over, everything launched before it is over too: nothing is left to count
  // where streams overlap.
  for (unsigned kind = 0; kind < launch_kinds; ++kind) {
    Meter& meter = meters[gpu].kinds[kind];
    const std::uint64_t later = meter.mean_ns * meter.since_sample;
    if (over[kind] && meter.queued_ns > later) meter.queued_ns = later;
  }
}

void drop_events(Meter* meter) {
  if (meter->from != nullptr) (void)real::cuEventDestroy_v2(meter->from);
  if (meter->to != nullptr) (void)real::cuEventDestroy_v2(meter->to);
  if (meter->next != nullptr) (void)real::cuEventDestroy_v2(meter->next);
  meter->from = meter->to = meter->next = nullptr;
  meter->context = nullptr;
}

bool make_events(Meter* meter) {
  CUcontext context = nullptr;
  if (real::cuCtxGetCurrent(&context) != kSuccess || context == nullptr) return false;
  if (meter->context == context && meter->to != nullptr) return true;
  drop_events(meter);
  if (real::cuEventCreate(&meter->from, 0) != kSuccess) meter->from = nullptr;
  if (real::cuEventCreate(&meter->to, 0) != kSuccess) meter->to = nullptr;
  if (real::cuEventCreate(&meter->next, 0) != kSuccess) meter->next = nullptr;
  if (meter->from == nullptr || meter->to == nullptr || meter->next == nullptr) {
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
  if (!metering) return;
  Meter& meter = meters[gpu].kinds[kind];
  if (meters[gpu].added_at == 0) meters[gpu].added_at = now_ns();
  (void)__atomic_add_fetch(&meter.uncounted, launches, __ATOMIC_RELAXED);
}

bool meter_due(int gpu, std::uint64_t now, bool turns) {
  return metering && now - __atomic_load_n(&meters[gpu].sampled_at, __ATOMIC_RELAXED) >=
                         (turns ? kEveryInTurns : kEvery);
}

bool meter_follows(int gpu, CUstream stream) {
  if (!meter_pending()) return false;
  for (const Meter& meter : meters[gpu].kinds)
    if (meter.sample == Sample::running && !meter.followed && meter.stream == stream) return true;
  return false;
}

bool meter_begin(int gpu, unsigned kind, CUstream stream, std::uint64_t now,
                 std::uint32_t contended) {
  const Hold hold(lock);
  CUcontext context = nullptr;
  if (real::cuCtxGetCurrent(&context) != kSuccess || context == nullptr) return false;
  for (Meter& meter : meters[gpu].kinds) {
    if (meter.sample == Sample::running && !meter.followed && meter.stream == stream &&
        meter.context == context) {
      const std::uint64_t waited = meters[gpu].waited_at;
      const std::uint64_t back = waited > meter.ended_at ? waited : meter.ended_at;
      meter.idle_ns = now > back ? now - back : 0;
      meter.followed = real::cuEventRecord(meter.next, stream) == kSuccess;
    }
  }
  if (!meter_due(gpu, now, contended == ALIQUOT_CONTENDED_TURNS)) return false;
  harvest_locked(gpu, now);
  __atomic_store_n(&meters[gpu].sampled_at, now, __ATOMIC_RELAXED);
  Meter& meter = meters[gpu].kinds[kind];
  if (meter.sample != Sample::none || !make_events(&meter) ||
      real::cuEventRecord(meter.from, stream) != kSuccess)
    return false;
  meter.sample = Sample::starting;
  meter.followed = false;
  meter.stream = stream;
  meter.contended = contended;
  meter.since_sample = 0;
  (void)__atomic_add_fetch(&samples_running, 1, __ATOMIC_RELAXED);
  return true;
}

void meter_end(int gpu, unsigned kind, CUstream stream, bool launched) {
  const Hold hold(lock);
  Meter& meter = meters[gpu].kinds[kind];
  if (meter.sample != Sample::starting) return;
  meter.ended_at = now_ns();
  if (launched && meter.to != nullptr && real::cuEventRecord(meter.to, stream) == kSuccess)
    meter.sample = Sample::running;
  else
    finish_sample(&meter);
}

std::uint64_t meter_mean(int gpu, unsigned kind) {
  return __atomic_load_n(&meters[gpu].kinds[kind].alone_ns, __ATOMIC_RELAXED);
}

bool meter_pending() {
  return metering && __atomic_load_n(&samples_running, __ATOMIC_RELAXED) != 0;
}

void meter_harvest(int gpu, std::uint64_t now, bool all_over) {
  const Hold hold(lock);
  meters[gpu].waited_at = now;
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
