#include "base/resource_limits.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace aliquot {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

TEST(Propagate, SaysWhichLimitsGoWithTheJob) {
  EXPECT_EQ(parse_propagate("ALL")->size(), limit_names().size());
  EXPECT_EQ(parse_propagate("")->size(), limit_names().size()) << "--propagate alone";
  EXPECT_THAT(*parse_propagate("none"), IsEmpty());
  EXPECT_THAT(*parse_propagate("NOFILE,RLIMIT_CORE"), ElementsAre("NOFILE", "CORE"));
  EXPECT_EQ(parse_propagate("NOFILE,FILES").error().message, "Bad rlimit name: FILES");
  EXPECT_EQ(parse_propagate("ALL,NONE").error().message, "Bad rlimit name: ALL");
}

}  // namespace
}  // namespace aliquot
