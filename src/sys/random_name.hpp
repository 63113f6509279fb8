// A name that nobody can guess.
#pragma once

#include <fmt/format.h>
#include <sys/random.h>

#include <array>
#include <cstdlib>
#include <string>

namespace aliquot::sys {

// 16 hexadecimal digits.
inline std::string random_name() {
  std::array<unsigned char, 8> bytes{};
  if (::getrandom(bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size())) {
    std::abort();  // a kernel without randomness is not one we run on
  }
  std::string name;
  for (const auto byte : bytes) name += fmt::format("{:02x}", byte);
  return name;
}

}  // namespace aliquot::sys
