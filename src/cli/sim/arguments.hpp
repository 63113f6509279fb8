// Values of options, read with messages that name the option.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/result.hpp"
#include "base/units.hpp"

namespace aliquot::cli {

Result<std::int64_t> parse_count(std::string_view option, std::string_view text, std::int64_t least,
                                 std::int64_t most);

// `12%`, `12`, `12.5 %` as per mille, from 0 to 1,000.
Result<std::int64_t> parse_part(std::string_view option, std::string_view text);

// `1.13` as compute per GPU: from 1 to 100 times.
Result<Compute> parse_factor(std::string_view option, std::string_view text);

}  // namespace aliquot::cli
