#include "sim/seeds.hpp"

#include <algorithm>

#include "base/text.hpp"

namespace aliquot::sim {

Result<std::vector<std::uint64_t>> parse_seeds(std::string_view text) {
  constexpr std::size_t kMost = 10'000;
  std::vector<std::uint64_t> seeds;
  for (const auto part : split(text, ',')) {
    const auto dash = part.find('-');
    const auto first = parse_digits(part.substr(0, dash));
    const auto last = dash == part.npos ? first : parse_digits(part.substr(dash + 1));
    if (!first || !last) {
      return fail(Error::Code::invalid_argument, "bad seeds {}: write 42-51, 7 or 1,3,5",
                  quote(text));
    }
    if (*last < *first) {
      return fail(Error::Code::invalid_argument, "bad seeds {}: {} is less than {}", quote(text),
                  *last, *first);
    }
    // In this order, so that nothing overflows.
    if (static_cast<std::uint64_t>(*last - *first) >= kMost - seeds.size()) {
      return fail(Error::Code::invalid_argument, "bad seeds {}: more than {}", quote(text), kMost);
    }
    for (std::int64_t i = 0; i <= *last - *first; ++i) {
      seeds.push_back(static_cast<std::uint64_t>(*first + i));
    }
  }
  auto sorted = seeds;
  std::sort(sorted.begin(), sorted.end());
  const auto twice = std::adjacent_find(sorted.begin(), sorted.end());
  if (twice != sorted.end()) {
    return fail(Error::Code::invalid_argument, "bad seeds {}: {} is there twice", quote(text),
                *twice);
  }
  return seeds;
}

}  // namespace aliquot::sim
