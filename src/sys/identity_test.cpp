#include "sys/identity.hpp"

#include <grp.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

// In the place of libc's: one group, with some thousand members.
extern "C" int getgrgid_r(gid_t gid, group* line, char* texts, size_t size, group** found) {
  *found = nullptr;
  if (gid != 100) return 0;
  if (size < 100'000) return ERANGE;
  *line = {};
  line->gr_name = std::strcpy(texts, "everybody");
  *found = line;
  return 0;
}

namespace aliquot::sys {
namespace {

constexpr Uid kNobodys(3'999'999'999);

TEST(Identity, ComesFromTheUserDatabase) {
  const auto root = find_identity(Uid(0));
  ASSERT_TRUE(root);
  EXPECT_EQ(root->user, "root");
  EXPECT_EQ(root->groups.at(0), Gid(0));
  EXPECT_EQ(find_identity(kNobodys).error().code, Error::Code::not_found);
}

TEST(Identity, WhoHasNoNameIsANumber) {
  EXPECT_EQ(user_name(Uid(0)), "root");
  EXPECT_EQ(user_name(kNobodys), "3999999999");
  EXPECT_EQ(user_of(Pid(getpid())), user_name(Uid(geteuid())));
  EXPECT_EQ(user_of(Pid(0x3fffffff)), "");
}

TEST(Identity, AGroupHasItsNameHoweverManyMembers) {
  EXPECT_EQ(group_name(Gid(100)), "everybody");
  EXPECT_EQ(group_name(Gid(101)), "101");
}

}  // namespace
}  // namespace aliquot::sys
