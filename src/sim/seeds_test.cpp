#include "sim/seeds.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace aliquot::sim {
namespace {

using ::testing::ElementsAre;

TEST(Seeds, ReadsNumbersListsAndRanges) {
  EXPECT_THAT(parse_seeds("7").value(), ElementsAre(7));
  EXPECT_THAT(parse_seeds("1,3,5").value(), ElementsAre(1, 3, 5));
  EXPECT_THAT(parse_seeds("42-44,9").value(), ElementsAre(42, 43, 44, 9));
  EXPECT_EQ(parse_seeds("1-10000").value().size(), 10'000U);
  EXPECT_EQ(parse_seeds("9223372036854775807").value().size(), 1U);
}

TEST(Seeds, RefusesWhatCannotBe) {
  for (const auto* text :
       {"", ",", "x", "1-", "-1", "1--2", "51-42", "1,1", "1-3,2", "1-10001",
        "0-9223372036854775807", "1-9999,1-9999", "1 2", "99999999999999999999"}) {
    EXPECT_FALSE(parse_seeds(text).has_value()) << text;
  }
}

}  // namespace
}  // namespace aliquot::sim
