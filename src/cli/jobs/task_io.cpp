#include "cli/jobs/task_io.hpp"

#include <dirent.h>
#include <fcntl.h>

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

RawTerminal::RawTerminal(bool wanted) {
  if (!wanted || ::tcgetattr(STDIN_FILENO, &before_) != 0) return;
  raw_ = before_;
  ::cfmakeraw(&raw_);
  changed_ = ::tcsetattr(STDIN_FILENO, TCSANOW, &raw_) == 0;
}

RawTerminal::~RawTerminal() { put_back(); }

void RawTerminal::put_back() const {
  if (changed_) ::tcsetattr(STDIN_FILENO, TCSANOW, &before_);
}

}  // namespace aliquot::cli
