#include "kube/model/quantity.hpp"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <boost/json.hpp>

namespace aliquot::kube {
namespace {

TEST(Quantity, ReadsWhatKubernetesWrites) {
  EXPECT_EQ(parse_quantity("8", 1), 8);
  EXPECT_EQ(parse_quantity("8", 1'000), 8'000);
  EXPECT_EQ(parse_quantity("500m", 1'000), 500);
  EXPECT_EQ(parse_quantity("0.5", 1'000), 500);
  EXPECT_EQ(parse_quantity("1.5Gi", 1), 1'610'612'736);
  EXPECT_EQ(parse_quantity("2k", 1), 2'000);
  EXPECT_EQ(parse_quantity("1e3", 1), 1'000);
  EXPECT_EQ(parse_quantity("1E3", 1), 1'000);
  EXPECT_EQ(parse_quantity("12E", 1).has_value(), false);  // 12 * 10^18
  EXPECT_EQ(parse_quantity("7E", 1), 7'000'000'000'000'000'000);
  EXPECT_EQ(parse_quantity("+3", 1), 3);
  EXPECT_EQ(parse_quantity(".5", 1'000), 500);
  EXPECT_EQ(parse_quantity("0", 1), 0);
}

TEST(Quantity, RoundsUp) {
  EXPECT_EQ(parse_quantity("1m", 1), 1);
  EXPECT_EQ(parse_quantity("1n", 1'000), 1);
  EXPECT_EQ(parse_quantity("0.0000000000000000000001", 1'000), 1);
  EXPECT_EQ(parse_quantity("1e-60", 1), 1);
  EXPECT_EQ(parse_quantity("1001u", 1'000), 2);
}

TEST(Quantity, RefusesTheRest) {
  for (const char* text : {"", "-1", "m", "1 ", " 1", "1x", "1Kii", "1e", "1e+", "e3", ".", "1..2",
                           "0x10", "99999999999999999999999", "1e40", "9Ei9", "1Ki3"}) {
    EXPECT_FALSE(parse_quantity(text, 1)) << text;
  }
}

TEST(Quantity, IsATextOrANumberInObjects) {
  EXPECT_EQ(read_quantity(boost::json::value("2Gi"), 1), std::int64_t{2} << 30U);
  EXPECT_EQ(read_quantity(boost::json::value(4), 1'000), 4'000);
  EXPECT_EQ(read_quantity(boost::json::value(0.5), 1'000), 500);
  EXPECT_FALSE(read_quantity(boost::json::value(nullptr), 1));
  EXPECT_FALSE(read_quantity(boost::json::value(-4), 1));
}

RC_GTEST_PROP(Quantity, ReadsEveryWholeNumberBack, (std::int64_t number)) {
  if (number < 0) number = -(number + 1);
  RC_ASSERT(parse_quantity(std::to_string(number), 1).value() == number);
}

}  // namespace
}  // namespace aliquot::kube
