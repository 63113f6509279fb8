#include "enforce/descriptors.hpp"

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

#include "enforce/lock.hpp"

namespace aliquot::enforce {
namespace {

constexpr int kLowestFd = 300;  // above what a program's own descriptors take
constexpr std::uint64_t kWitness = UINT64_MAX;
constexpr std::size_t kMostText = 1U << 20;

Lock lock;
int followers = -1;
int witness = -1;   // followed too: while it is listed, the list is ours and whole
bool lost = false;  // something could not be followed: everything counts as open

int high(int fd) {
  if (fd < 0) return fd;
  const int copy = fcntl(fd, F_DUPFD_CLOEXEC, kLowestFd);
  if (copy < 0) return fd;
  (void)close(fd);
  return copy;
}

bool add(int fd, std::uint64_t name) {
  epoll_event event{};
  event.data.u64 = name;
  return epoll_ctl(followers, EPOLL_CTL_ADD, fd, &event) == 0;
}

bool start() {
  if (followers >= 0) return true;
  followers = high(epoll_create1(EPOLL_CLOEXEC));
  witness = high(eventfd(0, EFD_CLOEXEC));
  if (followers >= 0 && witness >= 0 && add(witness, kWitness)) return true;
  lost = true;
  return false;
}

// One entry: "tfd:        5 events:       19 data: ffffffffffffffff …".
bool next_entry(const char** at, int* fd, std::uint64_t* name) {
  const char* line = std::strstr(*at, "tfd:");
  const char* data = line == nullptr ? nullptr : std::strstr(line, "data:");
  if (data == nullptr) return false;
  *fd = static_cast<int>(std::strtol(line + 4, nullptr, 10));
  *name = std::strtoull(data + 5, nullptr, 16);
  *at = data + 5;
  return true;
}

}  // namespace

OpenDescriptors::OpenDescriptors() {
  const KeepErrno keep;
  char path[64];
  (void)std::snprintf(path, sizeof path, "/proc/self/fdinfo/%d", followers);
  if (lost || followers < 0) return;
  void* memory =
      mmap(nullptr, kMostText, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return;
  text_ = static_cast<char*>(memory);
  const int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return;
  std::size_t length = 0;
  ssize_t got = 0;
  while (length < kMostText - 1 && (got = read(fd, text_ + length, kMostText - 1 - length)) > 0)
    length += static_cast<std::size_t>(got);
  (void)close(fd);
  const bool whole = got == 0 && length < kMostText - 1;
  known_ = true;
  known_ = whole && any(kWitness);
}

OpenDescriptors::~OpenDescriptors() {
  if (text_ != nullptr) (void)munmap(text_, kMostText);
}

bool OpenDescriptors::any(std::uint64_t name) const {
  if (!known_) return true;
  const char* at = text_;
  int fd = -1;
  std::uint64_t each = 0;
  while (next_entry(&at, &fd, &each))
    if (each == name) return true;
  return false;
}

std::uint64_t OpenDescriptors::only_of(int fd) const {
  if (!known_) return 0;
  const char* at = text_;
  int each = -1;
  std::uint64_t name = 0;
  std::uint64_t found = 0;
  // A number may be listed twice: a file that lives on elsewhere had it before.
  while (next_entry(&at, &each, &name))
    if (each == fd) {
      if (found != 0) return 0;
      found = name;
    }
  return found;
}

void follow_descriptor(int fd, std::uint64_t name) {
  const KeepErrno keep;
  const Hold hold(lock);
  if (!start() || !add(fd, name)) lost = true;
}

std::uint64_t followed_name(int fd) {
  const KeepErrno keep;
  const Hold hold(lock);
  if (followers < 0) return 0;
  // The kernel goes by file and number together.
  if (add(fd, 0)) {
    (void)epoll_ctl(followers, EPOLL_CTL_DEL, fd, nullptr);
    return 0;
  }
  if (errno != EEXIST) return 0;
  const OpenDescriptors open;
  return open.only_of(fd);
}

void reset_descriptors() {
  lock = {};
  if (followers >= 0) (void)close(followers);
  if (witness >= 0) (void)close(witness);
  followers = witness = -1;
  lost = false;
}

}  // namespace aliquot::enforce
