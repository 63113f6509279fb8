#include "standin/state/state.hpp"

#include <fcntl.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>

#include "standin/state/compute_model.hpp"

namespace aliquot::standin {
namespace {

// H200, driver 580: a client killed in kernels of 5 ms or more ended all others of its server, with
// kernels of 0.2 ms none.
constexpr double kHarmfulKernelNs = 5e6;
constexpr int kFaultOfOthers = 700;  // CUDA_ERROR_ILLEGAL_ADDRESS
constexpr char kDefaultMachine[] = "h200:1";

struct Settings {
  std::string path;
  std::string machine;  // empty: whatever is there
  std::string devices;  // of a new machine
  double speed = 1;
  double linger_ns = 0;
  bool shared = false;  // open to every user
  bool own_default = false;
};

Settings read_settings() {
  Settings s;
  if (const char* path = std::getenv("ALIQUOT_STANDIN_STATE"); path != nullptr && *path != '\0') {
    s.path = path;
    // The nodes of a Slurm on one machine have one each.
    const char* node = std::getenv("SLURMD_NODENAME");
    if (const auto at = s.path.find("%n"); at != std::string::npos && node != nullptr) {
      s.path.replace(at, 2, node);
    }
  } else {
    s.path = "/dev/shm/aliquot-standin-" + std::to_string(geteuid());
    s.own_default = true;
  }
  if (const char* machine = std::getenv("ALIQUOT_STANDIN")) s.machine = machine;
  if (const char* devices = std::getenv("ALIQUOT_STANDIN_DEVICES")) s.devices = devices;
  if (const char* speed = std::getenv("ALIQUOT_STANDIN_SPEED"))
    s.speed = std::strtod(speed, nullptr);
  if (!(s.speed > 0)) s.speed = 1;
  if (const char* linger = std::getenv("ALIQUOT_STANDIN_LINGER"))
    s.linger_ns = 1e6 * std::strtod(linger, nullptr);
  const char* shared = std::getenv("ALIQUOT_STANDIN_SHARED");
  s.shared = shared != nullptr && std::strcmp(shared, "1") == 0 && !s.own_default;
  return s;
}

void set_machine(Layout& layout, const std::vector<const GpuModel*>& gpus,
                 const Settings& settings) {
  const std::string& text = settings.machine;
  std::memset(layout.processes, 0, sizeof layout.processes);
  std::memset(layout.gpus, 0, sizeof layout.gpus);
  std::memset(layout.shared, 0, sizeof layout.shared);
  std::snprintf(layout.machine, sizeof layout.machine, "%s", text.c_str());
  std::snprintf(layout.devices, sizeof layout.devices, "%s", settings.devices.c_str());
  layout.speed = settings.speed;
  layout.linger_ns = settings.linger_ns;
  layout.gpu_count = static_cast<std::uint32_t>(gpus.size());
  for (unsigned i = 0; i < gpus.size(); ++i) {
    Gpu& gpu = layout.gpus[i];
    gpu.model = static_cast<std::uint32_t>(index_of(*gpus[i]));
    const auto uuid = uuid_bytes(*gpus[i], i);
    std::copy(uuid.begin(), uuid.end(), gpu.uuid);
    gpu.temperature = 38;
  }
}

void init_mutex(pthread_mutex_t& mutex) {
  pthread_mutexattr_t attributes;
  pthread_mutexattr_init(&attributes);
  pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
  pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
  pthread_mutex_init(&mutex, &attributes);
  pthread_mutexattr_destroy(&attributes);
}

// Makes the file under another name and links it into place, so that nobody ever sees half of one.
bool create_file(const Settings& settings, std::string* why) {
  Settings wanted = settings;
  if (wanted.machine.empty()) wanted.machine = kDefaultMachine;
  const auto gpus = parse_machine(wanted.machine, why);
  if (!gpus) return false;

  const std::string temporary =
      settings.path + "." + std::to_string(getpid()) + "." + std::to_string(own_image() & 0xFFFF);
  const int fd =
      ::open(temporary.c_str(), O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (fd < 0) {
    *why = temporary + ": " + std::strerror(errno);
    return false;
  }
  bool made = ftruncate(fd, sizeof(Layout)) == 0 && fchmod(fd, settings.shared ? 0666 : 0600) == 0;
  void* memory =
      made ? mmap(nullptr, sizeof(Layout), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) : MAP_FAILED;
  made = memory != MAP_FAILED;
  if (made) {
    auto* layout = static_cast<Layout*>(memory);
    set_machine(*layout, *gpus, wanted);
    init_mutex(layout->mutex);
    layout->version = kLayoutVersion;
    layout->magic = kLayoutMagic;
    munmap(memory, sizeof(Layout));
    made = link(temporary.c_str(), settings.path.c_str()) == 0 || errno == EEXIST;
  }
  if (!made) *why = settings.path + ": " + std::strerror(errno);
  unlink(temporary.c_str());
  close(fd);
  return made;
}

bool trustworthy(int fd, const Settings& settings, std::string* why) {
  struct stat info {};
  if (fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) {
    *why = settings.path + ": not a regular file";
    return false;
  }
  if (settings.own_default && info.st_uid != geteuid()) {
    *why = settings.path + ": belongs to another user";
    return false;
  }
  if (info.st_size != static_cast<off_t>(sizeof(Layout))) {
    *why = settings.path + ": not a stand-in state of this version; remove it";
    return false;
  }
  // Whoever made it, as aliquot-standin-ctl does that comes first, may have had no mind to share.
  if (settings.shared && info.st_uid == geteuid() && (info.st_mode & 0666) != 0666) {
    return fchmod(fd, 0666) == 0;
  }
  return true;
}

}  // namespace

std::unique_ptr<State> State::open(std::string* why) {
  const Settings settings = read_settings();
  int fd = -1;
  for (int attempt = 0; attempt < 3 && fd < 0; ++attempt) {
    fd = ::open(settings.path.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0 && errno == ENOENT && !create_file(settings, why)) return nullptr;
  }
  if (fd < 0) {
    *why = settings.path + ": " + std::strerror(errno);
    return nullptr;
  }
  void* memory = MAP_FAILED;
  if (trustworthy(fd, settings, why)) {
    memory = mmap(nullptr, sizeof(Layout), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (memory == MAP_FAILED) *why = settings.path + ": " + std::strerror(errno);
  }
  if (memory == MAP_FAILED) {
    close(fd);
    return nullptr;
  }
  std::unique_ptr<State> state(new State(static_cast<Layout*>(memory), fd, settings.path));
  if (state->layout_->magic != kLayoutMagic || state->layout_->version != kLayoutVersion) {
    *why = settings.path + ": not a stand-in state of this version; remove it";
    return nullptr;
  }

  const Guard guard(*state);
  if (!settings.machine.empty() && settings.machine != state->layout_->machine) {
    state->reap();
    const auto& processes = state->layout_->processes;
    const bool idle = std::all_of(std::begin(processes), std::end(processes),
                                  [](const Process& p) { return p.kind == Kind::free; });
    const auto gpus = parse_machine(settings.machine, why);
    if (!gpus) return nullptr;
    if (idle) {
      set_machine(*state->layout_, *gpus, settings);
    } else {
      std::fprintf(stderr,
                   "aliquot-standin: %s is in use with ALIQUOT_STANDIN=%s; '%s' is not applied\n",
                   settings.path.c_str(), state->layout_->machine, settings.machine.c_str());
    }
  }
  return state;
}

State::Guard::Guard(State& state, bool patient) : state_(&state), held_(true) {
  pthread_mutex_t* mutex = &state.layout_->mutex;
  int result = 0;
  if (patient) {
    result = pthread_mutex_lock(mutex);
  } else {
    // A process that was stopped while it held the lock must not stop those who only look.
    timespec until{};
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += 300'000'000;
    if (until.tv_nsec >= 1'000'000'000) {
      until.tv_nsec -= 1'000'000'000;
      ++until.tv_sec;
    }
    result = pthread_mutex_timedlock(mutex, &until);
    held_ = result != ETIMEDOUT;
  }
  if (result == EOWNERDEAD) pthread_mutex_consistent(mutex);
}

State::Guard::~Guard() {
  if (held_) pthread_mutex_unlock(&state_->layout_->mutex);
}

double State::now() const {
  timespec t{};
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (static_cast<double>(t.tv_sec) * 1e9 + static_cast<double>(t.tv_nsec)) * layout_->speed;
}

std::string State::identity() const {
  struct stat info {};
  fstat(fd_, &info);
  return std::to_string(info.st_dev) + "." + std::to_string(info.st_ino);
}

int State::enlist(Kind kind) {
  const Guard guard(*this);
  reap();
  for (int slot = 0; slot < static_cast<int>(kMaxProcesses); ++slot) {
    Process& p = process(slot);
    if (p.kind != Kind::free) continue;
    struct flock lock {};
    lock.l_type = F_WRLCK;
    lock.l_whence = SEEK_SET;
    lock.l_start = slot;
    lock.l_len = 1;
    if (fcntl(fd_, F_SETLK, &lock) != 0) continue;
    const std::uint32_t generation = p.generation + 1;
    p = Process{};
    p.generation = generation;
    p.pid = getpid();
    p.start_time = own_start_time();
    p.image = own_image();
    p.uid = geteuid();
    p.server = -1;
    p.cap = 1;
    char name[sizeof p.name] = {};
    if (const int fd = ::open("/proc/self/cmdline", O_RDONLY | O_CLOEXEC); fd >= 0) {
      if (read(fd, name, sizeof name - 1) < 0) name[0] = '\0';
      close(fd);
    }
    std::memcpy(p.name, name, sizeof name);
    p.kind = kind;
    return slot;
  }
  return -1;
}

void State::retire(int slot) {
  Process& p = process(slot);
  for (unsigned g = 0; g < gpu_count(); ++g) {
    advance(gpu(g).compute, now());
    drop_client(gpu(g).compute, slot);
  }
  for (Shared& each : layout_->shared)
    if (each.used && each.owner == slot && each.owner_generation == p.generation)
      each.orphan = true;
  const std::uint32_t generation = p.generation + 1;
  p = Process{};
  p.generation = generation;
}

// What this program enlisted, and not the one that was in the process before it.
bool State::is_own(int slot) {
  const Process& p = process(slot);
  return p.pid == getpid() && p.start_time == own_start_time() && p.image == own_image();
}

bool State::alive(int slot) {
  if (process(slot).kind == Kind::free) return false;
  // A process never conflicts with its own lock.
  if (is_own(slot)) return true;
  struct flock lock {};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  lock.l_start = slot;
  lock.l_len = 1;
  return fcntl(fd_, F_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
}

void State::reap() {
  for (int slot = 0; slot < static_cast<int>(kMaxProcesses); ++slot)
    if (process(slot).kind != Kind::free && !alive(slot)) {
      Process& p = process(slot);
      if (p.left == 0) mourn(slot);
      // Its work ends at once, its memory a while later.
      if (p.left == 0 && layout_->linger_ns > 0) {
        p.left = now();
        for (unsigned g = 0; g < gpu_count(); ++g) {
          advance(gpu(g).compute, now());
          drop_client(gpu(g).compute, slot);
        }
      }
      if (now() - p.left >= layout_->linger_ns) retire(slot);
    }
  reap_shared();
}

int State::pid_of(int slot) {
  if (is_own(slot)) return getpid();
  struct flock lock {};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  lock.l_start = slot;
  lock.l_len = 1;
  // The kernel says who holds a lock in the numbers of who asks.
  if (fcntl(fd_, F_GETLK, &lock) == 0 && lock.l_type != F_UNLCK)
    return lock.l_pid > 0 ? lock.l_pid : 0;
  return process(slot).pid;
}

int State::find_pid(int pid) {
  int found = -1;
  for (int slot = 0; slot < static_cast<int>(kMaxProcesses); ++slot) {
    const Process& p = process(slot);
    // After exec an earlier program of the same process may still be leaving.
    if (p.kind != Kind::free && pid_of(slot) == pid && (found < 0 || p.left == 0)) found = slot;
  }
  return found;
}

bool State::admits(unsigned gpu, int slot) {
  constexpr std::uint32_t kProhibited = 2;
  constexpr std::uint32_t kExclusive = 3;
  if (layout_->gpus[gpu].compute_mode == kProhibited) return false;
  if (layout_->gpus[gpu].compute_mode != kExclusive) return true;
  reap();
  for (int other = 0; other < static_cast<int>(kMaxProcesses); ++other) {
    const Process& p = process(other);
    const bool there = (p.kind == Kind::plain && p.contexts[gpu] > 0) ||
                       (p.kind == Kind::server && p.bytes[gpu] > 0);
    if (there && other != slot) return false;
  }
  return true;
}

std::uint64_t State::used(unsigned gpu) {
  std::uint64_t sum = 0;
  for (const Process& p : layout_->processes)
    if (p.kind != Kind::free) sum += p.bytes[gpu] + p.managed[gpu];
  for (const Shared& each : layout_->shared)
    if (each.used && each.orphan && each.gpu == gpu) sum += each.bytes;
  return sum;
}

std::uint64_t State::free(unsigned gpu) {
  const std::uint64_t usable = model(gpu).usable();
  return usable - std::min(usable, used(gpu));
}

std::uint64_t State::free_for(int slot, unsigned gpu) {
  const Process& p = process(slot);
  const std::uint64_t whole = free(gpu);
  if (p.limit[gpu] == 0) return whole;
  return std::min(whole, p.limit[gpu] - std::min(p.limit[gpu], p.bytes[gpu]));
}

bool State::charge(int slot, unsigned gpu, std::uint64_t bytes, bool managed) {
  if (bytes > free_for(slot, gpu)) {
    reap();
    if (bytes > free_for(slot, gpu)) return false;
  }
  (managed ? process(slot).managed : process(slot).bytes)[gpu] += bytes;
  return true;
}

void State::refund(int slot, unsigned gpu, std::uint64_t bytes, bool managed) {
  std::uint64_t& held = (managed ? process(slot).managed : process(slot).bytes)[gpu];
  held -= std::min(held, bytes);
}

void State::fault(int slot, int error) {
  const Process& origin = process(slot);
  for (int other = 0; other < static_cast<int>(kMaxProcesses); ++other) {
    Process& p = process(other);
    const bool same_server = origin.kind == Kind::client && p.kind == Kind::client &&
                             p.server == origin.server &&
                             p.server_generation == origin.server_generation;
    if (other == slot || same_server) end_work(other, error);
  }
}

void State::end_work(int slot, int error) {
  process(slot).fault = error;
  for (unsigned g = 0; g < gpu_count(); ++g) {
    GpuCompute& compute = gpu(g).compute;
    advance(compute, now());
    for (unsigned i = 0; i < compute.high_lane; ++i)
      if (compute.lanes[i].client == slot) compute.lanes[i].done = compute.lanes[i].submitted;
  }
}

void State::mourn(int slot) {
  const Process& p = process(slot);
  if (p.kind != Kind::client || p.fault != 0) return;
  for (unsigned g = 0; g < gpu_count(); ++g)
    if (longest_in_flight(gpu(g).compute, slot) >= kHarmfulKernelNs)
      return fault(slot, kFaultOfOthers);
}

std::uint64_t own_start_time() {
  static const auto read_it = [] {
    std::uint64_t ticks = 0;
    std::FILE* file = std::fopen("/proc/self/stat", "re");
    if (file == nullptr) return ticks;
    char line[1024] = {};
    const bool ok = std::fgets(line, sizeof line, file) != nullptr;
    std::fclose(file);
    // The name may hold anything: fields are counted from the last parenthesis. Start time is the
    // 22nd.
    const char* rest = ok ? std::strrchr(line, ')') : nullptr;
    for (int field = 2; rest != nullptr && field < 22; ++field) rest = std::strchr(rest + 1, ' ');
    if (rest != nullptr) ticks = std::strtoull(rest, nullptr, 10);
    return ticks;
  };
  static thread_local int for_pid = 0;
  static thread_local std::uint64_t ticks = 0;
  if (for_pid != getpid()) {
    ticks = read_it();
    for_pid = getpid();
  }
  return ticks;
}

std::uint64_t own_image() {
  std::uint64_t image = 1;
  const auto address = getauxval(AT_RANDOM);
  if (address != 0) std::memcpy(&image, reinterpret_cast<const void*>(address), sizeof image);
  // The kernel's random bytes are also the stack guard: never publish them as they are.
  return (image ^ (image >> 32)) * 0x9E3779B97F4A7C15ULL >> 16;
}

}  // namespace aliquot::standin
