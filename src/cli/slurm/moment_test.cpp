#include "cli/slurm/moment.hpp"

#include <gtest/gtest.h>
#include <time.h>

#include <cstdlib>
#include <string>

#include "base/timestamp.hpp"

namespace aliquot::cli {
namespace {

class Moment : public ::testing::Test {
 protected:
  void SetUp() override {
    ::setenv("TZ", "UTC", 1);
    ::tzset();
    now_ = *parse_timestamp("2026-11-15T06:44:05");
  }

  [[nodiscard]] std::string read(std::string_view text) const {
    const auto moment = parse_moment(text, now_);
    return moment ? format_timestamp(*moment) : "no";
  }

  WallTime now_;
};

TEST_F(Moment, CountsFromNow) {
  EXPECT_EQ(read("now"), "2026-11-15T06:44:05");
  EXPECT_EQ(read("now+1hour"), "2026-11-15T07:44:05");
  EXPECT_EQ(read("now+90"), "2026-11-15T06:45:35");
  EXPECT_EQ(read("now+2days"), "2026-11-17T06:44:05");
  EXPECT_EQ(read("now+5min"), "2026-11-15T06:49:05");
  EXPECT_EQ(read("NOW+1Week"), "2026-11-22T06:44:05");
}

TEST_F(Moment, TakesTheNextSuchTimeOfDay) {
  EXPECT_EQ(read("16:00"), "2026-11-15T16:00:00");
  EXPECT_EQ(read("06:00"), "2026-11-16T06:00:00");
  EXPECT_EQ(read("4:30PM"), "2026-11-15T16:30:00");
  EXPECT_EQ(read("12:00am"), "2026-11-16T00:00:00");
  EXPECT_EQ(read("midnight"), "2026-11-16T00:00:00");
  EXPECT_EQ(read("noon"), "2026-11-15T12:00:00");
  EXPECT_EQ(read("teatime"), "2026-11-15T16:00:00");
}

TEST_F(Moment, KnowsDays) {
  EXPECT_EQ(read("tomorrow"), "2026-11-16T06:44:05");
  EXPECT_EQ(read("16:00 tomorrow"), "2026-11-16T16:00:00");
  EXPECT_EQ(read("2030-01-31"), "2030-01-31T00:00:00");
  EXPECT_EQ(read("2030-01-31T12:34"), "2030-01-31T12:34:00");
  EXPECT_EQ(read("2030-01-31T12:34:56"), "2030-01-31T12:34:56");
  EXPECT_EQ(read("12/31"), "2026-12-31T00:00:00");
  EXPECT_EQ(read("01/02"), "2027-01-02T00:00:00");
  EXPECT_EQ(read("123130"), "2030-12-31T00:00:00");
  EXPECT_EQ(read("12/31/30 10:00"), "2030-12-31T10:00:00");
}

TEST_F(Moment, RefusesTheRest) {
  for (const auto* bad : {"", "now+", "now-1", "now+1fortnight", "25:00", "10:60", "13:00PM",
                          "2030-13-01", "2030-02-31", "today tomorrow", "10:00 11:00", "someday",
                          "now+99999999999999999999", "1/2/3/4"}) {
    EXPECT_EQ(read(bad), "no") << bad;
  }
}

}  // namespace
}  // namespace aliquot::cli
