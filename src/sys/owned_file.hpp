// A file that root makes for somebody else, there whole or not at all: it belongs to him before it
// has its name, so that nobody who may write to its folder has another file given away instead.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <string_view>

#include "base/result.hpp"

namespace aliquot::sys {

struct FileOwner {
  uid_t user;
  gid_t group;
  friend bool operator==(const FileOwner&, const FileOwner&) = default;
};

// As write_whole() of sys/file.hpp, and synced.
Result<void> write_owned(const std::filesystem::path& path, std::string_view text, mode_t mode,
                         const FileOwner& owner);

// Whether it is a plain file with this text, this mode and this owner.
bool is_owned(const std::filesystem::path& path, std::string_view text, mode_t mode,
              const FileOwner& owner);

}  // namespace aliquot::sys
