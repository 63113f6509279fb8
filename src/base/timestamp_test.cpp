#include "base/timestamp.hpp"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>
#include <stdlib.h>
#include <time.h>

#include <limits>

namespace aliquot {
namespace {

// 2026-11-15T06:44:05 UTC
constexpr WallTime kMoment(std::int64_t{1'794'725'045'000});

class Timestamp : public testing::Test {
 protected:
  void SetUp() override { set_zone("UTC"); }
  void TearDown() override { set_zone("UTC"); }

  static void set_zone(const char* zone) {
    setenv("TZ", zone, 1);
    tzset();
  }
};

TEST_F(Timestamp, PrintsAsSlurm) {
  EXPECT_EQ(format_timestamp(kMoment), "2026-11-15T06:44:05");
  EXPECT_EQ(format_timestamp(kMoment + Millis(999)), "2026-11-15T06:44:05");
  EXPECT_EQ(format_date_line(kMoment), "Sun Nov 15 06:44:05 2026");
  EXPECT_EQ(format_date_line(kMoment - days(10)), "Thu Nov  5 06:44:05 2026");
  EXPECT_EQ(format_timestamp(WallTime(-1)), "1969-12-31T23:59:59");
}

TEST_F(Timestamp, FollowsTheLocalZone) {
  set_zone("XYZ-2");
  EXPECT_EQ(format_timestamp(kMoment), "2026-11-15T08:44:05");
  EXPECT_EQ(parse_timestamp("2026-11-15T08:44:05"), kMoment);
}

TEST_F(Timestamp, ReadsThreeShapes) {
  EXPECT_EQ(parse_timestamp("2026-11-15T06:44:05"), kMoment);
  EXPECT_EQ(parse_timestamp("2026-11-15T06:44"), kMoment - seconds(5));
  EXPECT_EQ(parse_timestamp("1970-01-02"), WallTime(days(1)));
  EXPECT_EQ(parse_timestamp("2028-02-29"), parse_timestamp("2028-03-01").value() - days(1));
}

TEST_F(Timestamp, RefusesJunk) {
  for (const auto* junk :
       {"", "now", "2026-11-15T", "2026-11-15T06", "2026-11-15T06:44:", "2026-11-15T06:44:05Z",
        "2026-13-01", "2026-00-01", "2026-02-30", "2026-11-00", "2026-11-15T24:00",
        "2026-11-15T06:60", "2026-11-15T06:44:60", "26-11-15", "1969-12-31", "2026-1-1",
        "2026/11/15", "+026-11-15"}) {
    EXPECT_FALSE(parse_timestamp(junk).has_value()) << junk;
  }
}

TEST_F(Timestamp, PrintsTheEndsOfTimeWithoutHarm) {
  for (const auto end :
       {std::numeric_limits<std::int64_t>::min(), std::numeric_limits<std::int64_t>::max()}) {
    EXPECT_FALSE(format_timestamp(WallTime(end)).empty());
    EXPECT_FALSE(format_date_line(WallTime(end)).empty());
  }
}

RC_GTEST_FIXTURE_PROP(Timestamp, PrintedTimestampsReadBack, ()) {
  const auto moment =
      WallTime(seconds(*rc::gen::inRange<std::int64_t>(0, std::int64_t{253'402'300'800})));
  RC_ASSERT(parse_timestamp(format_timestamp(moment)) == moment);
}

}  // namespace
}  // namespace aliquot
