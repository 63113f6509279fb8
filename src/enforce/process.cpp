#include "enforce/process.hpp"

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace aliquot::enforce {
namespace {

std::uint64_t start_time = 0;
std::uint64_t name_space = 0;

bool read_stat(const char* path, ProcessState* state) {
  const int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return false;
  char text[1024];
  const ssize_t length = read(fd, text, sizeof text - 1);
  (void)close(fd);
  if (length <= 0) return false;
  text[length] = '\0';
  // The name in parentheses may hold anything: count from the last one. Field 3 follows it.
  const char* at = std::strrchr(text, ')');
  if (at == nullptr || at[1] != ' ') return false;
  const char letter = at[2];
  at += 3;
  unsigned long long fields[23] = {};
  for (int field = 4; field <= 22; ++field) {
    char* end = nullptr;
    fields[field] = std::strtoull(at, &end, 10);
    if (end == at) return false;
    at = end;
  }
  constexpr unsigned long long kExiting = 4;  // PF_EXITING
  state->start_time = fields[22];
  // The first thread of a program may be gone while others run on.
  const bool ended = letter == 'Z' || letter == 'X';
  state->zombie = ended && fields[20] <= 1;
  state->exiting = ended || (fields[9] & kExiting) != 0;
  return true;
}

struct Entry {  // as the kernel writes them
  std::uint64_t inode;
  std::int64_t next;
  std::uint16_t length;
  unsigned char type;
  char name[1];
};

// Calls it with the number that each entry of a folder is named by, until it says true. Not with
// opendir, which takes memory from the program's malloc.
template <class Each>
bool any_number(const char* folder, Each each) {
  const int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return false;
  alignas(Entry) char buffer[4096];
  bool found = false;
  long length = 0;
  while (!found && (length = syscall(SYS_getdents64, fd, buffer, sizeof buffer)) > 0)
    for (long at = 0; at < length && !found;) {
      const auto* entry = reinterpret_cast<const Entry*>(buffer + at);
      at += entry->length;
      if (entry->name[0] >= '0' && entry->name[0] <= '9') found = each(std::atoi(entry->name));
    }
  (void)close(fd);
  return found;
}

bool holds_descriptors(int pid) {
  char folder[40];
  (void)std::snprintf(folder, sizeof folder, "/proc/%d/fd", pid);
  return any_number(folder, [pid](int fd) {
    char link[64];
    char target[256];
    (void)std::snprintf(link, sizeof link, "/proc/%d/fd/%d", pid, fd);
    const ssize_t length = readlink(link, target, sizeof target - 1);
    if (length <= 0) return false;
    target[length] = '\0';
    return std::strstr(target, "nvidia") != nullptr || std::strncmp(target, "/dmabuf", 7) == 0;
  });
}

}  // namespace

bool others_hold_descriptors(bool (*is_known)(int pid)) {
  return any_number("/proc", [=](int pid) { return !is_known(pid) && holds_descriptors(pid); });
}

bool read_process(int pid, ProcessState* state) {
  char path[40];
  (void)std::snprintf(path, sizeof path, "/proc/%d/stat", pid);
  return read_stat(path, state);
}

std::uint64_t own_start_time() {
  ProcessState state{};
  if (start_time == 0 && read_stat("/proc/self/stat", &state)) start_time = state.start_time;
  return start_time;
}

std::uint64_t own_pid_namespace() {
  struct stat info {};
  if (name_space == 0 && status_of("/proc/self/ns/pid", &info) == 0) name_space = info.st_ino;
  return name_space;
}

void forget_own_process() {
  start_time = 0;
  name_space = 0;
}

}  // namespace aliquot::enforce
