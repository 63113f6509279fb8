#include "cli/view/accounting_time.hpp"

#include <time.h>

#include <array>
#include <optional>
#include <string>

#include "base/text.hpp"
#include "base/timestamp.hpp"

namespace aliquot::cli {
namespace {

tl::unexpected<Error> invalid(std::string_view text) {
  return fail(Error::Code::invalid_argument, "Invalid time specification {}", quote(text));
}

std::optional<std::int64_t> unit_seconds(std::string_view unit) {
  struct Unit {
    std::string_view name;
    std::int64_t seconds;
  };
  constexpr auto kUnits = std::to_array<Unit>(
      {{"seconds", 1}, {"minutes", 60}, {"hours", 3'600}, {"days", 86'400}, {"weeks", 604'800}});
  if (unit.empty()) return 1;
  for (const auto& known : kUnits) {
    if (unit.size() <= known.name.size() &&
        equals_ignoring_case(known.name.substr(0, unit.size()), unit)) {
      return known.seconds;
    }
  }
  return std::nullopt;
}

// `-2hours` after `now`.
Result<WallTime> shifted(std::string_view text, std::string_view shift, WallTime now) {
  const bool back = shift.front() == '-';
  shift.remove_prefix(1);
  const auto digits = shift.substr(0, shift.find_first_not_of("0123456789"));
  const auto count = parse_digits(digits);
  const auto unit = unit_seconds(shift.substr(digits.size()));
  if (!count || !unit || *count > 1'000'000'000 / *unit * 4) return invalid(text);
  const auto length = seconds(*count * *unit);
  return back ? now - length : now + length;
}

tm local(WallTime time) {
  const auto second = static_cast<time_t>(time.ms() / 1'000);
  tm fields{};
  localtime_r(&second, &fields);
  return fields;
}

WallTime at(tm fields, int hour, int minute, int second) {
  fields.tm_hour = hour;
  fields.tm_min = minute;
  fields.tm_sec = second;
  fields.tm_isdst = -1;
  return WallTime(seconds(mktime(&fields)));
}

// `08:30[:15]`
std::optional<WallTime> time_of_day(std::string_view text, WallTime now) {
  const auto parts = split(text, ':');
  if (parts.size() < 2 || parts.size() > 3) return std::nullopt;
  std::array<int, 3> numbers{};
  constexpr std::array kLimits{24, 60, 60};
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const auto number = parse_digits(parts[i]);
    if (!number || *number >= kLimits.at(i)) return std::nullopt;
    numbers.at(i) = static_cast<int>(*number);
  }
  return at(local(now), numbers[0], numbers[1], numbers[2]);
}

// `1115`, `111526`, `11/15/26`, `11.15.26`: handed on as a date.
std::optional<std::string> american_date(std::string_view text, WallTime now) {
  std::string digits;
  for (const char c : text) {
    if (c != '/' && c != '.') digits += c;
  }
  if (!is_digits(digits) || (digits.size() != 4 && digits.size() != 6)) return std::nullopt;
  const auto year =
      digits.size() == 6 ? "20" + digits.substr(4) : std::to_string(local(now).tm_year + 1900);
  return year + "-" + digits.substr(0, 2) + "-" + digits.substr(2, 2);
}

}  // namespace

WallTime start_of_day(WallTime now) { return at(local(now), 0, 0, 0); }

Result<WallTime> parse_accounting_time(std::string_view text, WallTime now) {
  const auto lower = to_lower(text);
  if (lower == "now") return now;
  if (lower.starts_with("now-") || lower.starts_with("now+")) {
    return shifted(text, text.substr(3), now);
  }
  if (lower == "today" || lower == "midnight") return start_of_day(now);
  if (lower == "yesterday") return start_of_day(start_of_day(now) - hours(12));
  if (lower == "noon") return at(local(now), 12, 0, 0);
  if (const auto time = time_of_day(text, now)) return *time;
  const auto date = american_date(text, now);
  const auto parsed = parse_timestamp(date ? std::string_view(*date) : text);
  if (!parsed) return invalid(text);
  return *parsed;
}

}  // namespace aliquot::cli
