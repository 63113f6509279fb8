// What every fuzzer of a parser needs: the input as text, and the promise every refusal keeps.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "base/result.hpp"

namespace aliquot::fuzz {

inline std::string_view as_text(const std::uint8_t* data, std::size_t size) {
  return {reinterpret_cast<const char*>(data), size};
}

inline void require(bool holds) {
  if (!holds) std::abort();
}

// A refusal says something, on one line.
template <class T>
void require_one_line(const Result<T>& result) {
  if (result.has_value()) return;
  const auto& message = result.error().message;
  require(!message.empty() && message.find('\n') == message.npos);
}

}  // namespace aliquot::fuzz
