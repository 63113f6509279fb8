#include "cli/view/file_tail.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <vector>

namespace aliquot::cli {

void FileTail::notice_replacement() {
  struct stat open {};
  struct stat named {};
  if (::fstat(file_.get(), &open) != 0) return;
  if (open.st_size < offset_) offset_ = 0;  // cut short
  // Only once everything of the old one has been read.
  if (offset_ >= open.st_size && ::stat(path_.c_str(), &named) == 0 &&
      (named.st_ino != open.st_ino || named.st_dev != open.st_dev)) {
    file_.reset();
    offset_ = 0;
  }
}

bool FileTail::read(std::string& out, std::string& failure) {
  if (file_) notice_replacement();
  if (!file_) {
    // A pipe in its place must not make us wait.
    file_.reset(::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
    if (!file_) {
      if (errno != ENOENT) failure = std::strerror(errno);
      return false;
    }
    seen_ = true;
  }
  std::vector<char> buffer(std::size_t{256} * 1024);
  const auto count = ::pread(file_.get(), buffer.data(), buffer.size(), offset_);
  if (count < 0) {
    if (errno != EAGAIN && errno != EINTR) failure = std::strerror(errno);
    return false;
  }
  offset_ += count;
  out.append(buffer.data(), static_cast<std::size_t>(count));
  return count > 0;
}

}  // namespace aliquot::cli
