// What jobs usually look like here: request kinds with their frequencies, from history or from a
// trace. fgd and aliquot judge a rest of a GPU by who could still use it.
#pragma once

#include <vector>

#include "core/request.hpp"

namespace aliquot::core {

struct ProfileEntry {
  Request request;
  double weight = 0;  // any positive scale
};

using Profile = std::vector<ProfileEntry>;

// For a machine without history: whole GPUs, halves, quarters, eighths, and some larger jobs.
Profile generic_profile();

}  // namespace aliquot::core
