// Folders that are ours: made with the mode they are to have, refused where somebody else could
// have made them, and locked where only one daemon may use them.
#pragma once

#include <sys/types.h>

#include <filesystem>

#include "base/result.hpp"
#include "node/process.hpp"

namespace aliquot::node {

// With the folders above it, where they are missing. One that is there gets the mode.
Result<void> make_own_folder(const std::filesystem::path& path, mode_t mode);

// For one daemon at a time. The lock goes with the process, however it ends.
Result<Fd> lock_folder(const std::filesystem::path& folder);

}  // namespace aliquot::node
