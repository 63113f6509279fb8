// A file that is read as it grows: `tail -F`. It may not exist yet, be cut short (what is there
// then is read from its start) or be replaced by another of the same name.
#pragma once

#include <sys/types.h>

#include <string>

#include "sys/fd.hpp"

namespace aliquot::cli {

class FileTail {
 public:
  explicit FileTail(std::string path) : path_(std::move(path)) {}

  [[nodiscard]] const std::string& path() const { return path_; }

  // Appends what is new, less than a MiB at a time; false: nothing is new. `failure` says why the
  // file cannot be read; it stays empty if the file does not exist.
  bool read(std::string& out, std::string& failure);
  // Whether it was ever there.
  [[nodiscard]] bool seen() const { return seen_; }

 private:
  void notice_replacement();

  std::string path_;
  sys::Fd file_;
  off_t offset_ = 0;
  bool seen_ = false;
};

}  // namespace aliquot::cli
