#include "base/slurm_time.hpp"

#include <array>
#include <cstddef>
#include <cstdint>

#include "base/text.hpp"

namespace aliquot {
namespace {

tl::unexpected<Error> not_a_time(std::string_view text) {
  return fail(Error::Code::invalid_argument,
              "{} is not a time limit: write minutes, H:M:S, D-H:M:S or UNLIMITED", quote(text));
}

}  // namespace

Result<TimeLimit> parse_time_limit(std::string_view text) {
  if (equals_ignoring_case(text, "unlimited") || equals_ignoring_case(text, "infinite") ||
      text == "-1") {
    return kUnlimited;
  }

  // The seconds of each field, by the shape of the text.
  using Units = std::array<std::int64_t, 4>;
  const auto dash = text.find('-');
  std::vector<std::string_view> fields;
  Units units{};
  if (dash != text.npos) {
    fields = split(text.substr(dash + 1), ':');
    fields.insert(fields.begin(), text.substr(0, dash));
    units = {86'400, 3'600, 60, 1};
  } else {
    fields = split(text, ':');
    units = fields.size() == 3 ? Units{3'600, 60, 1} : Units{60, 1};
  }
  if (fields.size() > (dash == text.npos ? 3U : 4U)) return not_a_time(text);

  std::optional<Millis> total(Millis(0));
  for (std::size_t i = 0; i < fields.size(); ++i) {
    if (!is_digits(fields[i])) return not_a_time(text);
    const auto count = parse_digits(fields[i]);
    const auto part = count ? checked_mul(seconds(units[i]), *count) : std::nullopt;
    total = total && part ? checked_add(*total, *part) : std::nullopt;
  }
  if (!total) {
    return fail(Error::Code::out_of_range, "the time limit {} is too long: write UNLIMITED instead",
                quote(text));
  }
  return TimeLimit{*total};
}

std::string format_duration(Millis length, TimeStyle style) {
  if (length < Millis(0)) return "INVALID";
  const auto total = length / seconds(1);
  const auto day = total / 86'400;
  const auto hour = total / 3'600 % 24;
  const auto minute = total / 60 % 60;
  const auto second = total % 60;
  if (day > 0) return fmt::format("{}-{:02}:{:02}:{:02}", day, hour, minute, second);
  if (style == TimeStyle::scontrol) return fmt::format("{:02}:{:02}:{:02}", hour, minute, second);
  if (hour > 0) return fmt::format("{}:{:02}:{:02}", hour, minute, second);
  return fmt::format("{}:{:02}", minute, second);
}

std::string format_time_limit(const TimeLimit& limit, TimeStyle style) {
  if (limit.length) return format_duration(*limit.length, style);
  return style == TimeStyle::sinfo ? "infinite" : "UNLIMITED";
}

}  // namespace aliquot
