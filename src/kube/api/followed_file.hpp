// A file that Kubernetes mounts and replaces under us (a token, a key): a link into a folder that
// is turned to another one. Links are followed, and a change is seen by looking at what is there.
#pragma once

#include <sys/stat.h>

#include <filesystem>
#include <string>
#include <utility>

#include "base/result.hpp"

namespace aliquot::kube {

Result<std::string> read_followed(const std::filesystem::path& path, std::size_t limit);

class FollowedFile {
 public:
  // Nothing is read before the first text().
  explicit FollowedFile(std::string path, std::size_t limit = 1UL << 20U)
      : path_(std::move(path)), limit_(limit) {}

  // As it is now. Where it cannot be read, as it was when it last could; an error if it never
  // could.
  Result<std::string> text();
  // Also where it looks as it did.
  void read_again() { known_ = false; }

 private:
  std::string path_;
  std::size_t limit_;
  bool known_ = false;  // what follows is of the file as it was read
  struct stat seen_ {};
  bool has_text_ = false;
  std::string text_;
};

}  // namespace aliquot::kube
