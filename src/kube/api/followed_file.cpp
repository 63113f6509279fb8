#include "kube/api/followed_file.hpp"

#include "sys/file.hpp"

namespace aliquot::kube {

Result<std::string> read_followed(const std::filesystem::path& path, std::size_t limit) {
  std::error_code error;
  const auto real = std::filesystem::canonical(path, error);
  if (error) return sys::system_error(error.value(), "cannot read", path);
  return sys::read_whole(real, limit);
}

Result<std::string> FollowedFile::text() {
  struct stat now {};
  const bool there = ::stat(path_.c_str(), &now) == 0;
  const bool same = there && known_ && now.st_dev == seen_.st_dev && now.st_ino == seen_.st_ino &&
                    now.st_size == seen_.st_size && now.st_mtim.tv_sec == seen_.st_mtim.tv_sec &&
                    now.st_mtim.tv_nsec == seen_.st_mtim.tv_nsec;
  if (same) return text_;
  auto text = read_followed(path_, limit_);
  if (text) {
    known_ = there;
    seen_ = now;
    has_text_ = true;
    text_ = *text;
    return text;
  }
  if (has_text_) return text_;
  return text;
}

}  // namespace aliquot::kube
