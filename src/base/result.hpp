// Errors as values. A function that can fail returns Result<T>; TRY hands a failure up to the
// caller. A message is one line: what failed, on what, and what to do about it. Broken invariants
// do not come here: they terminate.
#pragma once

#include <fmt/format.h>

#include <string>
#include <string_view>
#include <tl/expected.hpp>
#include <type_traits>
#include <utility>

#include "base/format_once.hpp"

namespace aliquot {

struct Error {
  enum class Code {
    invalid_argument,   // the caller wrote nonsense
    not_found,          // what it names does not exist
    already_exists,     // what it wants to create is there
    out_of_range,       // a number no type of ours can hold
    permission_denied,  // the caller may not
    failed_state,       // not in this state: releasing twice, starting what runs
    unavailable,        // not now; trying again may help
    unsupported,        // this machine or build cannot
    internal,           // our fault
  };

  Code code = Code::internal;
  std::string message;

  friend bool operator==(const Error&, const Error&) = default;
};

template <class T = void>
using Result = tl::expected<T, Error>;

// `return fail(Error::Code::not_found, "no job {}", id);` from any function that returns a Result.
template <class... Args>
[[nodiscard]] tl::unexpected<Error> fail(Error::Code code, fmt::format_string<Args...> format,
                                         Args&&... args) {
  return tl::unexpected<Error>(Error{code, fmt::format(format, std::forward<Args>(args)...)});
}

namespace detail {

template <class Expected>
auto take_value(Expected&& result) {
  if constexpr (!std::is_void_v<typename std::remove_cvref_t<Expected>::value_type>) {
    return *std::forward<Expected>(result);
  }
}

}  // namespace detail
}  // namespace aliquot

template <>
struct fmt::formatter<aliquot::Error> : fmt::formatter<std::string_view> {
  auto format(const aliquot::Error& error, fmt::format_context& context) const {
    return formatter<std::string_view>::format(error.message, context);
  }
};

// The value of a Result, or return its error from the enclosing function:
//   const Bytes size = TRY(parse_size(text));
//   TRY(ledger.release(job));
// The counter keeps nested uses from shadowing each other.
#define TRY(...) ALIQUOT_TRY_COUNTED(__COUNTER__, __VA_ARGS__)
#define ALIQUOT_TRY_COUNTED(counter, ...) ALIQUOT_TRY_NAMED(counter, __VA_ARGS__)
#define ALIQUOT_TRY_NAMED(counter, ...)                                                \
  __extension__({                                                                      \
    auto&& try_result_##counter = (__VA_ARGS__);                                       \
    if (!try_result_##counter.has_value()) {                                           \
      return ::tl::make_unexpected(                                                    \
          std::forward<decltype(try_result_##counter)>(try_result_##counter).error()); \
    }                                                                                  \
    ::aliquot::detail::take_value(                                                     \
        std::forward<decltype(try_result_##counter)>(try_result_##counter));           \
  })
