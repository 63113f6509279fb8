#include "sys/system_clock.hpp"

#include <gtest/gtest.h>

namespace aliquot::sys {
namespace {

TEST(SystemClock, IsInThisCenturyAndDoesNotGoBack) {
  const SystemClock system;
  const Clock& clock = system;
  EXPECT_GT(clock.wall(), WallTime(days(50 * std::int64_t{365})));
  const auto before = clock.mono();
  EXPECT_GE(clock.mono(), before);
}

}  // namespace
}  // namespace aliquot::sys
