// Job arrays: which elements, and how many of them at once. `0-15:4%2,20` in, `1-6%2` out.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"

namespace aliquot::core {

struct ArraySpec {
  std::vector<std::int64_t> tasks;  // ascending, each once
  std::int64_t limit = 0;           // at once; 0: as many as fit

  friend bool operator==(const ArraySpec&, const ArraySpec&) = default;
};

inline constexpr std::int64_t kMaxArrayTask = 4'000'000;
inline constexpr std::size_t kMaxArraySize = 100'000;

// At least one element; at most kMaxArraySize, numbered up to kMaxArrayTask. The limit may stand
// behind any part, the last one counts.
Result<ArraySpec> parse_array(std::string_view text);

// As Slurm shows it: runs as `1-6`, one even stride of more than five as `0-20:4`, then `%limit`.
// parse_array reads it back. Empty for no elements.
std::string format_array(const ArraySpec& array);

}  // namespace aliquot::core
