#include "sim/names.hpp"

#include <gtest/gtest.h>

namespace aliquot::sim {
namespace {

const std::vector<std::string> kKnown = {"aliquot", "best-fit", "dot-product", "fgd"};

TEST(Names, SuggestsTheNearest) {
  EXPECT_EQ(nearest_name("fdg", kKnown), "fgd");
  EXPECT_EQ(nearest_name("FGD", kKnown), "fgd");
  EXPECT_EQ(nearest_name("bestfit", kKnown), "best-fit");
  EXPECT_EQ(nearest_name("aliqout", kKnown), "aliquot");
  EXPECT_EQ(nearest_name("dot-prod", kKnown), "dot-product");
  EXPECT_EQ(nearest_name("xyzzy", kKnown), "");
  EXPECT_EQ(nearest_name("", kKnown), "");
  EXPECT_EQ(nearest_name(std::string(100'000, 'a'), kKnown), "");
}

TEST(Names, ReadsListsOfKnownOnes) {
  EXPECT_EQ(parse_names("fgd,aliquot", "policy", kKnown).value(),
            (std::vector<std::string>{"fgd", "aliquot"}));
  EXPECT_EQ(parse_names("fdg", "policy", kKnown).error().message,
            "no policy 'fdg'; did you mean 'fgd'?");
  EXPECT_EQ(parse_names("xyzzy", "policy", kKnown).error().message,
            "no policy 'xyzzy'; there are: aliquot, best-fit, dot-product, fgd");
  EXPECT_FALSE(parse_names("fgd,fgd", "policy", kKnown).has_value());
  EXPECT_FALSE(parse_names("", "policy", kKnown).has_value());
}

}  // namespace
}  // namespace aliquot::sim
