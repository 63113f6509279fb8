// Files that are there whole or not at all.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <filesystem>
#include <string>
#include <string_view>

#include "base/ids.hpp"
#include "base/result.hpp"

namespace aliquot::sys {

// Made anew under a temporary name, synced, renamed, and the folder synced. durable false leaves
// out the syncs: whole for whoever reads, but perhaps gone after a power cut.
Result<void> write_whole(const std::filesystem::path& path, std::string_view text, mode_t mode,
                         bool durable);

// not_found if there is none. A symbolic link is not followed.
Result<std::string> read_whole(const std::filesystem::path& path, std::size_t limit = 64UL << 20U);

// For this user to read and run besides its owner, and for nobody else, though it stays the owner's
// to change: by an access control list. unsupported where the file system has none.
Result<void> let_run(const std::filesystem::path& path, Uid user);

// errno as a word of Error; message "what path: reason".
tl::unexpected<Error> system_error(int error, std::string_view what,
                                   const std::filesystem::path& path);

}  // namespace aliquot::sys
