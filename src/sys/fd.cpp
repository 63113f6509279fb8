#include "sys/fd.hpp"

#include <poll.h>
#include <sys/syscall.h>

#include <algorithm>
#include <array>
#include <cerrno>

namespace aliquot::sys {

std::optional<std::string> read_all(int fd, std::size_t limit) {
  std::string text;
  std::array<char, 4096> buffer;  // NOLINT: written before it is read
  while (true) {
    const ssize_t n = ::read(fd, buffer.data(), buffer.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return std::nullopt;
    if (n == 0) return text;
    text.append(buffer.data(), static_cast<std::size_t>(n));
    if (text.size() > limit) {
      errno = EFBIG;
      return std::nullopt;
    }
  }
}

bool write_all(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t n = ::write(fd, text.data(), text.size());
    if (n >= 0) {
      text.remove_prefix(static_cast<std::size_t>(n));
    } else if (errno == EAGAIN) {
      pollfd ready{fd, POLLOUT, 0};
      ::poll(&ready, 1, -1);
    } else if (errno != EINTR) {
      return false;
    }
  }
  return true;
}

void close_others(int* kept, std::size_t count) {
  std::sort(kept, kept + count);
  int from = STDERR_FILENO + 1;
  for (std::size_t i = 0; i < count; ++i) {
    if (kept[i] < from) continue;
    if (kept[i] > from) ::syscall(SYS_close_range, from, kept[i] - 1, 0);
    from = kept[i] + 1;
  }
  ::syscall(SYS_close_range, from, ~0U, 0);
}

}  // namespace aliquot::sys
