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

#include "enforce/flight.hpp"
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
// How much may be in flight. Alone a job queues what it likes; an event now and then, so that a
// neighbour who comes finds out what is queued already.
constexpr FlightLimit kAlone{UINT64_MAX / 2, 5'000'000, 512};
constexpr FlightLimit kWatched{50'000'000, 5'000'000, 512};
constexpr FlightLimit kTurns{4'000'000, 1'000'000, 64};
constexpr std::uint64_t kUnknownNs = 250'000;  // a launch of which nothing is known yet
// Who is alone on the GPU is looked at so often only, and before it has launched so much: a look
// asks the driver a few things, and every job pays for it that nobody is to be protected from.
constexpr std::uint64_t kSeldomNs = 500'000;
constexpr std::uint64_t kLittleNs = 1'000'000;
// A program may launch what makes an earlier kernel end: never hold a launch back for longer.
constexpr std::uint64_t kPatienceNs = 200'000'000;
constexpr timespec kPoll{0, 50'000};
constexpr timespec kFutexTimeout{0, 50'000'000};
constexpr timespec kLookAgain{0, 500'000};

Lock setup_lock;
const aliquot_board* boards[ALIQUOT_MAX_GPUS];  // null: no lease on this GPU
unsigned board_slots[ALIQUOT_MAX_GPUS];
unsigned gpu_count = 0;

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

const FlightLimit& limit_of_board(std::uint32_t contended) {
  if ((contended & ALIQUOT_CONTENDED_TURNS) != 0) return kTurns;
  return contended != 0 ? kWatched : kAlone;
}

void wait_while_paused(int gpu, const aliquot_board& board) {
  const std::uint32_t* word = &board.gates[board_slots[gpu]].word;
  aliquot_use* use = own_use(gpu);
  if (use == nullptr || __atomic_load_n(word, __ATOMIC_ACQUIRE) == 0) return;
  const std::uint64_t from = now_ns();
  (void)__atomic_add_fetch(&use->waiting, 1, __ATOMIC_RELAXED);
  while (__atomic_load_n(word, __ATOMIC_ACQUIRE) == 1 && fresh(board)) {
    // While it waits here it keeps telling what is over: otherwise the arbiter would think that the
    // job is busy.
    const timespec& patience = flight_look(gpu) ? kLookAgain : kFutexTimeout;
    (void)syscall(SYS_futex, word, FUTEX_WAIT, 1, &patience, nullptr, 0);
  }
  (void)__atomic_sub_fetch(&use->waiting, 1, __ATOMIC_RELAXED);
  (void)__atomic_add_fetch(&use->waited_ns, now_ns() - from, __ATOMIC_RELAXED);
}

// Counted anew every few milliseconds only, because it reads the slots of all other processes.
unsigned processes_of(int gpu, std::uint32_t contended) {
  static struct {
    std::uint64_t at_ns;
    unsigned count;
  } known[ALIQUOT_MAX_GPUS];
  constexpr std::uint64_t kAgain = 5'000'000;
  if (contended != ALIQUOT_CONTENDED_TURNS) return 1;
  auto& own = known[gpu];
  const std::uint64_t now = now_ns();
  const std::uint64_t then = __atomic_load_n(&own.at_ns, __ATOMIC_RELAXED);
  if (now - then > kAgain) {
    __atomic_store_n(&own.at_ns, now, __ATOMIC_RELAXED);
    __atomic_store_n(&own.count, launching_processes(gpu), __ATOMIC_RELAXED);
  }
  const unsigned count = __atomic_load_n(&own.count, __ATOMIC_RELAXED);
  return count == 0 ? 1 : count;
}

// Counts what this thread launched since it last came by, and holds it back while its job is paused
// or has too much in flight.
void take_off(const Passage& passage, const aliquot_board& board, std::uint64_t launches,
              std::uint64_t cost_ns) {
  const int gpu = passage.gpu;
  FlightLimit limit = limit_of_board(passage.contended);
  wait_while_paused(gpu, board);
  // All processes of the job together may have so much in flight. Several processes may have twice
  // as much: with less than the driver's slice (2 ms) each, processes without a server would
  // alternate all the time.
  const unsigned processes = processes_of(gpu, passage.contended);
  if (processes > 1) limit.most_ns = limit.most_ns * 2 / processes;
  if (flight_begin(gpu, passage.stream, launches, cost_ns, limit)) return;
  // Some launches are long by themselves, and longer beside others.
  const std::uint64_t patience = cost_ns * 4 > kPatienceNs ? cost_ns * 4 : kPatienceNs;
  const std::uint64_t deadline = now_ns() + patience;
  do {
    (void)nanosleep(&kPoll, nullptr);
    // The wait may have been long, and the job's turn may be over.
    wait_while_paused(gpu, board);
    if (flight_begin(gpu, passage.stream, launches, cost_ns, limit)) return;
  } while (now_ns() < deadline && __atomic_load_n(&board.contended, __ATOMIC_RELAXED) != 0 &&
           fresh(board));
  flight_add(gpu, passage.stream, launches, cost_ns);
}

// ---- ticks ------------------------------------------------------------------------------------

unsigned next_random(std::uint32_t* state) {
  if (*state == 0) *state = static_cast<std::uint32_t>(now_ns()) | 1U;
  *state ^= *state << 13;
  *state ^= *state >> 17;
  *state ^= *state << 5;
  return *state;
}

// How soon the next look is, if launches come so many nanoseconds apart: a program with few long
// kernels is looked at on every launch. Not always after the same number: otherwise a program's own
// rhythm could decide which launches are measured.
int until_next(std::uint64_t apart_ns) {
  if (apart_ns > kSlowLaunchNs) return 1;
  return kOften / 2 + static_cast<int>(next_random(&thread_gate.random) % kOften);
}

struct Launches {
  std::uint64_t count, cost_ns;
};

// What the thread has launched since it last came by.
Launches not_counted(int gpu) {
  Launches all{};
  for (unsigned kind = 0; kind < launch_kinds; ++kind) {
    const unsigned count = thread_gate.counts[kind];
    if (count == 0) continue;
    const std::uint64_t mean = meter_mean(gpu, kind);
    all.count += count;
    all.cost_ns += count * (mean == 0 ? kUnknownNs : mean);
  }
  return all;
}

// Whether this look may wait for the next one. Its launches are counted then.
bool can_wait(int gpu, CUstream stream, std::uint64_t now) {
  ThreadGate& own = thread_gate;
  const aliquot_board* board = boards[gpu];
  if (board == nullptr || __atomic_load_n(&board->contended, __ATOMIC_RELAXED) != 0 ||
      __atomic_load_n(&board->gates[board_slots[gpu]].word, __ATOMIC_RELAXED) != 0 ||
      now - own.last_tick_ns >= kSeldomNs || meter_due(gpu, now, false) ||
      meter_follows(gpu, stream))
    return false;
  const Launches all = not_counted(gpu);
  if (all.cost_ns >= kLittleNs) return false;
  own.until_tick = until_next((now - own.last_tick_ns) / all.count);
  return true;
}

// The thread's counts go into the slot.
Launches tick(int gpu, std::uint64_t now) {
  ThreadGate& own = thread_gate;
  Launches all{};
  if (gpu >= 0) all = not_counted(gpu);
  for (unsigned kind = 0; kind < launch_kinds; ++kind) {
    const unsigned count = own.counts[kind];
    own.counts[kind] = 0;
    if (gpu < 0) all.count += count;
    if (gpu >= 0 && count != 0) meter_count(gpu, kind, count);
  }
  if (aliquot_use* use = own_use(gpu)) {
    (void)__atomic_add_fetch(&use->launches, all.count, __ATOMIC_RELAXED);
    __atomic_store_n(&use->last_launch_ns, now, __ATOMIC_RELAXED);
  }
  own.until_tick = until_next(all.count == 0 ? 0 : (now - own.last_tick_ns) / all.count);
  own.last_tick_ns = now;
  return all;
}

}  // namespace

void reset_gate() {
  setup_lock = {};
  thread_gate = {};
  gate_state = gate_unset;
  watch_count = 0;
  reset_flights();
  reset_meter();
}

void before_launch(Passage* passage) {
  if (gate_state == gate_unset) set_up();
  if (gate_state != gate_on) return;
  const KeepErrno keep;
  const int gpu = launch_gpu();
  const std::uint64_t now = now_ns();
  ++thread_gate.counts[passage->kind];
  thread_gate.last_stream = passage->stream;
  if (gpu >= 0 && can_wait(gpu, passage->stream, now)) return;
  const Launches launches = tick(gpu, now);
  if (gpu < 0) return;
  passage->gpu = gpu;
  const aliquot_board* board = boards[gpu];
  if (board != nullptr && fresh(*board)) {
    passage->contended = __atomic_load_n(&board->contended, __ATOMIC_RELAXED);
    passage->followed = true;
  }
  const bool measures = meter_due(gpu, now, passage->contended == ALIQUOT_CONTENDED_TURNS) ||
                        meter_follows(gpu, passage->stream);
  if (!passage->followed && !measures) return;
  const RelaxedCapture relaxed;
  if (is_capturing(passage->stream)) {
    passage->followed = false;
    return;
  }
  if (passage->followed) {
    take_off(*passage, *board, launches.count, launches.cost_ns);
  }
  if (measures)
    passage->measured = meter_begin(gpu, passage->kind, passage->stream, now, passage->contended);
  // The next one tells how long the GPU had nothing to do in between.
  if (passage->measured) thread_gate.until_tick = 1;
}

void after_launch(const Passage& passage, CUresult result) {
  if (!passage.followed && !passage.measured) return;
  const RelaxedCapture relaxed;
  if (passage.measured) meter_end(passage.gpu, passage.kind, passage.stream, result == kSuccess);
  if (passage.followed && result == kSuccess)
    flight_mark(passage.gpu, passage.stream, limit_of_board(passage.contended));
}

int gate_waits(CUstream stream) {
  if (__atomic_load_n(&gate_state, __ATOMIC_ACQUIRE) != gate_on || watch_count == 0) return kNoGpu;
  const KeepErrno keep;
  const int gpu = launch_gpu();
  aliquot_use* use = gpu < 0 ? nullptr : own_use(gpu);
  if (use == nullptr) return kNoGpu;
  bool counts = false;
  for (const unsigned count : thread_gate.counts) counts |= count != 0;
  if (counts) {
    const RelaxedCapture relaxed;
    const Launches launches = tick(gpu, now_ns());
    flight_add(gpu, stream == kNoStream ? thread_gate.last_stream : stream, launches.count,
               launches.cost_ns);
  }
  (void)__atomic_add_fetch(&use->in_wait, 1, __ATOMIC_RELAXED);
  return gpu;
}

void gate_synchronized(CUstream stream, bool all, int waited, bool over) {
  if (__atomic_load_n(&gate_state, __ATOMIC_ACQUIRE) != gate_on) return;
  // Not asked for anew: the context may have broken meanwhile.
  if (aliquot_use* use = own_use(waited))
    (void)__atomic_sub_fetch(&use->in_wait, 1, __ATOMIC_RELAXED);
  if (!over) return;
  const int gpu = launch_gpu();
  if (gpu < 0) return;
  bool counts = false;
  for (const unsigned count : thread_gate.counts) counts |= count != 0;
  const bool pending = flight_pending(gpu);
  if (!counts && !pending && !meter_pending()) return;
  const KeepErrno keep;
  const RelaxedCapture relaxed;
  const std::uint64_t now = now_ns();
  if (counts) (void)tick(gpu, now);
  meter_harvest(gpu, now, all);
  if (pending) flight_waited(gpu, stream, all);
}

void gate_context_ends(CUcontext context) {
  const RelaxedCapture relaxed;
  flight_context_ends(context);
  meter_context_ends(context);
}

}  // namespace aliquot::enforce
