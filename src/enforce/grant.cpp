#include "enforce/grant.hpp"

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "enforce/find_grant.hpp"
#include "enforce/nvml.hpp"
#include "enforce/process.hpp"
#include "enforce/reset.hpp"

namespace aliquot::enforce {
namespace {

constexpr std::uint64_t kDefaultContext = 600ULL << 20;
// Above what a program's own descriptors take, and closed after the driver's when the process ends.
constexpr int kLowestFd = 300;

enum Standing : int { standing_unknown, standing_ready, standing_broken };

struct Grant {
  int standing = standing_unknown;
  int pid = 0;  // of the process that found out
  int slot = -1;
  std::uint32_t generation = 0;
  const aliquot_limits* limits = nullptr;
  aliquot_usage* usage = nullptr;
  int fd = -1;
  dev_t device = 0;
  ino_t inode = 0;
  std::uint64_t held[ALIQUOT_MAX_GPUS] = {};  // what the slot should say
  std::uint64_t held_context[ALIQUOT_MAX_GPUS] = {};
  std::uint64_t details[ALIQUOT_MAX_GPUS][detail_count] = {};
};

Grant grant;
Lock attach_lock;
bool forks_watched = false;

// 0 = not looked yet, 1 = no, 2 = yes.
int wanted = 0;
char folder[ALIQUOT_PATH_BYTES];

// The folder's name is kept from the start: what the program does to its environment later changes
// nothing. A program that runs with more rights than who started it takes nothing from him.
__attribute__((constructor)) void look_at_environment() {
  if (folder[0] != '\0') return;
  const char* value = secure_getenv(ALIQUOT_GRANT_VARIABLE);
  // A name too long is cut, names no folder, and so allows nothing.
  if (value != nullptr) std::strncpy(folder, value, sizeof folder - 1);
}

// When the program first uses CUDA, not before: the library may be in every process of the machine.
void look_for_grant() {
  const KeepErrno keep;
  look_at_environment();
  char found[ALIQUOT_PATH_BYTES] = {};
  // Threads that come together write the same: no lock that a fork in between could leave taken.
  if (find_grant_by_group(ALIQUOT_PLACES, 0, "/proc/self/cgroup", found, sizeof found))
    for (std::size_t i = 0; i < sizeof folder; ++i)
      __atomic_store_n(&folder[i], found[i], __ATOMIC_RELAXED);
  __atomic_store_n(&wanted, folder[0] == '\0' ? 1 : 2, __ATOMIC_RELEASE);
}

void say(const char* what) {
  char line[400];
  const int length = std::snprintf(
      line, sizeof line, "aliquot: %s: %s; no GPU memory can be allocated\n", folder, what);
  (void)!write(STDERR_FILENO, line, static_cast<std::size_t>(length));
}

std::uint64_t load(const std::uint64_t& word) { return __atomic_load_n(&word, __ATOMIC_ACQUIRE); }
void store(std::uint64_t& word, std::uint64_t value) {
  __atomic_store_n(&word, value, __ATOMIC_RELEASE);
}

// ---- files ------------------------------------------------------------------------------------

// A regular file of the right size that only root or this user could have made.
int open_trusted(const char* name, int flags, std::size_t size, struct stat* info) {
  const int dir = open(folder, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (dir < 0) return -1;
  const int fd = openat(dir, name, flags | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
  (void)close(dir);
  if (fd < 0) return -1;
  if (status_of(fd, info) == 0 && S_ISREG(info->st_mode) && (info->st_mode & 022) == 0 &&
      (info->st_uid == 0 || info->st_uid == geteuid()) && info->st_size == static_cast<off_t>(size))
    return fd;
  (void)close(fd);
  return -1;
}

const char* map_limits() {
  struct stat info {};
  const int fd = open_trusted(ALIQUOT_LIMITS_FILE, O_RDONLY, sizeof(aliquot_limits), &info);
  if (fd < 0) return "the limits cannot be read";
  void* memory = mmap(nullptr, sizeof(aliquot_limits), PROT_READ, MAP_SHARED, fd, 0);
  (void)close(fd);
  if (memory == MAP_FAILED) return "the limits cannot be mapped";
  const auto* limits = static_cast<const aliquot_limits*>(memory);
  if (limits->magic != ALIQUOT_LIMITS_MAGIC || limits->version != ALIQUOT_ABI_VERSION ||
      limits->size != sizeof *limits || limits->gpu_count > ALIQUOT_MAX_GPUS) {
    (void)munmap(memory, sizeof(aliquot_limits));
    return "the limits are of another version";
  }
  grant.limits = limits;
  return nullptr;
}

int open_usage(struct stat* info) {
  const int low = open_trusted(ALIQUOT_USAGE_FILE, O_RDWR, sizeof(aliquot_usage), info);
  if (low < 0) return -1;
  const int high = fcntl(low, F_DUPFD_CLOEXEC, kLowestFd);
  if (high < 0) return low;
  (void)close(low);
  return high;
}

const char* map_usage() {
  struct stat info {};
  const int fd = open_usage(&info);
  if (fd < 0) return "the usage cannot be opened";
  void* memory = mmap(nullptr, sizeof(aliquot_usage), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  auto* usage = static_cast<aliquot_usage*>(memory);
  if (memory == MAP_FAILED || load(usage->magic) != ALIQUOT_USAGE_MAGIC ||
      usage->version != ALIQUOT_ABI_VERSION || usage->size != sizeof *usage) {
    if (memory != MAP_FAILED) (void)munmap(memory, sizeof(aliquot_usage));
    (void)close(fd);
    return "the usage is of another version";
  }
  grant.usage = usage;
  grant.fd = fd;
  grant.device = info.st_dev;
  grant.inode = info.st_ino;
  return nullptr;
}

// ---- slots, all under the region's mutex ------------------------------------------------------

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
  return fcntl(grant.fd, command, lock) == 0;
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

void bury(int index) {
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

void sweep() {
  const int count = slots_in_use();
  for (int i = 0; i < count; ++i)
    if (i != grant.slot && grant.usage->slots[i].pid != 0 && is_dead(i)) bury(i);
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
  struct stat info {};
  if (status_of(grant.fd, &info) != 0 || info.st_dev != grant.device ||
      info.st_ino != grant.inode) {
    const int fd = open_usage(&info);
    if (fd < 0) return false;
    grant.fd = fd;
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
void ask(int gpu, Attributed* attributed) {
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

void tell_daemon() {
  if ((grant.limits->flags & ALIQUOT_FLAG_REGISTER) == 0) return;
  sockaddr_un to{};
  to.sun_family = AF_UNIX;
  const std::size_t length = strnlen(grant.limits->socket, sizeof grant.limits->socket);
  if (length >= sizeof to.sun_path) return;
  std::memcpy(to.sun_path, grant.limits->socket, length);
  const int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return;
  const aliquot_hello hello{
      ALIQUOT_USAGE_MAGIC, grant.limits->job, static_cast<std::uint32_t>(grant.slot),
      grant.generation,    grant.pid,         0};
  (void)sendto(fd, &hello, sizeof hello, MSG_DONTWAIT | MSG_NOSIGNAL,
               reinterpret_cast<const sockaddr*>(&to), sizeof to);
  (void)close(fd);
}

const char* attach() {
  if (grant.limits == nullptr)
    if (const char* why = map_limits()) return why;
  if (grant.usage == nullptr)
    if (const char* why = map_usage()) return why;
  if (!lock_usage()) return "the usage is locked";
  sweep();
  const bool taken = take_slot();
  unlock_usage();
  if (!taken) return "too many processes use the GPU";
  tell_daemon();
  return nullptr;
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
  ask(gpu, &attributed);
  if (!lock_usage()) return false;
  bool fits = keep_slot();
  if (fits && !within_limit(gpu, bytes, attributed)) {
    sweep();
    forget_orphans(gpu);
    fits = within_limit(gpu, bytes, attributed);
  }
  if (fits || always) add(gpu, bytes, context);
  unlock_usage();
  return fits;
}

}  // namespace

KeepErrno::KeepErrno() : saved_(errno) {}
KeepErrno::~KeepErrno() { errno = saved_; }

std::uint64_t now_ns() {
  timespec t{};
  (void)clock_gettime(CLOCK_MONOTONIC, &t);
  return static_cast<std::uint64_t>(t.tv_sec) * 1000000000U + static_cast<std::uint64_t>(t.tv_nsec);
}

bool grant_wanted() {
  if (__atomic_load_n(&wanted, __ATOMIC_ACQUIRE) == 0) look_for_grant();
  return __atomic_load_n(&wanted, __ATOMIC_ACQUIRE) == 2;
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
  ask(gpu, &attributed);
  if (!lock_usage()) return 0;
  sweep();
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
