// Descriptors: the one owner of them, pipes, and reading and writing to the end. Fd and make_pipe()
// need libc alone, so that Slurm's plugins can have them too.
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace aliquot::sys {

// A descriptor that closes itself.
class Fd {
 public:
  Fd() = default;
  explicit Fd(int fd) : fd_(fd) {}
  Fd(Fd&& other) noexcept : fd_(other.release()) {}
  Fd& operator=(Fd&& other) noexcept {
    if (this != &other) reset(other.release());
    return *this;
  }
  ~Fd() { reset(); }
  [[nodiscard]] int get() const { return fd_; }
  [[nodiscard]] int release() { return std::exchange(fd_, -1); }
  void reset(int fd = -1) {
    if (fd_ >= 0) ::close(fd_);
    fd_ = fd;
  }
  explicit operator bool() const { return fd_ >= 0; }

 private:
  int fd_ = -1;
};

// Both ends close with exec.
struct Pipe {
  Fd read;
  Fd write;
  explicit operator bool() const { return static_cast<bool>(read); }
};
// Closed ends where there is none to be had: errno says why.
inline Pipe make_pipe() {
  int ends[2] = {-1, -1};
  if (::pipe2(ends, O_CLOEXEC) != 0) return {};
  return {Fd(ends[0]), Fd(ends[1])};
}

// All that is left in it. Nothing: errno says why; EFBIG where it is more than limit.
std::optional<std::string> read_all(int fd, std::size_t limit = SIZE_MAX);

// Waits where the other side takes its time. False: errno says why. System calls only.
bool write_all(int fd, std::string_view text);

// What a child keeps open of its parent's, between fork and exec. A child that is slow or hangs
// there would hold everything else of the daemon's: its lock, its connections, and the script of
// another job that is being written, which then cannot be executed ("Text file busy").
//
// Closes all but 0, 1, 2 and these, which it sorts (negative ones are nobody). System calls only.
void close_others(int* kept, std::size_t count);

}  // namespace aliquot::sys
