// The kernel's control files, one value at a time.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "node/cgroup.hpp"

namespace aliquot::node {

Result<void> write_control(const std::string& file, std::string_view value);

// The number behind "key " in the file, or the first line where there is no key.
std::optional<std::int64_t> read_number(const std::string& file, std::string_view key);

// Where a process of a single thread writes "0" to be in the group.
std::vector<std::string> join_files(const GroupPaths& paths);

}  // namespace aliquot::node
