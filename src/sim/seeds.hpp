// Lists of seeds as users write them.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "base/result.hpp"

namespace aliquot::sim {

// `42-51`, `7`, `1,3,5`, `1-3,9`: at most 10,000 of them, each once.
Result<std::vector<std::uint64_t>> parse_seeds(std::string_view text);

}  // namespace aliquot::sim
