#include "enforce/overhead.hpp"

#include "enforce/mappings.hpp"
#include "enforce/memory.hpp"
#include "enforce/nvml.hpp"
#include "enforce/reset.hpp"

namespace aliquot::enforce {
namespace {

// What a training script in PyTorch loads after its first allocation (matmul, convolution, sort:
// 150 to 320 MiB on an H200). A part of what the job has left keeps small shares usable, and those
// of many processes.
constexpr std::uint64_t kMostRoom = 256ULL << 20;
constexpr std::uint64_t kPartOfRest = 16;
constexpr std::uint64_t kLookEvery = 1'000'000'000;  // ns

struct Overhead {
  std::uint64_t room;      // reserved, and not taken by the driver yet
  std::uint64_t taken;     // by the driver, since the contexts were made
  std::uint64_t promised;  // of the room: what the driver will take at once, some time
  std::uint64_t local;     // bytes of local memory a thread has
  std::uint64_t unattributed;
  std::uint64_t looked_at;
};

Lock lock;  // over room and taken; no lock but the grant's is taken under it
Overhead overheads[ALIQUOT_MAX_GPUS];

void set_room(int gpu, std::uint64_t bytes) {
  add_detail(detail_room, gpu, bytes - overheads[gpu].room);
  __atomic_store_n(&overheads[gpu].room, bytes, __ATOMIC_RELAXED);
}

// Under the lock: the room is at least so much, as far as the limit allows.
bool refill(int gpu, std::uint64_t bytes) {
  const std::uint64_t room = overheads[gpu].room;
  bytes += overheads[gpu].promised;
  if (room >= bytes) return true;
  if (!reserve(gpu, bytes - room, true)) return false;
  set_room(gpu, bytes);
  return true;
}

bool look(int gpu) {
  const aliquot_use* use = own_use(gpu);
  if (use == nullptr) return true;
  const Hold hold(lock);
  Overhead& own = overheads[gpu];
  __atomic_store_n(&own.looked_at, now_ns(), __ATOMIC_RELAXED);
  // Everything is charged before the driver takes it and uncharged after it gave it back. So what
  // NVML counts beyond the greater of two looks at the charge is the driver's own.
  const auto charged = [&] {
    return __atomic_load_n(&use->charged, __ATOMIC_ACQUIRE) -
           __atomic_load_n(&own.unattributed, __ATOMIC_ACQUIRE);
  };
  const std::uint64_t before = charged();
  std::uint64_t counted = 0;
  if (!nvml_own_bytes(gpu, &counted)) return true;
  const std::uint64_t after = charged();
  const std::uint64_t known = (before > after ? before : after) - own.room;
  if (counted <= known) return true;
  const std::uint64_t more = counted - known;
  const std::uint64_t of_room = more < own.room ? more : own.room;
  set_room(gpu, own.room - of_room);
  own.taken += more;
  if (more >= own.promised) own.promised = 0;
  bool fits = true;
  if (more > of_room && !reserve(gpu, more - of_room, true)) {
    reserve_anyway(gpu, more - of_room, true);
    fits = false;
  }
  (void)refill(gpu, least_room(gpu));
  return fits;
}

bool is_due(int gpu) {
  std::uint64_t last = __atomic_load_n(&overheads[gpu].looked_at, __ATOMIC_RELAXED);
  const std::uint64_t now = now_ns();
  return now - last >= kLookEvery &&
         __atomic_compare_exchange_n(&overheads[gpu].looked_at, &last, now, false, __ATOMIC_RELAXED,
                                     __ATOMIC_RELAXED);
}

}  // namespace

CUfunction seen_functions[kSeenPlaces];

void reset_overhead() {
  lock = {};
  for (Overhead& each : overheads) each = {};
  forget_functions();
}

std::uint64_t least_room(int gpu) {
  constexpr std::uint64_t kLeast = 16ULL << 20;
  constexpr std::uint64_t kMost = 64ULL << 20;
  constexpr std::uint64_t kPartOfLimit = 128;
  const std::uint64_t part = limit_of(gpu) / kPartOfLimit / kGranularity * kGranularity;
  return part < kLeast ? kLeast : part < kMost ? part : kMost;
}

std::uint64_t room_for(int gpu, std::uint64_t more) {
  const std::uint64_t limit = limit_of(gpu);
  if (limit == 0) return 0;
  const std::uint64_t used = job_bytes(gpu) + more;
  const std::uint64_t part = (limit > used ? limit - used : 0) / kPartOfRest;
  const std::uint64_t room = part < kMostRoom ? part : kMostRoom;
  const std::uint64_t least = least_room(gpu);
  return room > least ? room / kGranularity * kGranularity : least;
}

void room_kept(int gpu, std::uint64_t room) {
  const Hold hold(lock);
  set_room(gpu, overheads[gpu].room + room);
}

void room_ends(int gpu) {
  const Hold hold(lock);
  Overhead& own = overheads[gpu];
  release(gpu, own.room + own.taken, true);
  set_room(gpu, 0);
  own.taken = own.promised = own.local = 0;
}

void add_unattributed(int gpu, std::uint64_t bytes) {
  (void)__atomic_add_fetch(&overheads[gpu].unattributed, bytes, __ATOMIC_RELEASE);
  add_detail(detail_unattributed, gpu, bytes);
}

void remove_unattributed(int gpu, std::uint64_t bytes) {
  (void)__atomic_sub_fetch(&overheads[gpu].unattributed, bytes, __ATOMIC_RELEASE);
  remove_detail(detail_unattributed, gpu, bytes);
}

bool look_now(int gpu) { return gpu < 0 || look(gpu); }

void look_for_overhead(int gpu) {
  if (gpu < 0 || !is_due(gpu)) return;
  (void)look(gpu);
  look_at_exports();
}

void overhead_gone(int gpu) {
  const aliquot_use* use = own_use(gpu);
  if (use == nullptr || overheads[gpu].taken == 0) return;
  const Hold hold(lock);
  Overhead& own = overheads[gpu];
  std::uint64_t counted = 0;
  if (!nvml_own_bytes(gpu, &counted)) return;
  const std::uint64_t known = __atomic_load_n(&use->charged, __ATOMIC_ACQUIRE) -
                              __atomic_load_n(&own.unattributed, __ATOMIC_ACQUIRE) - own.room;
  const std::uint64_t less = known > counted ? known - counted : 0;
  const std::uint64_t gone = less < own.taken ? less : own.taken;
  own.taken -= gone;
  release(gpu, gone, true);
  (void)refill(gpu, least_room(gpu));
}

bool have_room(int gpu, std::uint64_t bytes) {
  // For a GPU without a limit, or one that is not ours, the driver answers.
  if (gpu < 0 || limit_of(gpu) == 0) return true;
  for (const bool last : {false, true}) {
    {
      const Hold hold(lock);
      if (refill(gpu, least_room(gpu) + bytes)) return true;
    }
    if (!last) make_room(gpu);
  }
  count_refusal(gpu);
  return false;
}

bool promise_room(int gpu, std::uint64_t bytes) {
  if (!have_room(gpu, bytes)) return false;
  const Hold hold(lock);
  overheads[gpu].promised += bytes;
  return true;
}

void promise_less(int gpu, std::uint64_t bytes) {
  const Hold hold(lock);
  Overhead& own = overheads[gpu];
  const std::uint64_t less = bytes < own.promised ? bytes : own.promised;
  own.promised -= less;
  // The room is as large as it was without.
  const std::uint64_t back = less < own.room ? less : own.room;
  set_room(gpu, own.room - back);
  release(gpu, back, true);
}

std::uint64_t local_growth(int gpu, CUdevice device, std::uint64_t bytes) {
  constexpr int kMultiprocessors = 16;
  constexpr int kThreadsOfEach = 39;
  constexpr int kStackLimit = 0;
  std::uint64_t& local = overheads[gpu].local;
  std::size_t stack = 0;
  // A context has the stack's size from the start.
  if (__atomic_load_n(&local, __ATOMIC_RELAXED) == 0 &&
      real::cuCtxGetLimit(&stack, kStackLimit) == kSuccess)
    __atomic_store_n(&local, stack, __ATOMIC_RELAXED);
  const std::uint64_t now = __atomic_load_n(&local, __ATOMIC_RELAXED);
  int count = 0;
  int threads = 0;
  if (bytes <= now || real::cuDeviceGetAttribute(&count, kMultiprocessors, device) != kSuccess ||
      real::cuDeviceGetAttribute(&threads, kThreadsOfEach, device) != kSuccess)
    return 0;
  return (bytes - now) * static_cast<std::uint64_t>(count) * static_cast<std::uint64_t>(threads);
}

void local_grown(int gpu, std::uint64_t bytes) {
  if (__atomic_load_n(&overheads[gpu].local, __ATOMIC_RELAXED) < bytes)
    __atomic_store_n(&overheads[gpu].local, bytes, __ATOMIC_RELAXED);
}

bool first_use_begins(CUfunction f) {
  int gpu = kNoGpu;
  CUcontext context = nullptr;
  CUdevice device = 0;
  if (!current_gpu(&gpu, &context) || gpu < 0) return true;
  if (!have_room(gpu)) return false;
  if (real::cuCtxGetDevice(&device) != kSuccess) return true;
  const std::uint64_t local = local_bytes(f, device);
  if (!have_room(gpu, local_growth(gpu, device, local))) return false;
  local_grown(gpu, local);
  return true;
}

void first_use_ended(CUfunction f) {
  if (CUfunction* place = seen_place(f)) __atomic_store_n(place, f, __ATOMIC_RELAXED);
  int gpu = kNoGpu;
  CUcontext context = nullptr;
  // A look takes 40 µs (measured), once for each function of the program.
  if (current_gpu(&gpu, &context)) (void)look_now(gpu);
}

void forget_functions() {
  for (CUfunction& each : seen_functions) __atomic_store_n(&each, nullptr, __ATOMIC_RELAXED);
}

}  // namespace aliquot::enforce
