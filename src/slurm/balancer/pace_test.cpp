#include "slurm/balancer/pace.hpp"

#include <gtest/gtest.h>

namespace aliquot::slurm {
namespace {

TEST(Pace, LooksEverySecondAtASlurmctldThatIsQuick) {
  Pace pace;
  for (int i = 0; i < 3; ++i) pace.note(Millis(2), true);
  EXPECT_EQ(pace.until_look(), seconds(1));
  EXPECT_EQ(pace.until_round(), Millis(200));
}

TEST(Pace, AnOutageSlowsNothingDown) {
  Pace pace;
  pace.note(Millis(2), true);
  pace.note(seconds(9), true);  // it was away meanwhile
  EXPECT_EQ(pace.until_look(), seconds(1));
  EXPECT_EQ(pace.until_round(), Millis(200));
  pace.note(Millis(2), true);
  EXPECT_EQ(pace.until_look(), seconds(1));
}

TEST(Pace, ASlurmctldThatIsAlwaysSlowIsSpared) {
  Pace pace;
  pace.note(Millis(300), true);
  pace.note(Millis(200), true);
  EXPECT_EQ(pace.until_look(), seconds(4));
  EXPECT_EQ(pace.until_round(), seconds(1));
  pace.note(seconds(8), true);
  pace.note(seconds(8), true);
  EXPECT_EQ(pace.until_look(), seconds(30));
  pace.note(Millis(2), true);
  EXPECT_EQ(pace.until_look(), seconds(1));
}

TEST(Pace, RoundsThatOnlySetHaveTheirOwn) {
  Pace pace;
  pace.note(Millis(100), false);
  pace.note(Millis(100), false);
  EXPECT_EQ(pace.until_round(), Millis(500));
  EXPECT_EQ(pace.until_look(), seconds(1));
}

}  // namespace
}  // namespace aliquot::slurm
