// `1 node`, `2 nodes`: a number with what it counts.
#pragma once

#include <fmt/format.h>

#include <string>
#include <string_view>

namespace aliquot {

// `one` is the word for one of them; of more it takes an s.
template <class Number>
std::string counted(Number number, std::string_view one) {
  return fmt::format("{} {}{}", number, one, number == Number(1) ? "" : "s");
}

}  // namespace aliquot
