// Amounts as Kubernetes writes them: `8`, `500m`, `1.5Gi`, `2k`, `1e3`.
#pragma once

#include <boost/json/fwd.hpp>
#include <cstdint>
#include <string_view>

#include "base/result.hpp"

namespace aliquot::kube {

// As a whole number of 1/denominator, rounded up as Kubernetes does. Negative ones and those that
// no 64-bit number holds are errors. denominator is 1 or 1,000.
Result<std::int64_t> parse_quantity(std::string_view text, std::int64_t denominator);
// In objects it is a text, or a bare number.
Result<std::int64_t> read_quantity(const boost::json::value& value, std::int64_t denominator);

}  // namespace aliquot::kube
