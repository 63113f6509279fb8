#include "enforce/grant_files.hpp"

#include <cstdlib>
#include <cstring>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "enforce/find_grant.hpp"
#include "enforce/lock.hpp"

namespace aliquot::enforce {
namespace {

// Above what a program's own descriptors take, and closed after the driver's when the process ends.
constexpr int kLowestFd = 300;

// 0 = not looked yet, 1 = no, 2 = yes.
int wanted = 0;
char folder[ALIQUOT_PATH_BYTES];

// The folder's name is kept from the start: what the program does to its environment later changes
// nothing. A program with more rights than the user who started it ignores that user's environment.
__attribute__((constructor)) void look_at_environment() {
  if (folder[0] != '\0') return;
  const char* value = secure_getenv(ALIQUOT_GRANT_VARIABLE);
  // A name that is too long is cut, names no folder, and so allows nothing.
  if (value != nullptr) std::strncpy(folder, value, sizeof folder - 1);
}

// When the program first uses CUDA, not before: the library may be in every process of the machine.
void look_for_grant() {
  const KeepErrno keep;
  look_at_environment();
  char found[ALIQUOT_PATH_BYTES] = {};
  // Threads that come together write the same: no lock that a fork in between could leave taken.
  if (find_grant_here(ALIQUOT_GRANT_HERE, 0, found, sizeof found) ||
      find_grant_by_group(ALIQUOT_PLACES, 0, "/proc/self/cgroup", found, sizeof found))
    for (std::size_t i = 0; i < sizeof folder; ++i)
      __atomic_store_n(&folder[i], found[i], __ATOMIC_RELAXED);
  __atomic_store_n(&wanted, folder[0] == '\0' ? 1 : 2, __ATOMIC_RELEASE);
}

// `shared`: others may write to it where it is root's. In a container that is `usage`, since nobody
// knows beforehand as whom its processes run; only they have it in their file system.
int open_trusted(const char* name, int flags, bool shared, std::size_t size, struct stat* info) {
  const int dir = open(folder, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (dir < 0) return -1;
  const int fd = openat(dir, name, flags | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
  (void)close(dir);
  if (fd < 0) return -1;
  if (status_of(fd, info) == 0 && S_ISREG(info->st_mode) &&
      ((info->st_mode & 022) == 0 || (shared && info->st_uid == 0)) &&
      (info->st_uid == 0 || info->st_uid == geteuid()) && info->st_size == static_cast<off_t>(size))
    return fd;
  (void)close(fd);
  return -1;
}

}  // namespace

bool grant_wanted() {
  if (__atomic_load_n(&wanted, __ATOMIC_ACQUIRE) == 0) look_for_grant();
  return __atomic_load_n(&wanted, __ATOMIC_ACQUIRE) == 2;
}

const char* grant_folder() { return folder; }

const char* map_limits(const aliquot_limits** out) {
  struct stat info {};
  const int fd = open_trusted(ALIQUOT_LIMITS_FILE, O_RDONLY, false, sizeof(aliquot_limits), &info);
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
  *out = limits;
  return nullptr;
}

const char* map_usage(aliquot_usage** out, UsageFile* file) {
  if (!reopen(file)) return "the usage cannot be opened";
  void* memory =
      mmap(nullptr, sizeof(aliquot_usage), PROT_READ | PROT_WRITE, MAP_SHARED, file->fd, 0);
  auto* usage = static_cast<aliquot_usage*>(memory);
  if (memory == MAP_FAILED ||
      __atomic_load_n(&usage->magic, __ATOMIC_ACQUIRE) != ALIQUOT_USAGE_MAGIC ||
      usage->version != ALIQUOT_ABI_VERSION || usage->size != sizeof *usage) {
    if (memory != MAP_FAILED) (void)munmap(memory, sizeof(aliquot_usage));
    (void)close(file->fd);
    *file = {};
    return "the usage is of another version";
  }
  *out = usage;
  return nullptr;
}

bool is_open(const UsageFile& file) {
  struct stat info {};
  return status_of(file.fd, &info) == 0 && info.st_dev == file.device && info.st_ino == file.inode;
}

bool reopen(UsageFile* file) {
  struct stat info {};
  const int low = open_trusted(ALIQUOT_USAGE_FILE, O_RDWR, true, sizeof(aliquot_usage), &info);
  if (low < 0) return false;
  const int high = fcntl(low, F_DUPFD_CLOEXEC, kLowestFd);
  if (high >= 0) (void)close(low);
  *file = {high < 0 ? low : high, info.st_dev, info.st_ino};
  return true;
}

}  // namespace aliquot::enforce
