#include "kube/api/moments.hpp"

#include <fmt/format.h>

#include <chrono>

#include "base/text.hpp"

namespace aliquot::kube {

namespace chrono = std::chrono;

namespace {

std::string format_parts(WallTime time, bool micros) {
  const chrono::sys_time<chrono::milliseconds> point{chrono::milliseconds(time.ms())};
  const auto day = chrono::floor<chrono::days>(point);
  const chrono::year_month_day date(day);
  const auto clock = chrono::hh_mm_ss<chrono::milliseconds>(point - day);
  const std::string part = micros ? fmt::format(".{:03}000", clock.subseconds().count()) : "";
  return fmt::format("{:04}-{:02}-{:02}T{:02}:{:02}:{:02}{}Z", static_cast<int>(date.year()),
                     static_cast<unsigned>(date.month()), static_cast<unsigned>(date.day()),
                     clock.hours().count(), clock.minutes().count(), clock.seconds().count(), part);
}

// So many digits, taken from the text.
std::optional<int> take_digits(std::string_view& text, std::size_t count) {
  if (text.size() < count) return std::nullopt;
  const auto number = parse_digits(text.substr(0, count));
  if (!number) return std::nullopt;
  text.remove_prefix(count);
  return static_cast<int>(*number);
}

bool take_mark(std::string_view& text, std::string_view marks) {
  if (text.empty() || marks.find(text.front()) == std::string_view::npos) return false;
  text.remove_prefix(1);
  return true;
}

}  // namespace

std::string format_moment(WallTime time) { return format_parts(time, true); }
std::string format_second(WallTime time) { return format_parts(time, false); }

std::optional<WallTime> parse_moment(std::string_view text) {
  const auto year = take_digits(text, 4);
  if (!year || !take_mark(text, "-")) return std::nullopt;
  const auto month = take_digits(text, 2);
  if (!month || !take_mark(text, "-")) return std::nullopt;
  const auto day = take_digits(text, 2);
  if (!day || !take_mark(text, "Tt ")) return std::nullopt;
  const auto hour = take_digits(text, 2);
  if (!hour || !take_mark(text, ":")) return std::nullopt;
  const auto minute = take_digits(text, 2);
  if (!minute || !take_mark(text, ":")) return std::nullopt;
  const auto second = take_digits(text, 2);
  if (!second) return std::nullopt;
  const chrono::year_month_day date(chrono::year(*year),
                                    chrono::month(static_cast<unsigned>(*month)),
                                    chrono::day(static_cast<unsigned>(*day)));
  if (!date.ok() || *hour > 23 || *minute > 59 || *second > 60) return std::nullopt;

  std::int64_t millis = 0;
  if (take_mark(text, ".")) {
    const std::size_t digits = std::min(text.find_first_not_of("0123456789"), text.size());
    if (digits == 0 || digits > 18) return std::nullopt;
    std::string part(text.substr(0, std::min<std::size_t>(digits, 3)));
    part.resize(3, '0');
    millis = *parse_digits(part);
    text.remove_prefix(digits);
  }
  std::int64_t ahead = 0;  // of UTC, in minutes
  if (!take_mark(text, "Zz")) {
    const bool east = !text.empty() && text.front() == '+';
    if (!take_mark(text, "+-")) return std::nullopt;
    const auto hours_ahead = take_digits(text, 2);
    if (!hours_ahead || !take_mark(text, ":")) return std::nullopt;
    const auto minutes_ahead = take_digits(text, 2);
    if (!minutes_ahead || *hours_ahead > 23 || *minutes_ahead > 59) return std::nullopt;
    ahead = (east ? 1 : -1) * (*hours_ahead * 60 + *minutes_ahead);
  }
  if (!text.empty()) return std::nullopt;
  const auto days_since = chrono::sys_days(date).time_since_epoch().count();
  const std::int64_t total =
      (((std::int64_t{days_since} * 24 + *hour) * 60 + *minute - ahead) * 60 + *second) * 1000 +
      millis;
  return WallTime(total);
}

}  // namespace aliquot::kube
