#include "cli/sim/arguments.hpp"

#include "base/text.hpp"

namespace aliquot::cli {

Result<std::int64_t> parse_count(std::string_view option, std::string_view text, std::int64_t least,
                                 std::int64_t most) {
  const auto number = parse_digits(text);
  if (number && *number >= least && *number <= most) return *number;
  return fail(Error::Code::invalid_argument, "{} {}: must be a whole number from {} to {}", option,
              quote(text), least, most);
}

Result<std::int64_t> parse_part(std::string_view option, std::string_view text) {
  auto digits = text;
  if (!digits.empty() && digits.back() == '%') digits.remove_suffix(1);
  const auto part = parse_decimal(digits, 10);
  if (part && *part <= 1'000) return *part;
  return fail(Error::Code::invalid_argument, "{} {}: must be a percentage from 0% to 100%", option,
              quote(text));
}

Result<Compute> parse_factor(std::string_view option, std::string_view text) {
  const auto factor = parse_decimal(text, kWholeGpu.value());
  if (factor && Compute(*factor) >= kWholeGpu && Compute(*factor) <= 100 * kWholeGpu) {
    return Compute(*factor);
  }
  return fail(Error::Code::invalid_argument, "{} {}: must be a factor from 1 to 100, as in 1.13",
              option, quote(text));
}

}  // namespace aliquot::cli
