#include "enforce/grant.hpp"

#include <cerrno>
#include <cstdio>
#include <cstring>

#include <fcntl.h>
#include <pthread.h>
#include <time.h>
#include <unistd.h>

#include "enforce/nvml.hpp"
#include "enforce/process.hpp"
#include "enforce/reset.hpp"

namespace aliquot::enforce {
namespace {

constexpr std::uint64_t kDefaultContext = 600ULL << 20;

enum Standing : int { standing_unknown, standing_ready, standing_broken };

struct Grant {
  int standing = standing_unknown;
  int pid = 0;  // of the process that found out
  int slot = -1;
  std::uint32_t generation = 0;
  const aliquot_limits* limits = nullptr;
  aliquot_usage* usage = nullptr;
  UsageFile file;
  std::uint64_t held[ALIQUOT_MAX_GPUS] = {};  // what the slot should say
  std::uint64_t held_context[ALIQUOT_MAX_GPUS] = {};
  std::uint64_t details[ALIQUOT_MAX_GPUS][detail_count] = {};
};

Grant grant;
Lock attach_lock;
bool forks_watched = false;

void say(const char* what) {
  char line[400];
  const int length = std::snprintf(
      line, sizeof line, "aliquot: %s: %s; no GPU memory can be allocated\n", grant_folder(), what);
  (void)!write(STDERR_FILENO, line, static_cast<std::size_t>(length));
}

std::uint64_t load(const std::uint64_t& word) { return __atomic_load_n(&word, __ATOMIC_ACQUIRE); }
void store(std::uint64_t& word, std::uint64_t value) {
  __atomic_store_n(&word, value, __ATOMIC_RELEASE);
}

// The slots, all under the mutex of the usage region.

bool lock_usage() {
  timespec until{};
  (void)clock_gettime(CLOCK_REALTIME, &until);
  // A holder needs microseconds; one that was stopped in them must not hang the others for ever.
  until.tv_sec += 10;
  const int error = pthread_mutex_timedlock(&grant.usage->lock.mutex, &until);
  if (error == EOWNERDEAD) {
    (void)pthread_mutex_consistent(&grant.usage->lock.mutex);
    return true;
  }
  return error == 0;
}

void unlock_usage() { (void)pthread_mutex_unlock(&grant.usage->lock.mutex); }

int slots_in_use() {
  const std::uint32_t high = __atomic_load_n(&grant.usage->high_water, __ATOMIC_ACQUIRE);
  constexpr std::uint32_t kSlots = ALIQUOT_USAGE_SLOTS;
  return static_cast<int>(high < kSlots ? high : kSlots);
}

bool byte_lock(int slot, short type, int command, struct flock* lock) {
  *lock = {};
  lock->l_type = type;
  lock->l_whence = SEEK_SET;
  lock->l_start = slot;
  lock->l_len = 1;
  return fcntl(grant.file.fd, command, lock) == 0;
}

bool is_dead(int index) {
  const aliquot_slot& slot = grant.usage->slots[index];
  struct flock lock {};
  if (!byte_lock(index, F_WRLCK, F_GETLK, &lock)) return false;
  if (lock.l_type != F_UNLCK) return false;
  if (slot.pid_ns != own_pid_namespace()) return true;
  // Not locked any more: gone, or execed into another program, or just leaving, which is not yet
  // gone: its memory is still being given back.
  ProcessState state{};
  if (!read_process(slot.pid, &state) || state.start_time != slot.start_time) return true;
  return state.zombie || !state.exiting;
}

// Of a process that is gone: its sums go to the past.
void clear_slot(int index) {
  aliquot_slot& slot = grant.usage->slots[index];
  for (int g = 0; g < ALIQUOT_MAX_GPUS; ++g) {
    aliquot_use& use = slot.gpus[g];
    aliquot_past& past = grant.usage->past[g];
    const aliquot_use last = use;
    use = {};
    store(past.gpu_ns, past.gpu_ns + last.gpu_ns);
    store(past.launches, past.launches + last.launches);
    store(past.refusals, past.refusals + last.refusals);
    store(past.waited_ns, past.waited_ns + last.waited_ns);
    store(past.orphaned,
          past.orphaned + (last.exported < last.charged ? last.exported : last.charged));
  }
  __atomic_store_n(&slot.pid, 0, __ATOMIC_RELEASE);
}

void clear_dead_slots() {
  const int count = slots_in_use();
  for (int i = 0; i < count; ++i)
    if (i != grant.slot && grant.usage->slots[i].pid != 0 && is_dead(i)) clear_slot(i);
}

void write_details(int gpu) {
  aliquot_use& use = grant.usage->slots[grant.slot].gpus[gpu];
  const std::uint64_t* own = grant.details[gpu];
  store(use.unattributed, load(own[detail_unattributed]));
  store(use.exported, load(own[detail_exported]));
  store(use.room, load(own[detail_room]));
  __atomic_store_n(&use.imports, static_cast<std::uint32_t>(load(own[detail_imports])),
                   __ATOMIC_RELEASE);
}

bool take_slot() {
  for (int i = 0; i < ALIQUOT_USAGE_SLOTS; ++i) {
    aliquot_slot& slot = grant.usage->slots[i];
    struct flock lock {};
    if (slot.pid != 0 || !byte_lock(i, F_WRLCK, F_SETLK, &lock)) continue;
    for (int g = 0; g < ALIQUOT_MAX_GPUS; ++g) {
      slot.gpus[g] = {};
      slot.gpus[g].charged = grant.held[g];
      slot.gpus[g].context = grant.held_context[g];
    }
    ++slot.generation;
    slot.start_time = own_start_time();
    slot.pid_ns = own_pid_namespace();
    __atomic_store_n(&slot.pid, grant.pid, __ATOMIC_RELEASE);
    if (i >= slots_in_use())
      __atomic_store_n(&grant.usage->high_water, static_cast<std::uint32_t>(i + 1),
                       __ATOMIC_RELEASE);
    grant.slot = i;
    grant.generation = slot.generation;
    for (int g = 0; g < ALIQUOT_MAX_GPUS; ++g) write_details(g);
    return true;
  }
  return false;
}

// Ours still: nobody took us for dead.
bool slot_is_ours() {
  const aliquot_slot& slot = grant.usage->slots[grant.slot];
  return __atomic_load_n(&slot.pid, __ATOMIC_ACQUIRE) == grant.pid &&
         __atomic_load_n(&slot.generation, __ATOMIC_RELAXED) == grant.generation;
}

// The program may have closed our descriptor, and someone may have taken us for dead since.
bool keep_slot() {
  if (!is_open(grant.file)) {
    if (!reopen(&grant.file)) return false;
    struct flock lock {};
    (void)byte_lock(grant.slot, F_WRLCK, F_SETLK, &lock);
  }
  return slot_is_ours() || take_slot();
}

// What NVML attributes to processes, where the job's share memory.
struct Attributed {
  NvmlProcess all[kMostNvmlProcesses];
  unsigned count = 0;

  [[nodiscard]] std::uint64_t to(int pid) const {
    for (unsigned i = 0; i < count; ++i)
      if (static_cast<int>(all[i].pid) == pid) return all[i].bytes;
    return 0;
  }
};

// Without the lock: it asks the driver.
void find_attributed(int gpu, Attributed* attributed) {
  bool shared = false;
  const int count = slots_in_use();
  for (int i = 0; i < count; ++i)
    shared |= __atomic_load_n(&grant.usage->slots[i].gpus[gpu].imports, __ATOMIC_ACQUIRE) != 0;
  attributed->count = shared ? nvml_processes(gpu, attributed->all) : 0;
}

std::uint64_t sum(int gpu, const Attributed* attributed = nullptr) {
  std::uint64_t total = load(grant.usage->past[gpu].orphaned);
  const int count = slots_in_use();
  for (int i = 0; i < count; ++i) {
    const aliquot_slot& slot = grant.usage->slots[i];
    if (slot.pid == 0) continue;
    const std::uint64_t charged = load(slot.gpus[gpu].charged);
    const std::uint64_t seen =
        attributed == nullptr || attributed->count == 0 || slot.pid_ns != own_pid_namespace()
            ? 0
            : attributed->to(slot.pid) + load(slot.gpus[gpu].unattributed);
    total += charged > seen ? charged : seen;
  }
  return total;
}

const char* attach() {
  if (grant.limits == nullptr)
    if (const char* why = map_limits(&grant.limits)) return why;
  if (grant.usage == nullptr)
    if (const char* why = map_usage(&grant.usage, &grant.file)) return why;
  if (!lock_usage()) return "the usage is locked";
  clear_dead_slots();
  const bool taken = take_slot();
  unlock_usage();
  return taken ? nullptr : "too many processes use the GPU";
}

void child_starts() {
  attach_lock = {};
  grant.standing = standing_unknown;
  grant.slot = -1;
  std::memset(grant.held, 0, sizeof grant.held);
  std::memset(grant.held_context, 0, sizeof grant.held_context);
  std::memset(grant.details, 0, sizeof grant.details);
  forget_own_process();
  reset_modules();
}

// A process that left descriptors of memory behind counts for them until nobody can have them: the
// job's other users of the GPU count with what NVML attributes to them anyhow.
bool is_registered(int pid) {
  const int count = slots_in_use();
  for (int i = 0; i < count; ++i)
    if (grant.usage->slots[i].pid == pid) return true;
  return false;
}

void forget_orphans(int gpu) {
  std::uint64_t& orphaned = grant.usage->past[gpu].orphaned;
  if (load(orphaned) != 0 && !others_hold_descriptors(is_registered)) store(orphaned, 0);
}

bool within_limit(int gpu, std::uint64_t bytes, const Attributed& attributed) {
  const std::uint64_t limit = grant.limits->gpus[gpu].memory_bytes;
  if (limit == 0) return true;
  const std::uint64_t used = sum(gpu, &attributed);
  return used <= limit && bytes <= limit - used;
}

void add(int gpu, std::uint64_t bytes, bool context) {
  aliquot_use& use = grant.usage->slots[grant.slot].gpus[gpu];
  if (context) {
    (void)__atomic_add_fetch(&grant.held_context[gpu], bytes, __ATOMIC_RELAXED);
    (void)__atomic_add_fetch(&use.context, bytes, __ATOMIC_RELAXED);
  }
  (void)__atomic_add_fetch(&grant.held[gpu], bytes, __ATOMIC_RELAXED);
  (void)__atomic_add_fetch(&use.charged, bytes, __ATOMIC_ACQ_REL);
  std::uint64_t& peak = grant.usage->past[gpu].peak_bytes;
  if (const std::uint64_t now = sum(gpu); now > peak) store(peak, now);
}

bool add_if_allowed(int gpu, std::uint64_t bytes, bool context, bool always) {
  const KeepErrno keep;
  if (!grant_ready() || gpu < 0) return false;
  Attributed attributed;
  find_attributed(gpu, &attributed);
  if (!lock_usage()) return false;
  bool fits = keep_slot();
  if (fits && !within_limit(gpu, bytes, attributed)) {
    clear_dead_slots();
    forget_orphans(gpu);
    fits = within_limit(gpu, bytes, attributed);
  }
  if (fits || always) add(gpu, bytes, context);
  unlock_usage();
  return fits;
}

}  // namespace

std::uint64_t now_ns() {
  timespec t{};
  (void)clock_gettime(CLOCK_MONOTONIC, &t);
  return static_cast<std::uint64_t>(t.tv_sec) * 1000000000U + static_cast<std::uint64_t>(t.tv_nsec);
}

bool grant_ready() {
  // The pid is asked for each time: a child made without libc's fork has no handler run.
  const int pid = getpid();
  if (grant.pid == pid) {
    const int standing = __atomic_load_n(&grant.standing, __ATOMIC_ACQUIRE);
    if (standing != standing_unknown) return standing == standing_ready;
  }
  const KeepErrno keep;
  if (grant.pid != pid && grant.pid != 0) child_starts();
  const Hold hold(attach_lock);
  if (grant.pid == pid && grant.standing != standing_unknown)
    return grant.standing == standing_ready;
  grant.pid = pid;
  if (!forks_watched) forks_watched = pthread_atfork(nullptr, nullptr, child_starts) == 0;
  const char* why = attach();
  if (why != nullptr) say(why);
  __atomic_store_n(&grant.standing, why == nullptr ? int{standing_ready} : int{standing_broken},
                   __ATOMIC_RELEASE);
  return why == nullptr;
}

const aliquot_limits* grant_limits() { return grant_ready() ? grant.limits : nullptr; }

int gpu_by_uuid(const unsigned char* uuid) {
  if (!grant_ready()) return kNoGpu;
  for (std::uint32_t g = 0; g < grant.limits->gpu_count; ++g)
    if (std::memcmp(grant.limits->gpus[g].uuid, uuid, 16) == 0) return static_cast<int>(g);
  return kNoGpu;
}

bool reserve(int gpu, std::uint64_t bytes, bool context) {
  return gpu >= 0 && (bytes == 0 || add_if_allowed(gpu, bytes, context, false));
}

void reserve_anyway(int gpu, std::uint64_t bytes, bool context) {
  if (bytes != 0) (void)add_if_allowed(gpu, bytes, context, true);
}

// Needs no lock: a smaller number can break no limit.
void release(int gpu, std::uint64_t bytes, bool context) {
  if (bytes == 0 || gpu < 0 || grant.slot < 0) return;
  (void)__atomic_sub_fetch(&grant.held[gpu], bytes, __ATOMIC_RELAXED);
  if (context) (void)__atomic_sub_fetch(&grant.held_context[gpu], bytes, __ATOMIC_RELAXED);
  aliquot_use* use = own_use(gpu);
  if (use == nullptr) return;
  if (context) (void)__atomic_sub_fetch(&use->context, bytes, __ATOMIC_RELAXED);
  (void)__atomic_sub_fetch(&use->charged, bytes, __ATOMIC_ACQ_REL);
}

bool settle_context(int gpu, std::uint64_t guess, std::uint64_t cost) {
  if (cost > guess) return add_if_allowed(gpu, cost - guess, true, false);
  release(gpu, guess - cost, true);
  return true;
}

std::uint64_t context_guess(int gpu) {
  if (!grant_ready() || gpu < 0) return kDefaultContext;
  // What one cost in another process of the job is better than any guess.
  std::uint64_t known = 0;
  const int count = slots_in_use();
  for (int i = 0; i < count; ++i) {
    const aliquot_use& use = grant.usage->slots[i].gpus[gpu];
    const std::uint64_t with_room = load(use.context);
    const std::uint64_t room = load(use.room);
    const std::uint64_t other = with_room > room ? with_room - room : 0;
    if (i != grant.slot && grant.usage->slots[i].pid != 0 && other > 0 &&
        (known == 0 || other < known))
      known = other;
  }
  if (known != 0) return known;
  const std::uint64_t configured = grant.limits->gpus[gpu].context_bytes;
  return configured != 0 ? configured : kDefaultContext;
}

std::uint64_t job_bytes(int gpu) {
  const KeepErrno keep;
  if (!grant_ready() || gpu < 0) return 0;
  Attributed attributed;
  find_attributed(gpu, &attributed);
  if (!lock_usage()) return 0;
  clear_dead_slots();
  const std::uint64_t total = sum(gpu, &attributed);
  unlock_usage();
  return total;
}

std::uint64_t limit_of(int gpu) {
  return gpu < 0 || !grant_ready() ? 0 : grant.limits->gpus[gpu].memory_bytes;
}

bool others_import(int gpu) {
  if (!grant_ready() || gpu < 0) return false;
  const int count = slots_in_use();
  for (int i = 0; i < count; ++i)
    if (i != grant.slot && grant.usage->slots[i].pid != 0 &&
        __atomic_load_n(&grant.usage->slots[i].gpus[gpu].imports, __ATOMIC_ACQUIRE) != 0)
      return true;
  return false;
}

void count_refusal(int gpu) {
  if (aliquot_use* use = own_use(gpu))
    (void)__atomic_add_fetch(&use->refusals, 1, __ATOMIC_RELAXED);
}

unsigned launching_processes(int gpu) {
  if (gpu < 0 || grant.slot < 0) return 1;
  unsigned count = 0;
  const std::uint32_t high = __atomic_load_n(&grant.usage->high_water, __ATOMIC_ACQUIRE);
  for (std::uint32_t i = 0; i < high && i < ALIQUOT_USAGE_SLOTS; ++i) {
    const aliquot_slot& slot = grant.usage->slots[i];
    if (__atomic_load_n(&slot.pid, __ATOMIC_RELAXED) == 0) continue;
    const aliquot_use& use = slot.gpus[gpu];
    if (__atomic_load_n(&use.launched, __ATOMIC_RELAXED) >
        __atomic_load_n(&use.completed, __ATOMIC_RELAXED))
      ++count;
  }
  return count == 0 ? 1 : count;
}

void add_detail(Detail which, int gpu, std::uint64_t more) {
  if (gpu < 0) return;
  (void)__atomic_add_fetch(&grant.details[gpu][which], more, __ATOMIC_ACQ_REL);
  if (own_use(gpu) != nullptr) write_details(gpu);
}

void remove_detail(Detail which, int gpu, std::uint64_t less) { add_detail(which, gpu, 0 - less); }

aliquot_use* own_use(int gpu) {
  if (gpu < 0 || grant.slot < 0 || !slot_is_ours()) return nullptr;
  return &grant.usage->slots[grant.slot].gpus[gpu];
}

}  // namespace aliquot::enforce
