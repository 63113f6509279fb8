// A descriptor that closes itself, and processes held by one.
#pragma once

#include <poll.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

namespace aliquot::gpu {

class OwnFd {
 public:
  explicit OwnFd(int fd = -1) : fd_(fd) {}
  OwnFd(OwnFd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  OwnFd& operator=(OwnFd&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~OwnFd() {
    if (fd_ >= 0) close(fd_);
  }
  [[nodiscard]] int get() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }

 private:
  int fd_;
};

inline OwnFd open_pid(pid_t pid) {
  return OwnFd(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
}

// Whether it ended within the time.
inline bool ended(const OwnFd& process, int patience_ms) {
  pollfd wanted{process.get(), POLLIN, 0};
  int ready = 0;
  do {
    ready = poll(&wanted, 1, patience_ms);
  } while (ready < 0 && errno == EINTR);
  return ready > 0;
}

}  // namespace aliquot::gpu
