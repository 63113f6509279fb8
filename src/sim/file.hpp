// Whole files as text, with refusals that say in one line what is wrong with which file.
#pragma once

#include <string>
#include <string_view>

#include "base/result.hpp"

namespace aliquot::sim {

// At most 1 GiB: what is larger is no trace. Pipes and `/dev/stdin` are fine.
Result<std::string> read_file(const std::string& path);

// Replaces what was there.
Result<void> write_file(const std::string& path, std::string_view text);

}  // namespace aliquot::sim
