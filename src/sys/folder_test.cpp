#include "sys/folder.hpp"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "sys/testing.hpp"

namespace aliquot::sys {
namespace {

namespace fs = std::filesystem;

mode_t mode_of(const fs::path& path) {
  struct stat status {};
  EXPECT_EQ(lstat(path.c_str(), &status), 0) << path;
  return status.st_mode & 07777U;
}

TEST(Folder, OfOursHasTheModeItIsToHave) {
  const test::Folder root;
  const fs::path folder = root.path() / "a/b";
  ASSERT_TRUE(make_own_folder(folder, 0711));
  EXPECT_EQ(mode_of(folder), 0711U);
  ASSERT_TRUE(make_own_folder(folder, 0700));
  EXPECT_EQ(mode_of(folder), 0700U);
}

TEST(Folder, WhereAnotherCouldBeIsRefused) {
  const test::Folder root;
  fs::create_symlink("/tmp", root.path() / "link");
  std::ofstream(root.path() / "file") << "";
  EXPECT_FALSE(make_own_folder(root.path() / "link", 0700));
  EXPECT_FALSE(make_own_folder(root.path() / "file", 0700));
  EXPECT_FALSE(make_own_folder(root.path() / "file/below", 0700));
  const fs::path open = root.path() / "open";
  ASSERT_TRUE(make_safe_folder(open, 0700));
  EXPECT_EQ(chmod(open.c_str(), 0750), 0);
  EXPECT_TRUE(make_safe_folder(open, 0700));
  EXPECT_EQ(mode_of(open), 0750U) << "it keeps its mode";
  EXPECT_EQ(chmod(open.c_str(), 0777), 0);
  EXPECT_FALSE(make_safe_folder(open, 0700));
}

TEST(Folder, IsLockedForOneAtATime) {
  const test::Folder root;
  {
    const auto lock = lock_folder(root.path());
    ASSERT_TRUE(lock);
    const auto second = lock_folder(root.path());
    ASSERT_FALSE(second);
    EXPECT_NE(second.error().message.find(std::to_string(getpid())), std::string::npos);
  }
  EXPECT_TRUE(lock_folder(root.path()));
}

TEST(Folder, ATemporaryOneGoesWithAllThatIsInIt) {
  fs::path path;
  {
    const auto folder = TemporaryFolder::create("aliquot-test");
    ASSERT_TRUE(folder);
    path = folder->path();
    std::ofstream(path / "file") << "text";
  }
  EXPECT_FALSE(fs::exists(path));
}

TEST(Folder, ATemporaryOneIsNowhereElse) {
  const char* before = getenv("TMPDIR");
  const std::string kept = before == nullptr ? "" : before;
  setenv("TMPDIR", "/no/such/folder", 1);
  const auto folder = TemporaryFolder::create("aliquot-test");
  if (before == nullptr) {
    unsetenv("TMPDIR");
  } else {
    setenv("TMPDIR", kept.c_str(), 1);
  }
  EXPECT_FALSE(folder) << folder->path();
}

}  // namespace
}  // namespace aliquot::sys
