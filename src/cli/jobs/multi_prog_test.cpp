#include <gtest/gtest.h>

#include "cli/jobs/multi_prog.hpp"

namespace aliquot::cli {
namespace {

TEST(MultiProg, GivesEachTaskItsCommand) {
  const auto commands =
      parse_multi_prog("# who does what\n0 hostname\n1-2 echo %t %o\n* true\n", 5, "prog");
  ASSERT_TRUE(commands.has_value());
  EXPECT_EQ((*commands)[0], (std::vector<std::string>{"hostname"}));
  EXPECT_EQ((*commands)[2], (std::vector<std::string>{"echo", "2", "1"}));
  EXPECT_EQ((*commands)[4], (std::vector<std::string>{"true"}));
}

TEST(MultiProg, RefusesGapsAndDoubles) {
  EXPECT_FALSE(parse_multi_prog("0 a\n", 2, "prog").has_value());
  EXPECT_FALSE(parse_multi_prog("0 a\n0 b\n", 1, "prog").has_value());
  EXPECT_FALSE(parse_multi_prog("0\n", 1, "prog").has_value());
  EXPECT_FALSE(parse_multi_prog("x a\n", 1, "prog").has_value());
}

}  // namespace
}  // namespace aliquot::cli
