// Folders that are ours: made with the mode they are to have, refused where somebody else could
// have made them, and locked where only one daemon may use them.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <string_view>
#include <utility>

#include "base/result.hpp"
#include "sys/fd.hpp"

namespace aliquot::sys {

// With the folders above it, where they are missing. One that is there gets the mode.
Result<void> make_own_folder(const std::filesystem::path& path, mode_t mode);

// One that is there keeps its mode, and is refused where others could write to it.
Result<void> make_safe_folder(const std::filesystem::path& path, mode_t mode);

// A new folder where temporary files go, removed with all that is in it.
class TemporaryFolder {
 public:
  // NAME-XXXXXX.
  static Result<TemporaryFolder> create(std::string_view name);
  TemporaryFolder(TemporaryFolder&& other) noexcept : path_(std::exchange(other.path_, {})) {}
  TemporaryFolder& operator=(TemporaryFolder&&) = delete;
  ~TemporaryFolder();
  [[nodiscard]] const std::filesystem::path& path() const { return path_; }

 private:
  explicit TemporaryFolder(std::filesystem::path path) : path_(std::move(path)) {}

  std::filesystem::path path_;
};

// For one daemon at a time. The lock goes with the process, however it ends.
Result<Fd> lock_folder(const std::filesystem::path& folder);

}  // namespace aliquot::sys
