#include "enforce/gate.hpp"

#include <climits>
#include <cstring>

#include <fcntl.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "enforce/meter.hpp"
#include "enforce/reset.hpp"

namespace aliquot::enforce {

int gate_state = gate_unset;
Watch watches[ALIQUOT_MAX_GPUS];
unsigned watch_count = 0;
constinit thread_local ThreadGate thread_gate __attribute__((tls_model("initial-exec"))) = {};

namespace {

constexpr int kOften = 16;  // launches between two looks at the clock, on average
constexpr std::uint64_t kSlowLaunchNs = 60'000;
// Of launches in flight every so many are followed by an event: one for each millisecond, as far as
// their length is known.
constexpr unsigned kRing = 4;
constexpr std::uint64_t kEventEvery = 4;
constexpr std::uint64_t kMostEvery = 64;
constexpr std::uint64_t kEventNs = 1'000'000;
constexpr std::uint64_t kInFlightNs = 20'000'000;  // at most, but two at least
// A program may launch what makes an earlier kernel end: never hold a launch back for longer.
constexpr std::uint64_t kPatienceNs = 200'000'000;
constexpr timespec kPoll{0, 50'000};
constexpr timespec kFutexTimeout{0, 50'000'000};
constexpr timespec kLookAgain{0, 500'000};

struct Mark {
  CUevent event;
  std::uint64_t number;  // the launch it follows
};

// What is in flight on one GPU.
struct Flight {
  Lock lock;
  std::uint64_t launched = 0, completed = 0;
  Mark ring[kRing] = {};
  unsigned first = 0, used = 0;
  unsigned since_mark = 0, since_look = 0;
  std::uint64_t every = kEventEvery;
  CUcontext context = nullptr;  // of the ring's events
  CUstream last_stream = nullptr;
};

Lock setup_lock;
const aliquot_board* boards[ALIQUOT_MAX_GPUS];  // null: no lease on this GPU
unsigned board_slots[ALIQUOT_MAX_GPUS];
unsigned gpu_count = 0;
Flight flights[ALIQUOT_MAX_GPUS];

// A lease that cannot be read is no lease: compute fails open.
const aliquot_board* map_board(const char* path) {
  const int fd = open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
  if (fd < 0) return nullptr;
  struct stat info {};
  void* memory = MAP_FAILED;
  if (status_of(fd, &info) == 0 && S_ISREG(info.st_mode) && (info.st_mode & 022) == 0 &&
      (info.st_uid == 0 || info.st_uid == geteuid()) &&
      info.st_size == static_cast<off_t>(sizeof(aliquot_board)))
    memory = mmap(nullptr, sizeof(aliquot_board), PROT_READ, MAP_SHARED, fd, 0);
  (void)close(fd);
  if (memory == MAP_FAILED) return nullptr;
  const auto* board = static_cast<const aliquot_board*>(memory);
  if (board->magic == ALIQUOT_BOARD_MAGIC && board->version == ALIQUOT_ABI_VERSION) return board;
  (void)munmap(memory, sizeof(aliquot_board));
  return nullptr;
}

void set_up() {
  const KeepErrno keep;
  const Hold hold(setup_lock);
  if (gate_state != gate_unset) return;
  const aliquot_limits* limits = governed() ? grant_limits() : nullptr;
  if (limits == nullptr) {
    __atomic_store_n(&gate_state, gate_off, __ATOMIC_RELEASE);
    return;
  }
  gpu_count = limits->gpu_count;
  unsigned count = 0;
  for (unsigned g = 0; g < gpu_count; ++g) {
    const aliquot_limit& limit = limits->gpus[g];
    boards[g] = nullptr;
    if (limit.lease != 1 || limit.lease_slot >= ALIQUOT_BOARD_SLOTS ||
        memchr(limit.board, '\0', sizeof limit.board) == nullptr)
      continue;
    boards[g] = map_board(limit.board);
    board_slots[g] = limit.lease_slot;
    if (boards[g] != nullptr)
      watches[count++] = {&boards[g]->gates[limit.lease_slot].word, &boards[g]->contended};
  }
  watch_count = count;
  meter_set_up((limits->flags & ALIQUOT_FLAG_METER) != 0);
  __atomic_store_n(&gate_state, gate_on, __ATOMIC_RELEASE);
}

// Which GPU a launch is for. With one GPU there is nothing to ask.
int launch_gpu() {
  CUdevice device = 0;
  if (gpu_count == 1) return 0;
  return real::cuCtxGetDevice(&device) == kSuccess ? gpu_of_device(device) : kNoGpu;
}

bool fresh(const aliquot_board& board) {
  const std::uint64_t beat = __atomic_load_n(&board.heartbeat_ns, __ATOMIC_RELAXED);
  const std::uint64_t now = now_ns();
  return now < beat + ALIQUOT_STALE_NS;
}

// ---- launches in flight -----------------------------------------------------------------------

void publish(int gpu, const Flight& flight) {
  aliquot_use* use = own_use(gpu);
  if (use == nullptr) return;
  __atomic_store_n(&use->launched, flight.launched, __ATOMIC_RELAXED);
  __atomic_store_n(&use->completed, flight.completed, __ATOMIC_RELAXED);
}

void all_done(Flight* flight) {
  flight->completed = flight->launched;
  flight->used = 0;
  flight->since_mark = 0;
}

// The events belong to a context; with another one everything starts anew.
void use_context(Flight* flight) {
  CUcontext context = nullptr;
  (void)real::cuCtxGetCurrent(&context);
  if (flight->context == context) return;
  all_done(flight);
  for (Mark& mark : flight->ring) {
    // The other context lives still: before it goes its events are dropped.
    if (mark.event != nullptr) (void)real::cuEventDestroy_v2(mark.event);
    mark = {};
    if (real::cuEventCreate(&mark.event, kEventDisableTiming) != kSuccess) mark.event = nullptr;
  }
  flight->context = context;
}

void harvest(Flight* flight) {
  while (flight->used > 0) {
    const Mark& oldest = flight->ring[flight->first];
    const CUresult r = real::cuEventQuery(oldest.event);
    constexpr CUresult kNotReady = 600;
    if (r == kNotReady) return;
    flight->completed = oldest.number;
    flight->first = (flight->first + 1) % kRing;
    --flight->used;
  }
}

// Who waits at the gate has nothing better to do than to say what is over: the arbiter would take
// its job for busy. True while something is in flight.
bool look_while_waiting(int gpu) {
  Flight& flight = flights[gpu];
  const Hold hold(flight.lock);
  if (flight.launched == flight.completed) return false;
  harvest(&flight);
  // The last few launches have no event behind them yet.
  if (flight.since_mark > 0 && flight.used < kRing && !is_capturing(flight.last_stream)) {
    Mark& mark = flight.ring[(flight.first + flight.used) % kRing];
    if (mark.event != nullptr && real::cuEventRecord(mark.event, flight.last_stream) == kSuccess) {
      mark.number = flight.launched;
      ++flight.used;
    }
    flight.since_mark = 0;
  }
  if (flight.used == 0) all_done(&flight);
  publish(gpu, flight);
  return flight.launched != flight.completed;
}

void wait_while_paused(int gpu, const aliquot_board& board) {
  const std::uint32_t* word = &board.gates[board_slots[gpu]].word;
  aliquot_use* use = own_use(gpu);
  if (use == nullptr || __atomic_load_n(word, __ATOMIC_ACQUIRE) == 0) return;
  const std::uint64_t from = now_ns();
  (void)__atomic_add_fetch(&use->waiting, 1, __ATOMIC_RELAXED);
  while (__atomic_load_n(word, __ATOMIC_ACQUIRE) == 1 && fresh(board)) {
    const timespec& patience = look_while_waiting(gpu) ? kLookAgain : kFutexTimeout;
    (void)syscall(SYS_futex, word, FUTEX_WAIT, 1, &patience, nullptr, 0);
  }
  (void)__atomic_sub_fetch(&use->waiting, 1, __ATOMIC_RELAXED);
  (void)__atomic_add_fetch(&use->waited_ns, now_ns() - from, __ATOMIC_RELAXED);
}

struct Depth {
  std::uint64_t every, most;
};

// So that a pause takes effect soon, a job whose turn it is always has the next one queued, and
// short launches do not cost more than they last.
Depth depth_of(int gpu, unsigned kind) {
  const std::uint64_t mean = meter_mean(gpu, kind);
  if (mean == 0) return {kEventEvery, kRing * kEventEvery};
  std::uint64_t every = kEventNs / mean;
  every = every < 1 ? 1 : every > kMostEvery ? kMostEvery : every;
  std::uint64_t most = kInFlightNs / mean;
  most = most < 2 ? 2 : most > kRing * every ? kRing * every : most;
  return {every, most};
}

void take_off(int gpu, unsigned kind, const aliquot_board& board) {
  Flight& flight = flights[gpu];
  const Depth depth = depth_of(gpu, kind);
  const std::uint64_t deadline = now_ns() + kPatienceNs;
  for (;;) {
    {
      const Hold hold(flight.lock);
      use_context(&flight);
      flight.every = depth.every;
      if (++flight.since_look >= depth.every || flight.launched - flight.completed >= depth.most) {
        flight.since_look = 0;
        harvest(&flight);
      }
      if (flight.launched - flight.completed < depth.most || now_ns() > deadline ||
          __atomic_load_n(&board.contended, __ATOMIC_RELAXED) == 0 || !fresh(board)) {
        ++flight.launched;
        publish(gpu, flight);
        return;
      }
      publish(gpu, flight);
    }
    (void)nanosleep(&kPoll, nullptr);
  }
}

void mark_flight(int gpu, CUstream stream, CUresult result) {
  Flight& flight = flights[gpu];
  const Hold hold(flight.lock);
  flight.last_stream = stream;
  ++flight.since_mark;
  const bool due = flight.since_mark >= flight.every || flight.used == 0;
  if (result != kSuccess || !due || flight.used == kRing) return;
  Mark& mark = flight.ring[(flight.first + flight.used) % kRing];
  if (mark.event == nullptr || real::cuEventRecord(mark.event, stream) != kSuccess) {
    all_done(&flight);
    publish(gpu, flight);
    return;
  }
  mark.number = flight.launched;
  ++flight.used;
  flight.since_mark = 0;
}

// No contention any more: nobody looks, and nothing is known about what ran in between.
void land(int gpu) {
  Flight& flight = flights[gpu];
  if (flight.launched == flight.completed) return;
  const Hold hold(flight.lock);
  all_done(&flight);
  publish(gpu, flight);
}

// ---- ticks ------------------------------------------------------------------------------------

unsigned next_random(std::uint32_t* state) {
  if (*state == 0) *state = static_cast<std::uint32_t>(now_ns()) | 1U;
  *state ^= *state << 13;
  *state ^= *state >> 17;
  *state ^= *state << 5;
  return *state;
}

// The thread's counts go into the slot. How soon again depends on how fast it launches: a program
// with few long kernels is looked at on every launch.
std::uint64_t tick(int gpu, bool contended) {
  ThreadGate& own = thread_gate;
  const std::uint64_t now = now_ns();
  std::uint64_t launches = 0;
  for (unsigned kind = 0; kind < launch_kinds; ++kind) {
    launches += own.counts[kind];
    if (gpu >= 0) meter_count(gpu, kind, own.counts[kind]);
    own.counts[kind] = 0;
  }
  if (aliquot_use* use = own_use(gpu)) {
    (void)__atomic_add_fetch(&use->launches, launches, __ATOMIC_RELAXED);
    __atomic_store_n(&use->last_launch_ns, now, __ATOMIC_RELAXED);
  }
  const std::uint64_t each = launches == 0 ? 0 : (now - own.last_tick_ns) / launches;
  own.last_tick_ns = now;
  // Not always the same number: a program's own rhythm must not decide which launches are measured.
  own.until_tick = contended || each > kSlowLaunchNs
                       ? 1
                       : kOften / 2 + static_cast<int>(next_random(&own.random) % kOften);
  return now;
}

}  // namespace

void reset_gate() {
  setup_lock = {};
  for (Flight& flight : flights) flight = {};
  thread_gate = {};
  gate_state = gate_unset;
  watch_count = 0;
  reset_meter();
}

void before_launch(Passage* passage) {
  if (gate_state == gate_unset) set_up();
  if (gate_state != gate_on) return;
  const KeepErrno keep;
  const int gpu = launch_gpu();
  const aliquot_board* board = gpu < 0 ? nullptr : boards[gpu];
  const bool contended =
      board != nullptr && __atomic_load_n(&board->contended, __ATOMIC_RELAXED) != 0;
  ++thread_gate.counts[passage->kind];
  const std::uint64_t now = tick(gpu, contended);
  if (gpu < 0) return;
  passage->gpu = gpu;
  const bool paused =
      board != nullptr && __atomic_load_n(&board->gates[board_slots[gpu]].word, __ATOMIC_RELAXED);
  if (!paused && !contended) land(gpu);
  if (!paused && !contended && !meter_due(gpu, now)) return;
  const RelaxedCapture relaxed;
  if (is_capturing(passage->stream)) return;
  if (paused) wait_while_paused(gpu, *board);
  if (contended && fresh(*board)) {
    take_off(gpu, passage->kind, *board);
    passage->limited = true;
  }
  passage->measured = meter_begin(gpu, passage->kind, passage->stream, now);
}

void after_launch(const Passage& passage, CUresult result) {
  if (!passage.limited && !passage.measured) return;
  const RelaxedCapture relaxed;
  if (passage.measured) meter_end(passage.gpu, passage.kind, passage.stream, result == kSuccess);
  if (passage.limited) mark_flight(passage.gpu, passage.stream, result);
}

void gate_synchronized(CUstream stream, bool all) {
  if (__atomic_load_n(&gate_state, __ATOMIC_ACQUIRE) != gate_on) return;
  const bool counts = thread_gate.counts[0] != 0 || thread_gate.counts[1] != 0;
  const bool measuring = meter_pending();
  if (!counts && !measuring && boards_quiet()) return;
  const int gpu = launch_gpu();
  if (gpu < 0) return;
  const RelaxedCapture relaxed;
  if (counts) (void)tick(gpu, !boards_quiet());
  if (measuring || counts) meter_harvest(gpu, now_ns(), all);
  Flight& flight = flights[gpu];
  if (flight.launched == flight.completed) return;
  const Hold hold(flight.lock);
  harvest(&flight);
  if (all || (flight.used == 0 && flight.last_stream == stream)) all_done(&flight);
  publish(gpu, flight);
}

void gate_stream_gone(CUstream stream) {
  for (int gpu = 0; gpu < static_cast<int>(gpu_count); ++gpu) {
    Flight& flight = flights[gpu];
    if (flight.launched == flight.completed || flight.last_stream != stream) continue;
    const Hold hold(flight.lock);
    all_done(&flight);
    publish(gpu, flight);
  }
}

void gate_context_ends(CUcontext context) {
  const RelaxedCapture relaxed;
  for (int gpu = 0; gpu < static_cast<int>(gpu_count); ++gpu) {
    Flight& flight = flights[gpu];
    const Hold hold(flight.lock);
    if (flight.context != context) continue;
    all_done(&flight);
    publish(gpu, flight);
    for (Mark& mark : flight.ring) {
      if (mark.event != nullptr) (void)real::cuEventDestroy_v2(mark.event);
      mark = {};
    }
    flight.context = nullptr;
  }
  meter_context_ends(context);
}

}  // namespace aliquot::enforce
