#include "base/timestamp.hpp"

#include <time.h>

#include <array>
#include <cstdint>

#include "base/text.hpp"

namespace aliquot {
namespace {

// Rounds down also before 1970.
tm local_fields(WallTime time) {
  const auto second = static_cast<time_t>(time.ms() / 1'000 - (time.ms() % 1'000 < 0 ? 1 : 0));
  tm fields{};
  // Fails only for years that no int can hold: then there is no honest text, and 1900-01-00 shows
  // it.
  localtime_r(&second, &fields);
  return fields;
}

// The number at the front of text, of exactly so many digits; -1 if there is none. Takes it off the
// front.
int take_number(std::string_view& text, std::size_t digits) {
  const auto value = parse_digits(text.substr(0, digits));
  if (!value || text.size() < digits) return -1;
  text.remove_prefix(digits);
  return static_cast<int>(*value);
}

bool take(std::string_view& text, char c) {
  if (!text.starts_with(c)) return false;
  text.remove_prefix(1);
  return true;
}

// The fields of text if it has the shape and every number is in its range; the day is checked by
// mktime.
bool read_fields(std::string_view text, tm& fields) {
  const int year = take_number(text, 4);
  if (year < 1970 || !take(text, '-')) return false;
  fields.tm_year = year - 1900;
  const int month = take_number(text, 2);
  if (month < 1 || month > 12 || !take(text, '-')) return false;
  fields.tm_mon = month - 1;
  fields.tm_mday = take_number(text, 2);
  if (fields.tm_mday < 1) return false;
  if (text.empty()) return true;

  if (!take(text, 'T')) return false;
  fields.tm_hour = take_number(text, 2);
  if (fields.tm_hour < 0 || fields.tm_hour > 23 || !take(text, ':')) return false;
  fields.tm_min = take_number(text, 2);
  if (fields.tm_min < 0 || fields.tm_min > 59) return false;
  if (text.empty()) return true;

  if (!take(text, ':')) return false;
  fields.tm_sec = take_number(text, 2);
  return fields.tm_sec >= 0 && fields.tm_sec <= 59 && text.empty();
}

}  // namespace

std::string format_timestamp(WallTime time) {
  const tm t = local_fields(time);
  return fmt::format("{:04}-{:02}-{:02}T{:02}:{:02}:{:02}", std::int64_t{t.tm_year} + 1900,
                     t.tm_mon + 1, t.tm_mday, t.tm_hour, t.tm_min, t.tm_sec);
}

std::string format_date_line(WallTime time) {
  // English names whatever the locale, as tools that read Slurm's output expect.
  static constexpr std::array kDays{"Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"};
  static constexpr std::array kMonths{"Jan", "Feb", "Mar", "Apr", "May", "Jun",
                                      "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
  const tm t = local_fields(time);
  return fmt::format("{} {} {:2} {:02}:{:02}:{:02} {}",
                     kDays.at(static_cast<std::size_t>(t.tm_wday)),
                     kMonths.at(static_cast<std::size_t>(t.tm_mon)), t.tm_mday, t.tm_hour, t.tm_min,
                     t.tm_sec, std::int64_t{t.tm_year} + 1900);
}

Result<WallTime> parse_timestamp(std::string_view text) {
  tm fields{};
  fields.tm_isdst = -1;
  const bool shaped = read_fields(text, fields);
  const int day = fields.tm_mday;
  // mktime moves 30 February into March: a day that moved was none.
  const time_t second = shaped ? mktime(&fields) : time_t{-1};
  if (!shaped || fields.tm_mday != day) {
    return fail(Error::Code::invalid_argument,
                "{} is not a time: write it as 2026-11-15T06:44:05 or 2026-11-15", quote(text));
  }
  return WallTime(seconds(second));
}

}  // namespace aliquot
