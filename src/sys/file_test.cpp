#include "sys/file.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "sys/fd.hpp"
#include "sys/owned_file.hpp"
#include "sys/testing.hpp"

namespace aliquot::sys {
namespace {

namespace fs = std::filesystem;

TEST(File, IsReplacedWhole) {
  const test::Folder folder;
  const fs::path file = folder.path() / "file";
  ASSERT_TRUE(write_whole(file, "one", 0600, true));
  ASSERT_TRUE(write_whole(file, "two", 0444, false));
  EXPECT_EQ(read_whole(file), "two");
  EXPECT_EQ(fs::status(file).permissions(), fs::perms(0444));
  EXPECT_EQ(std::distance(fs::directory_iterator(folder.path()), {}), 1) << "nothing else is left";
  EXPECT_FALSE(write_whole(folder.path() / "no/file", "x", 0600, false));
}

TEST(File, IsItsOwnersBeforeItHasItsName) {
  const test::Folder folder;
  const fs::path file = folder.path() / "file";
  const FileOwner own{::geteuid(), ::getegid()};
  ASSERT_TRUE(write_owned(file, "one", 0400, own));
  EXPECT_TRUE(is_owned(file, "one", 0400, own));
  EXPECT_FALSE(is_owned(file, "one, and more", 0400, own));
  EXPECT_FALSE(is_owned(file, "on", 0400, own));
  EXPECT_FALSE(is_owned(file, "one", 0600, own));
  // A link there is replaced, and what it leads to stays as it is.
  const fs::path link = folder.path() / "link";
  fs::create_symlink(file, link);
  EXPECT_FALSE(is_owned(link, "one", 0400, own));
  ASSERT_TRUE(write_owned(link, "two", 0440, own));
  EXPECT_FALSE(fs::is_symlink(link));
  EXPECT_EQ(read_whole(file), "one");
  if (::geteuid() != 0) return;
  const FileOwner other{65534, 65534};
  // As a run leaves it that was interrupted before it gave the file away.
  EXPECT_FALSE(is_owned(file, "one", 0400, other));
  ASSERT_TRUE(write_owned(file, "one", 0400, other));
  EXPECT_TRUE(is_owned(file, "one", 0400, other));
}

TEST(File, IsReadUpToALimitAndNotThroughALink) {
  const test::Folder folder;
  const fs::path file = folder.path() / "file";
  EXPECT_EQ(read_whole(file).error().code, Error::Code::not_found);
  ASSERT_TRUE(write_whole(file, "12345", 0600, false));
  EXPECT_EQ(read_whole(file, 5), "12345");
  EXPECT_EQ(read_whole(file, 4).error().code, Error::Code::out_of_range);
  fs::create_symlink(file, folder.path() / "link");
  EXPECT_FALSE(read_whole(folder.path() / "link"));
}

TEST(Fd, ClosesWhatItOwns) {
  Pipe pipe = make_pipe();
  ASSERT_TRUE(pipe);
  Fd moved = std::move(pipe.write);
  EXPECT_FALSE(pipe.write);
  EXPECT_TRUE(write_all(moved.get(), "text"));
  moved.reset();
  EXPECT_EQ(read_all(pipe.read.get()), "text");
  EXPECT_EQ(read_all(-1), std::nullopt);
  EXPECT_FALSE(write_all(-1, "text"));
}

}  // namespace
}  // namespace aliquot::sys
