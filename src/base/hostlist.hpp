// Slurm's lists of host names: `n[01-03,7],login` stands for n01, n02, n03, n7, login. Parsing,
// and folding names back.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"

namespace aliquot {

// In the order written, repeated names included. Refused beyond 65,536 hosts.
Result<std::vector<std::string>> expand_hostlist(std::string_view text);

// Neighbours with a common prefix and consecutive numbers are folded: `n[01-03,07],login`.
std::string fold_hostlist(const std::vector<std::string>& hosts);

}  // namespace aliquot
