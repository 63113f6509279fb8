#include "base/size.hpp"

#include <array>
#include <cstdint>

#include "base/text.hpp"

namespace aliquot {
namespace {

struct Unit {
  char letter;
  std::int64_t bytes;
};
constexpr std::array kUnits{Unit{'t', std::int64_t{1} << 40}, Unit{'g', std::int64_t{1} << 30},
                            Unit{'m', std::int64_t{1} << 20}, Unit{'k', std::int64_t{1} << 10}};

// The bytes of `k`, `kb`, `kib`, …, `b` or nothing at all (MiB); 0 for any other suffix.
std::int64_t bytes_of_suffix(std::string_view suffix) {
  if (suffix.empty()) return mib(1).value();
  if (suffix == "b") return 1;
  for (const auto& unit : kUnits) {
    const auto rest = suffix.substr(1);
    if (suffix[0] == unit.letter && (rest.empty() || rest == "b" || rest == "ib")) {
      return unit.bytes;
    }
  }
  return 0;
}

}  // namespace

Result<Bytes> parse_size(std::string_view text) {
  const auto number = text.substr(0, text.find_first_not_of("0123456789."));
  const auto unit = bytes_of_suffix(to_lower(text.substr(number.size())));
  const auto dot = number.find('.');
  const bool has_decimals = dot != number.npos;
  if (unit == 0 || !is_digits(number.substr(0, dot)) ||
      (has_decimals && (unit == 1 || !is_digits(number.substr(dot + 1))))) {
    return fail(Error::Code::invalid_argument,
                "{} is not a memory size: write a number with K, M, G or T, such as 8G or 512M",
                quote(text));
  }
  const auto bytes = parse_decimal(number, unit);
  if (!bytes) {
    return fail(Error::Code::out_of_range,
                "the memory size {} cannot be held: write at most 8388607T and nine decimals",
                quote(text));
  }
  return Bytes(*bytes);
}

std::string format_size(Bytes size) {
  if (size == Bytes(0)) return "0";
  for (const auto& unit : kUnits) {
    if (size.value() % unit.bytes == 0) {
      return fmt::format("{}{}", size.value() / unit.bytes,
                         static_cast<char>(unit.letter - 'a' + 'A'));
    }
  }
  return fmt::format("{}B", size);
}

}  // namespace aliquot
