#include "cli/slurm/task_io.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>

#include <cerrno>
#include <memory>

#include "base/text.hpp"

namespace aliquot::cli {
namespace {

std::set<int> open_files() {
  std::set<int> files;
  const std::unique_ptr<DIR, int (*)(DIR*)> folder(::opendir("/proc/self/fd"), ::closedir);
  if (!folder) return files;
  while (const dirent* entry = ::readdir(folder.get())) {
    const auto number = parse_digits(entry->d_name);
    if (number && *number != ::dirfd(folder.get())) files.insert(static_cast<int>(*number));
  }
  return files;
}

}  // namespace

UsersFiles::UsersFiles() : files_(open_files()) {}

void UsersFiles::keep_only() const {
  for (const int file : open_files()) {
    if (file > STDERR_FILENO && !files_.contains(file)) ::fcntl(file, F_SETFD, FD_CLOEXEC);
  }
}

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
