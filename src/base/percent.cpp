#include "base/percent.hpp"

#include <cstdint>

#include "base/text.hpp"

namespace aliquot {
namespace {

constexpr std::int64_t kPerPercent = kWholeGpu.value() / 100;

}  // namespace

Result<Compute> parse_percent(std::string_view text) {
  auto number = text;
  if (number.ends_with('%')) number.remove_suffix(1);
  const bool negative = number.starts_with('-');
  if (negative) number.remove_prefix(1);

  const auto dot = number.find('.');
  const auto decimals = dot == number.npos ? "0" : number.substr(dot + 1);
  if (!is_digits(number.substr(0, dot)) || !is_digits(decimals)) {
    return fail(Error::Code::invalid_argument,
                "{} is not a percentage: write a number such as 25% or 12.5%", quote(text));
  }
  if (decimals.size() > 2) {
    return fail(Error::Code::invalid_argument,
                "{} is finer than a hundredth of a percent: write at most two decimals",
                quote(text));
  }
  const auto value = parse_decimal(number, kPerPercent);
  if (negative || value == 0) {
    return fail(Error::Code::invalid_argument,
                "{} of a GPU is nothing: write more than 0 and at most 100%", quote(text));
  }
  if (!value || *value > kWholeGpu.value()) {
    return fail(Error::Code::invalid_argument,
                "{} is more than one GPU: write at most 100%, or ask for several GPUs",
                quote(text));
  }
  return Compute(*value);
}

std::string format_percent(Compute compute) {
  // Through the magnitude as unsigned: the smallest integer has no positive counterpart.
  const auto value = compute.value();
  const auto magnitude = value < 0 ? std::uint64_t{0} - static_cast<std::uint64_t>(value)
                                   : static_cast<std::uint64_t>(value);
  auto text = fmt::format("{}{}.{:02}", value < 0 ? "-" : "", magnitude / kPerPercent,
                          magnitude % kPerPercent);
  while (text.back() == '0') text.pop_back();
  if (text.back() == '.') text.pop_back();
  return text + '%';
}

}  // namespace aliquot
