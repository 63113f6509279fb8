// Parts of a GPU's compute as people write them: percent, with at most two decimals, which is
// exactly Compute's grain.
#pragma once

#include <string>
#include <string_view>

#include "base/result.hpp"
#include "base/units.hpp"

namespace aliquot {

// `25%`, `25`, `0.5%`, `12.34%`: more than 0 and at most 100.
Result<Compute> parse_percent(std::string_view text);

// `25%`, `0.5%`, `12.34%`; also above 100 % and below 0, for sums. parse_percent reads back what it
// allows.
std::string format_percent(Compute compute);

}  // namespace aliquot
