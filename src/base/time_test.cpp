#include "base/time.hpp"

#include <gtest/gtest.h>

#include <type_traits>

#include "base/clock.hpp"

namespace aliquot {
namespace {

static_assert(!std::is_convertible_v<WallTime, MonoTime>);
static_assert(WallTime(5'000) - WallTime(2'000) == seconds(3));
static_assert(MonoTime(0) + days(1) - hours(23) == MonoTime(minutes(60)));

TEST(Clock, ManualMovesOnlyWhenMoved) {
  ManualClock clock(WallTime(1'000));
  EXPECT_EQ(clock.wall(), WallTime(1'000));
  clock.advance(seconds(2));
  EXPECT_EQ(clock.wall(), WallTime(3'000));
  EXPECT_EQ(clock.mono(), MonoTime(2'000));
  clock.set_wall(WallTime(500));
  EXPECT_EQ(clock.wall(), WallTime(500));
  EXPECT_EQ(clock.mono(), MonoTime(2'000));
}

TEST(ClockDeathTest, ManualNeverGoesBack) { EXPECT_DEATH(ManualClock().advance(Millis(-1)), ""); }

}  // namespace
}  // namespace aliquot
