// Files that containers get to see come from the host, and we may be in a container ourselves: so
// they are copied to where the host has them, under a name that follows from what is in them. One
// of an older version stays for the containers that have it.
#pragma once

#include <filesystem>
#include <string>

#include "base/result.hpp"

namespace aliquot::kube {

// The folder into/DIGEST, with a copy of the file and, beside it, a file with this text.
Result<std::filesystem::path> install_file(const std::filesystem::path& file,
                                           const std::string& beside, const std::string& text,
                                           const std::filesystem::path& into);
// The same with all files of a folder.
Result<std::filesystem::path> install_folder(const std::filesystem::path& folder,
                                             const std::filesystem::path& into);

}  // namespace aliquot::kube
