#include "cli/moment.hpp"

#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "base/timestamp.hpp"
#include "cli/view/samples.hpp"

namespace aliquot::cli {
namespace {

// At 06:44:05 on 15 November 2026, UTC.
std::string read_moment(std::string_view text, Tense tense = Tense::to_come) {
  samples::use_utc();
  const auto moment = parse_moment(text, *parse_timestamp("2026-11-15T06:44:05"), tense);
  return moment ? format_timestamp(*moment) : "no";
}

TEST(Moment, ReadsSlurmsForms) {
  // clang-format off
  const std::pair<const char*, const char*> kForms[] = {
      // from now
      {"now", "2026-11-15T06:44:05"},
      {"now+1hour", "2026-11-15T07:44:05"},
      {"now+90", "2026-11-15T06:45:35"},
      {"now+2days", "2026-11-17T06:44:05"},
      {"now+5min", "2026-11-15T06:49:05"},
      {"NOW+1Week", "2026-11-22T06:44:05"},
      // the next such time of day
      {"16:00", "2026-11-15T16:00:00"},
      {"06:00", "2026-11-16T06:00:00"},
      {"4:30PM", "2026-11-15T16:30:00"},
      {"12:00am", "2026-11-16T00:00:00"},
      {"midnight", "2026-11-16T00:00:00"},
      {"noon", "2026-11-15T12:00:00"},
      {"teatime", "2026-11-15T16:00:00"},
      // days
      {"tomorrow", "2026-11-16T00:00:00"},
      {"today", "2026-11-15T00:00:00"},
      {"16:00 tomorrow", "2026-11-16T16:00:00"},
      {"2030-01-31", "2030-01-31T00:00:00"},
      {"2030-01-31T12:34", "2030-01-31T12:34:00"},
      {"2030-01-31T12:34:56", "2030-01-31T12:34:56"},
      {"12/31", "2026-12-31T00:00:00"},
      {"01/02", "2027-01-02T00:00:00"},
      {"123130", "2030-12-31T00:00:00"},
      {"12/31/30 10:00", "2030-12-31T10:00:00"},
  };
  // clang-format on
  for (const auto& [text, moment] : kForms) EXPECT_EQ(read_moment(text), moment) << text;
}

TEST(Moment, ReadsWhatSacctTakes) {
  const std::pair<const char*, const char*> kForms[] = {
      {"now", "2026-11-15T06:44:05"},
      {"now-2hours", "2026-11-15T04:44:05"},
      {"now-1day", "2026-11-14T06:44:05"},
      {"now+1day", "2026-11-16T06:44:05"},
      {"today", "2026-11-15T00:00:00"},
      {"midnight", "2026-11-15T00:00:00"},
      {"yesterday", "2026-11-14T00:00:00"},
      {"Yesterday 05:30", "2026-11-14T05:30:00"},
      {"noon", "2026-11-15T12:00:00"},
      {"05:30", "2026-11-15T05:30:00"},
      {"08:30:15", "2026-11-15T08:30:15"},
      {"1102", "2026-11-02T00:00:00"},
      {"12/31", "2026-12-31T00:00:00"},
      {"11/02/25", "2025-11-02T00:00:00"},
      {"11.02.25", "2025-11-02T00:00:00"},
      {"2026-11-14T00:00", "2026-11-14T00:00:00"},
      {"soon", "no"},
      {"now-99999999999999999999days", "no"},
      {"99:99", "no"},
  };
  for (const auto& [text, moment] : kForms) {
    EXPECT_EQ(read_moment(text, Tense::past), moment) << text;
  }
}

TEST(Moment, RefusesTheRest) {
  for (const auto* bad : {"", "now+", "now-1", "now+1fortnight", "25:00", "10:60", "13:00PM",
                          "2030-13-01", "2030-02-31", "today tomorrow", "10:00 11:00", "someday",
                          "yesterday", "now+99999999999999999999", "1/2/3/4"}) {
    EXPECT_EQ(read_moment(bad), "no") << bad;
  }
}

}  // namespace
}  // namespace aliquot::cli
