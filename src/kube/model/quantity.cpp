#include "kube/model/quantity.hpp"

#include <array>
#include <boost/json.hpp>
#include <limits>
#include <optional>

#include "base/text.hpp"

namespace aliquot::kube {
namespace {

__extension__ using Wide = unsigned __int128;
constexpr Wide kMost = static_cast<Wide>(std::numeric_limits<std::int64_t>::max());
// Beyond this nothing that is written matters any more: products with it still fit into Wide.
constexpr Wide kPlenty = kMost * 1'000'000;

struct Suffix {
  std::string_view text;
  int binary = 0;   // a power of 1,024
  int decimal = 0;  // a power of ten
};
constexpr std::array kSuffixes = {
    Suffix{"Ki", 1},    Suffix{"Mi", 2},    Suffix{"Gi", 3},    Suffix{"Ti", 4},
    Suffix{"Pi", 5},    Suffix{"Ei", 6},    Suffix{"n", 0, -9}, Suffix{"u", 0, -6},
    Suffix{"m", 0, -3}, Suffix{"", 0, 0},   Suffix{"k", 0, 3},  Suffix{"M", 0, 6},
    Suffix{"G", 0, 9},  Suffix{"T", 0, 12}, Suffix{"P", 0, 15}, Suffix{"E", 0, 18},
};

std::optional<Suffix> read_suffix(std::string_view text) {
  for (const Suffix& suffix : kSuffixes) {
    if (suffix.text == text) return suffix;
  }
  if (text.size() < 2 || (text[0] != 'e' && text[0] != 'E')) return std::nullopt;
  text.remove_prefix(1);
  const bool negative = text[0] == '-';
  if (negative || text[0] == '+') text.remove_prefix(1);
  const auto power = parse_digits(text);
  if (!power) return std::nullopt;
  const int limited = static_cast<int>(std::min<std::int64_t>(*power, 60));
  return Suffix{"", 0, negative ? -limited : limited};
}

}  // namespace

Result<std::int64_t> parse_quantity(std::string_view text, std::int64_t denominator) {
  const auto wrong = [&](std::string_view why) {
    return fail(Error::Code::invalid_argument, "{} is no amount: {}", quote(text), why);
  };
  std::string_view rest = text;
  if (rest.starts_with('-')) return wrong("it is negative");
  if (rest.starts_with('+')) rest.remove_prefix(1);
  Wide number = 0;
  int decimals = 0;
  bool digits = false;
  bool point = false;
  bool lost = false;  // decimals too small to keep: they round up
  while (!rest.empty()) {
    const char letter = rest.front();
    if (letter == '.' && !point) {
      point = true;
    } else if (letter >= '0' && letter <= '9') {
      digits = true;
      const auto digit = static_cast<unsigned>(letter - '0');
      if (point && decimals >= 18) {
        lost = lost || digit != 0;
      } else {
        number = number * 10 + digit;
        if (point) ++decimals;
        if (number > kPlenty) return wrong("it is too large");
      }
    } else {
      break;
    }
    rest.remove_prefix(1);
  }
  const auto suffix = read_suffix(rest);
  if (!digits || !suffix) return wrong("write it like 8, 500m or 2Gi");

  int power = suffix->decimal - decimals;
  if (denominator == 1'000) power += 3;
  if (lost) ++number;
  for (int i = 0; i < suffix->binary; ++i) {
    if (number > kPlenty) return wrong("it is too large");
    number *= 1024;
  }
  for (; power > 0; --power) {
    if (number > kPlenty) return wrong("it is too large");
    number *= 10;
  }
  bool rest_left = false;
  for (; power < 0; ++power) {
    rest_left = rest_left || number % 10 != 0;
    number /= 10;
  }
  if (rest_left) ++number;
  if (number > kMost) return wrong("it is too large");
  return static_cast<std::int64_t>(number);
}

Result<std::int64_t> read_quantity(const boost::json::value& value, std::int64_t denominator) {
  if (const auto* text = value.if_string()) {
    return parse_quantity({text->data(), text->size()}, denominator);
  }
  if (!value.is_number()) return fail(Error::Code::invalid_argument, "an amount is no number");
  const std::string text = boost::json::serialize(value);
  return parse_quantity(text, denominator);
}

}  // namespace aliquot::kube
