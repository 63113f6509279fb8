#include "base/slurm_time.hpp"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

namespace aliquot {
namespace {

TimeLimit limit(Millis length) { return TimeLimit{length}; }

TEST(SlurmTime, ReadsEveryShape) {
  EXPECT_EQ(parse_time_limit("30"), limit(minutes(30)));
  EXPECT_EQ(parse_time_limit("1:30"), limit(seconds(90)));
  EXPECT_EQ(parse_time_limit("2:00:05"), limit(hours(2) + seconds(5)));
  EXPECT_EQ(parse_time_limit("1-12"), limit(hours(36)));
  EXPECT_EQ(parse_time_limit("1-0:30"), limit(days(1) + minutes(30)));
  EXPECT_EQ(parse_time_limit("7-00:00:01"), limit(days(7) + seconds(1)));
  EXPECT_EQ(parse_time_limit("0"), limit(Millis(0)));
  EXPECT_EQ(parse_time_limit("90:00"), limit(minutes(90)));
  for (const auto* word : {"UNLIMITED", "unlimited", "INFINITE", "infinite", "-1"}) {
    EXPECT_EQ(parse_time_limit(word), kUnlimited) << word;
  }
}

TEST(SlurmTime, RefusesJunk) {
  for (const auto* junk : {"", "banana", "1:", ":1", "1:2:3:4", "1-", "-", "-5", "1-2-3",
                           "1-2:3:4:5", "1.5", "1h", " 1", "1 ", "UNLIMITE"}) {
    const auto time = parse_time_limit(junk);
    ASSERT_FALSE(time.has_value()) << junk;
    EXPECT_EQ(time.error().code, Error::Code::invalid_argument) << junk;
  }
  EXPECT_EQ(parse_time_limit("banana").error().message,
            "'banana' is not a time limit: write minutes, H:M:S, D-H:M:S or UNLIMITED");
  EXPECT_EQ(parse_time_limit("9223372036854775807").error().code, Error::Code::out_of_range);
  EXPECT_EQ(parse_time_limit("99999999999999999999-0").error().code, Error::Code::out_of_range);
}

TEST(SlurmTime, PrintsInThreeStyles) {
  struct Case {
    Millis length;
    const char* squeue;
    const char* scontrol;
  };
  for (const auto& [length, squeue, scontrol] : {
           Case{Millis(0), "0:00", "00:00:00"},
           Case{seconds(11), "0:11", "00:00:11"},
           Case{Millis(11'999), "0:11", "00:00:11"},
           Case{minutes(30), "30:00", "00:30:00"},
           Case{hours(2), "2:00:00", "02:00:00"},
           Case{days(1), "1-00:00:00", "1-00:00:00"},
           Case{days(12) + hours(3) + seconds(4), "12-03:00:04", "12-03:00:04"},
           Case{Millis(-1), "INVALID", "INVALID"},
       }) {
    EXPECT_EQ(format_duration(length, TimeStyle::squeue), squeue);
    EXPECT_EQ(format_duration(length, TimeStyle::sinfo), squeue);
    EXPECT_EQ(format_duration(length, TimeStyle::scontrol), scontrol);
  }
  EXPECT_EQ(format_time_limit(kUnlimited, TimeStyle::squeue), "UNLIMITED");
  EXPECT_EQ(format_time_limit(kUnlimited, TimeStyle::scontrol), "UNLIMITED");
  EXPECT_EQ(format_time_limit(kUnlimited, TimeStyle::sinfo), "infinite");
  EXPECT_EQ(format_time_limit(limit(minutes(30)), TimeStyle::sinfo), "30:00");
}

RC_GTEST_PROP(SlurmTimeProperty, PrintedTimesReadBack, ()) {
  const auto style = *rc::gen::element(TimeStyle::squeue, TimeStyle::scontrol, TimeStyle::sinfo);
  const auto time = limit(seconds(*rc::gen::inRange<std::int64_t>(0, 100'000'000)));
  RC_ASSERT(parse_time_limit(format_time_limit(time, style)) == time);
}

RC_GTEST_PROP(SlurmTimeProperty, AnyTextIsATimeOrOneLine, (const std::string& text)) {
  const auto time = parse_time_limit(text);
  RC_ASSERT((time ? time->unlimited() || *time->length >= Millis(0)
                  : time.error().message.find('\n') == std::string::npos));
}

}  // namespace
}  // namespace aliquot
