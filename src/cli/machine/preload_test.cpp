#include "cli/machine/preload.hpp"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>

namespace aliquot::cli {
namespace {

namespace fs = std::filesystem;

constexpr const char* kLibrary = "/usr/lib/aliquot/libaliquot.so";

TEST(Preload, IsThereOnceAndEverythingElseStays) {
  EXPECT_EQ(edit_preload("", kLibrary), "/usr/lib/aliquot/libaliquot.so\n");
  EXPECT_EQ(edit_preload("/lib/a.so /lib/b.so", kLibrary),
            "/lib/a.so /lib/b.so\n/usr/lib/aliquot/libaliquot.so\n");
  const std::string mixed = "# ours\n/opt/libaliquot.so:/lib/a.so # why\n\n/lib/b.so\n";
  EXPECT_EQ(edit_preload(mixed, kLibrary),
            "# ours\n/lib/a.so # why\n\n/lib/b.so\n/usr/lib/aliquot/libaliquot.so\n");
  EXPECT_EQ(edit_preload(mixed, ""), "# ours\n/lib/a.so # why\n\n/lib/b.so\n");
  EXPECT_EQ(edit_preload(edit_preload("", kLibrary), ""), "");
  EXPECT_EQ(edit_preload(edit_preload("/lib/a.so\n", kLibrary), kLibrary),
            edit_preload("/lib/a.so\n", kLibrary));
  // Others of a similar name are not ours.
  EXPECT_EQ(edit_preload("/lib/libaliquot.so.bak\n", ""), "/lib/libaliquot.so.bak\n");
}

TEST(Preload, IsFoundWhereverItStands) {
  EXPECT_EQ(find_in_preload(""), "");
  EXPECT_EQ(find_in_preload("/lib/a.so:/x/libaliquot.so /lib/b.so\n"), "/x/libaliquot.so");
  EXPECT_EQ(find_in_preload("# /x/libaliquot.so\n"), "");
}

TEST(Preload, OnAndOffLeaveNothing) {
  std::string pattern = testing::TempDir() + "preload-XXXXXX";
  const std::string root = ::mkdtemp(pattern.data());
  fs::create_directory(root + "/etc");
  const auto text = [&] {
    std::ifstream file(root + kPreloadFile);
    return std::string(std::istreambuf_iterator<char>(file), {});
  };
  EXPECT_TRUE(preload_off(root));
  ASSERT_TRUE(preload_on(root, kLibrary));
  EXPECT_EQ(text(), "/usr/lib/aliquot/libaliquot.so\n");
  ASSERT_TRUE(preload_on(root, kLibrary));
  EXPECT_EQ(text(), "/usr/lib/aliquot/libaliquot.so\n");
  ASSERT_TRUE(preload_off(root));
  EXPECT_TRUE(fs::is_empty(root + "/etc"));
  for (const char* bad :
       {"", "libaliquot.so", "/a b/libaliquot.so", "/a/other.so", "/a:/libaliquot.so"}) {
    EXPECT_FALSE(preload_on(root, bad)) << bad;
  }
  EXPECT_TRUE(fs::is_empty(root + "/etc"));
  // On this machine only what root alone can change, and what programs start with.
  const std::string mine = root + "/libaliquot.so";
  std::ofstream(mine) << "no library";
  fs::permissions(mine, fs::perms::all);
  EXPECT_FALSE(preload_on("", mine));
  // Nor what a link leads to that has another name.
  fs::create_symlink("/bin/true", root + "/link");
  fs::rename(root + "/link", mine);
  EXPECT_FALSE(preload_on("", mine));
  fs::remove_all(root);
}

}  // namespace
}  // namespace aliquot::cli
