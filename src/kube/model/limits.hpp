// What is larger than any machine: such amounts are refused or cut, so that sums of what pods and
// nodes say always fit into 64 bits, for 65,536 pods on a node.
#pragma once

#include "base/units.hpp"

namespace aliquot::kube {

inline constexpr Bytes kMostMemory{std::int64_t{1} << 46U};
inline constexpr CpuMilli kMostCpus{std::int64_t{1} << 36U};

}  // namespace aliquot::kube
