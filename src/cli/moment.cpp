#include "cli/moment.hpp"

#include <fmt/format.h>

#include <array>
#include <ctime>
#include <optional>
#include <vector>

#include "base/text.hpp"

namespace aliquot::cli {
namespace {

struct TimeOfDay {
  int hour = 0;
  int minute = 0;
  int second = 0;
};

struct Day {
  std::optional<int> year;
  int month = 1;
  int day = 1;
};

struct MomentUnit {
  std::string_view name;
  std::int64_t seconds;
};
constexpr auto kMomentUnits = std::to_array<MomentUnit>({
    {"second", 1},
    {"minute", 60},
    {"hour", 3'600},
    {"day", 86'400},
    {"week", 604'800},
});
constexpr std::int64_t kMostSeconds = std::int64_t{200} * 366 * 86'400;

std::optional<int> small_number(std::string_view text, int least, int most) {
  const auto number = parse_digits(text);
  if (!number || text.size() > 4 || *number < least || *number > most) return std::nullopt;
  return static_cast<int>(*number);
}

// The part after `now`: empty or `+count[unit]`, the unit abbreviated as one likes.
std::optional<std::int64_t> parse_later(std::string_view text, Tense tense) {
  if (text.empty()) return 0;
  const bool back = text[0] == '-' && tense == Tense::past;
  if (text[0] != '+' && !back) return std::nullopt;
  text.remove_prefix(1);
  std::size_t digits = 0;
  while (digits < text.size() && text[digits] >= '0' && text[digits] <= '9') ++digits;
  const auto count = parse_digits(text.substr(0, digits));
  if (!count || *count > kMostSeconds) return std::nullopt;
  const auto word = to_lower(text.substr(digits));
  std::int64_t seconds = 1;
  if (!word.empty()) {
    const auto whole =
        word.back() == 's' && word.size() > 1 ? word.substr(0, word.size() - 1) : word;
    const MomentUnit* unit = nullptr;
    for (const auto& candidate : kMomentUnits) {
      if (candidate.name.starts_with(whole)) {
        unit = &candidate;
        break;
      }
    }
    if (unit == nullptr) return std::nullopt;
    seconds = unit->seconds;
  }
  if (*count > kMostSeconds / seconds) return std::nullopt;
  return *count * (back ? -seconds : seconds);
}

// How many days after today.
std::optional<int> parse_named_day(std::string_view word, Tense tense) {
  if (equals_ignoring_case(word, "today")) return 0;
  if (equals_ignoring_case(word, "tomorrow")) return 1;
  if (equals_ignoring_case(word, "yesterday") && tense == Tense::past) return -1;
  return std::nullopt;
}

std::optional<TimeOfDay> parse_time_of_day(std::string_view text) {
  const auto word = to_lower(text);
  if (word == "midnight") return TimeOfDay{0, 0, 0};
  if (word == "noon") return TimeOfDay{12, 0, 0};
  if (word == "fika") return TimeOfDay{15, 0, 0};
  if (word == "teatime") return TimeOfDay{16, 0, 0};

  std::string_view rest = word;
  int shift = 0;
  bool twelve = false;
  if (rest.size() > 2 && rest.back() == 'm' &&
      (rest[rest.size() - 2] == 'a' || rest[rest.size() - 2] == 'p')) {
    twelve = true;
    shift = rest[rest.size() - 2] == 'p' ? 12 : 0;
    rest.remove_suffix(2);
  }
  const auto parts = split(rest, ':');
  if (parts.size() < 2 || parts.size() > 3) return std::nullopt;
  const auto hour = small_number(parts[0], twelve ? 1 : 0, twelve ? 12 : 23);
  const auto minute = small_number(parts[1], 0, 59);
  const auto second = parts.size() == 3 ? small_number(parts[2], 0, 59) : 0;
  if (!hour || !minute || !second) return std::nullopt;
  return TimeOfDay{twelve ? *hour % 12 + shift : *hour, *minute, *second};
}

std::optional<Day> make_day(std::string_view year, std::string_view month, std::string_view day) {
  Day result;
  if (!year.empty()) {
    const auto number = year.size() == 4
                            ? small_number(year, 1970, 9999)
                            : (year.size() == 2 ? small_number(year, 0, 99) : std::nullopt);
    if (!number) return std::nullopt;
    result.year = *number < 100 ? 2000 + *number : *number;
  }
  const auto month_number = small_number(month, 1, 12);
  const auto day_number = small_number(day, 1, 31);
  if (!month_number || !day_number) return std::nullopt;
  result.month = *month_number;
  result.day = *day_number;
  return result;
}

std::optional<Day> parse_day(std::string_view text) {
  if (const auto parts = split(text, '-'); parts.size() == 3 && parts[0].size() == 4) {
    return make_day(parts[0], parts[1], parts[2]);
  }
  for (const char separator : {'/', '.'}) {
    const auto parts = split(text, separator);
    if (parts.size() == 2) return make_day({}, parts[0], parts[1]);
    if (parts.size() == 3) return make_day(parts[2], parts[0], parts[1]);
  }
  if (is_digits(text) && (text.size() == 4 || text.size() == 6)) {
    return make_day(text.substr(4), text.substr(0, 2), text.substr(2, 2));
  }
  return std::nullopt;
}

std::optional<WallTime> at(std::tm local) {
  local.tm_isdst = -1;
  const auto wanted = local;
  const auto seconds = std::mktime(&local);
  // mktime has turned the 31st of February into another day.
  if (seconds == -1 || local.tm_mon != wanted.tm_mon % 12 || seconds < 0) return std::nullopt;
  return WallTime(static_cast<std::int64_t>(seconds) * 1000);
}

// The words: separated by blanks, and by the T between a date and a time.
std::vector<std::string_view> words_of(std::string_view text) {
  std::vector<std::string_view> words;
  for (const auto part : split(text, ' ')) {
    if (part.empty()) continue;
    const auto t = part.find('T');
    if (t != part.npos && t > 0 && part.substr(0, t).find('-') != part.npos) {
      words.push_back(part.substr(0, t));
      words.push_back(part.substr(t + 1));
    } else {
      words.push_back(part);
    }
  }
  return words;
}

}  // namespace

std::string no_moment(std::string_view text) {
  std::size_t place = 0;
  if (equals_ignoring_case(text.substr(0, 3), "now")) {
    const bool counts = text.size() > 4 && text[4] >= '0' && text[4] <= '9';
    place = counts ? 4 : 3;
  } else {
    for (const auto word : words_of(text)) {
      if (parse_named_day(word, Tense::past) || parse_time_of_day(word) || parse_day(word))
        continue;
      place = static_cast<std::size_t>(word.data() - text.data());
      const auto date = split(word, '-');
      if (date.size() == 3 && small_number(date[0], 1970, 9999)) {
        place += small_number(date[1], 1, 12) ? 8U : 5U;
      }
      // What could be read of it.
      for (std::size_t size = word.size() - 1; size > 0; --size) {
        if (!parse_time_of_day(word.substr(0, size))) continue;
        place += size;
        break;
      }
      break;
    }
  }
  return fmt::format("Invalid time specification (pos={}): {}", place, text);
}

Result<WallTime> parse_moment(std::string_view text, WallTime now, Tense tense) {
  const bool to_come = tense == Tense::to_come;
  const auto no = [&] {
    const auto shown = quote(text);
    return fail(Error::Code::invalid_argument, "{}",
                to_come ? shown + ": no point in time, as now+1hour or 16:00"
                        : "Invalid time specification " + shown);
  };
  const auto lower = to_lower(text);
  if (lower.starts_with("now")) {
    const auto later = parse_later(std::string_view(lower).substr(3), tense);
    if (!later) return no();
    return now + seconds(*later);
  }

  std::optional<TimeOfDay> time;
  std::optional<Day> day;
  std::optional<int> named_day;
  for (const auto word : words_of(text)) {
    if (const auto some_named_day = parse_named_day(word, tense)) {
      if (day || named_day) return no();
      named_day = some_named_day;
    } else if (const auto some_time = parse_time_of_day(word)) {
      if (time) return no();
      time = some_time;
    } else if (const auto some_day = parse_day(word)) {
      if (day || named_day) return no();
      day = some_day;
    } else {
      return no();
    }
  }
  if (!time && !day && !named_day) return no();

  const std::time_t clock = now.ms() / 1000;
  std::tm local{};
  if (::localtime_r(&clock, &local) == nullptr) return no();
  const auto start = time.value_or(TimeOfDay{});
  local.tm_hour = start.hour;
  local.tm_min = start.minute;
  local.tm_sec = start.second;
  if (day) {
    const int this_year = local.tm_year;
    local.tm_mon = day->month - 1;
    local.tm_mday = day->day;
    if (day->year) local.tm_year = *day->year - 1900;
    auto moment = at(local);
    if (to_come && moment && !day->year && *moment < now && local.tm_year == this_year) {
      ++local.tm_year;
      moment = at(local);
    }
    if (!moment) return no();
    return *moment;
  }
  local.tm_mday += named_day.value_or(0);
  local.tm_isdst = -1;
  auto seconds_since = std::mktime(&local);
  if (to_come && seconds_since != -1 && !named_day && seconds_since * 1000 < now.ms()) {
    ++local.tm_mday;
    local.tm_isdst = -1;
    seconds_since = std::mktime(&local);
  }
  if (seconds_since < 0) return no();
  return WallTime(static_cast<std::int64_t>(seconds_since) * 1000);
}

}  // namespace aliquot::cli
