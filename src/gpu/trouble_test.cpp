#include "gpu/trouble.hpp"

#include <gtest/gtest.h>

namespace aliquot::gpu {
namespace {

TEST(Trouble, ProgramsFaultsAreNoneOfTheGpus) {
  for (const unsigned xid : {8U, 13U, 31U, 43U, 45U, 63U, 68U, 92U, 94U}) {
    EXPECT_EQ(xid_trouble(xid), "") << xid;
  }
  for (const unsigned xid : {48U, 62U, 64U, 74U, 79U, 95U, 119U, 120U}) {
    EXPECT_EQ(xid_trouble(xid), "xid" + std::to_string(xid));
    EXPECT_TRUE(is_trouble(xid_trouble(xid)));
  }
}

TEST(Trouble, IsASentenceForPeople) {
  EXPECT_EQ(trouble_text("xid79"), "Xid 79, it has fallen off the bus");
  EXPECT_EQ(trouble_text("lost"), "the driver has lost it");
  EXPECT_EQ(trouble_text("ecc"), "uncorrectable memory errors");
  EXPECT_EQ(trouble_text("xid13"), "xid13");
  EXPECT_EQ(trouble_text("newer"), "newer");
}

TEST(Trouble, IsAWordAndNothingElse) {
  for (const std::string_view text : {"", "a b", "x/y", "a,b", "Lost", "12345678901234567"}) {
    EXPECT_FALSE(is_trouble(text)) << text;
  }
}

}  // namespace
}  // namespace aliquot::gpu
