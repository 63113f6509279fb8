#include "base/text.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <iterator>
#include <limits>

namespace aliquot {
namespace {

constexpr char lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

}  // namespace

bool is_digits(std::string_view text) {
  return !text.empty() && text.find_first_not_of("0123456789") == text.npos;
}

std::optional<std::int64_t> parse_digits(std::string_view text) {
  if (!is_digits(text)) return std::nullopt;
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{}) return std::nullopt;
  return value;
}

std::optional<std::int64_t> parse_decimal(std::string_view text, std::int64_t denominator) {
  constexpr std::size_t kMaxDecimals = 9;
  const auto dot = text.find('.');
  const auto decimals = dot == text.npos ? "0" : text.substr(dot + 1);
  const auto whole = parse_digits(text.substr(0, dot));
  const auto fraction = parse_digits(decimals);
  if (!whole || !fraction || decimals.size() > kMaxDecimals) return std::nullopt;

  std::int64_t ten_power = 1;
  for (std::size_t i = 0; i < decimals.size(); ++i) ten_power *= 10;
  __extension__ using Wide = __int128;
  const auto part = static_cast<Wide>(*fraction) * denominator / ten_power;
  const auto value = static_cast<Wide>(*whole) * denominator + part;
  if (value > std::numeric_limits<std::int64_t>::max()) return std::nullopt;
  return static_cast<std::int64_t>(value);
}

int hex_value(char digit) {
  if (digit >= '0' && digit <= '9') return digit - '0';
  if (digit >= 'a' && digit <= 'f') return digit - 'a' + 10;
  if (digit >= 'A' && digit <= 'F') return digit - 'A' + 10;
  return -1;
}

std::string to_lower(std::string_view text) {
  std::string result(text);
  std::transform(result.begin(), result.end(), result.begin(), lower);
  return result;
}

bool equals_ignoring_case(std::string_view a, std::string_view b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](char x, char y) { return lower(x) == lower(y); });
}

std::vector<std::string_view> split_outside_brackets(std::string_view text,
                                                     std::string_view brackets) {
  std::vector<std::string_view> parts;
  std::size_t start = 0;
  int depth = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (const auto which = brackets.find(text[i]); which != brackets.npos) {
      depth += which % 2 == 0 ? 1 : -1;
    }
    if (text[i] == ',' && depth == 0) {
      parts.push_back(text.substr(start, i - start));
      start = i + 1;
    }
  }
  parts.push_back(text.substr(start));
  return parts;
}

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  while (true) {
    const auto end = text.find(separator);
    parts.push_back(text.substr(0, end));
    if (end == std::string_view::npos) return parts;
    text.remove_prefix(end + 1);
  }
}

namespace {

// How long the character at the start is; 0 where it is none of UTF-8, or would steer a terminal.
std::size_t plain_character(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char first = byte(0);
  if (first < 0x20 || first == 0x7f) return 0;
  if (first < 0x80) return 1;
  const std::size_t more = first >= 0xf0 ? 3 : first >= 0xe0 ? 2 : 1;
  if (first < 0xc2 || first > 0xf4 || text.size() <= more) return 0;
  std::uint32_t point = first & (0x3fU >> more);
  for (std::size_t k = 1; k <= more; ++k) {
    if ((byte(k) & 0xc0U) != 0x80) return 0;
    point = point << 6U | (byte(k) & 0x3fU);
  }
  const bool overlong = point < (more == 3 ? 0x10000U : more == 2 ? 0x800U : 0x80U);
  const bool surrogate = point >= 0xd800 && point <= 0xdfff;
  return overlong || surrogate || point > 0x10ffff || point < 0xa0 ? 0 : more + 1;
}

}  // namespace

std::string quote(std::string_view text) {
  constexpr std::size_t kMaxShown = 60;
  auto shown = text.substr(0, kMaxShown);
  if (shown.size() < text.size()) {
    // Not in the middle of a UTF-8 character.
    while (!shown.empty() && (static_cast<unsigned char>(text[shown.size()]) & 0xC0U) == 0x80U) {
      shown.remove_suffix(1);
    }
  }
  return "'" + make_plain(shown) + (shown.size() < text.size() ? "…'" : "'");
}

bool is_plain_line(std::string_view text) {
  while (!text.empty()) {
    const std::size_t size = plain_character(text);
    if (size == 0) return false;
    text.remove_prefix(size);
  }
  return true;
}

bool steers_terminal(std::string_view text) {
  while (!text.empty()) {
    const std::size_t size = plain_character(text);
    const auto byte = static_cast<unsigned char>(text[0]);
    // A stray byte of the second set is one on terminals that do not speak UTF-8; one that UTF-8
    // spells in two bytes has it as its second.
    if (size == 0 && (byte < 0x20 || byte == 0x7f || (byte >= 0x80 && byte < 0xa0))) return true;
    text.remove_prefix(std::max<std::size_t>(size, 1));
  }
  return false;
}

namespace {

// What is no plain character is written by its number, unless it is one of `kept`.
std::string written_plain(std::string_view text, std::string_view kept) {
  std::string result;
  result.reserve(text.size());
  while (!text.empty()) {
    const std::size_t size = plain_character(text);
    if (size == 0 && kept.find(text[0]) != std::string_view::npos) {
      result += text[0];
    } else if (size == 0) {
      const auto byte = static_cast<unsigned char>(text[0]);
      fmt::format_to(std::back_inserter(result), "\\x{:02x}", byte);
    } else {
      result += text.substr(0, size);
    }
    text.remove_prefix(std::max<std::size_t>(size, 1));
  }
  return result;
}

}  // namespace

std::string make_plain(std::string_view text) { return written_plain(text, ""); }

std::string make_text(std::string_view text) { return written_plain(text, "\n\t\r"); }

}  // namespace aliquot
