// A policy for one machine, around any other: a share goes beside other shares, and opens a free
// GPU only where no GPU in use has room for it. Among those it is left with, the other one chooses,
// by what places of the empty machine are worth: so a choice depends on how the machine is and not
// on how it came to be so, and what is foretold of it is what happens.
#pragma once

#include <memory>

#include "core/policy.hpp"

namespace aliquot::core {

std::unique_ptr<Policy> used_first(std::unique_ptr<Policy> inner);

}  // namespace aliquot::core
