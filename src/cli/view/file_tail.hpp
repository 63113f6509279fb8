// A file that is read as it grows: `tail -F`. It may not exist yet, be cut short (what is there
// then is read from its start) or be replaced by another of the same name.
#pragma once

#include <sys/types.h>

#include <string>

namespace aliquot::cli {

class FileTail {
 public:
  explicit FileTail(std::string path) : path_(std::move(path)) {}
  FileTail(const FileTail&) = delete;
  FileTail& operator=(const FileTail&) = delete;
  ~FileTail();

  [[nodiscard]] const std::string& path() const { return path_; }

  // Appends what is new, up to a good part of a MiB; false: nothing is. `failure` says why it
  // cannot be read, unless it is merely not there.
  bool read(std::string& out, std::string& failure);
  // Whether it was ever there.
  [[nodiscard]] bool seen() const { return seen_; }

 private:
  void close();
  void notice_replacement();

  std::string path_;
  int file_ = -1;
  off_t offset_ = 0;
  bool seen_ = false;
};

}  // namespace aliquot::cli
