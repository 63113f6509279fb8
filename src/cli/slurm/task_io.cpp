#include "cli/slurm/task_io.hpp"

#include <fcntl.h>
#include <poll.h>

#include <cerrno>

namespace aliquot::cli {

Pipe make_pipe() {
  int ends[2] = {-1, -1};
  if (::pipe2(ends, O_CLOEXEC) != 0) return {};
  return {File(ends[0]), File(ends[1])};
}

void write_all(int file, std::string_view text) {
  while (!text.empty()) {
    const auto wrote = ::write(file, text.data(), text.size());
    if (wrote < 0) {
      if (errno == EINTR) continue;
      if (errno != EAGAIN) return;
      pollfd ready{file, POLLOUT, 0};
      ::poll(&ready, 1, -1);
      continue;
    }
    text.remove_prefix(static_cast<std::size_t>(wrote));
  }
}

RawTerminal::RawTerminal(bool wanted) {
  if (!wanted || ::tcgetattr(STDIN_FILENO, &before_) != 0) return;
  termios raw = before_;
  ::cfmakeraw(&raw);
  changed_ = ::tcsetattr(STDIN_FILENO, TCSANOW, &raw) == 0;
}

RawTerminal::~RawTerminal() {
  if (changed_) ::tcsetattr(STDIN_FILENO, TCSANOW, &before_);
}

}  // namespace aliquot::cli
