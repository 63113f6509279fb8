#include "cli/view/file_tail.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace aliquot::cli {
namespace {

class FileTailTest : public ::testing::Test {
 protected:
  void SetUp() override {
    path_ = std::filesystem::temp_directory_path() /
            ("aliquot-tail-" + std::to_string(::getpid()) + "-" +
             ::testing::UnitTest::GetInstance()->current_test_info()->name());
    std::filesystem::remove(path_);
  }
  void TearDown() override { std::filesystem::remove(path_); }

  void write(const std::string& text, std::ios::openmode mode = std::ios::app) const {
    std::ofstream(path_, mode) << text;
  }
  static std::string drain(FileTail& tail) {
    std::string text;
    std::string failure;
    while (tail.read(text, failure)) {
    }
    EXPECT_EQ(failure, "");
    return text;
  }

  std::filesystem::path path_;
};

TEST_F(FileTailTest, FollowsAFileThatGrows) {
  FileTail tail(path_);
  EXPECT_EQ(drain(tail), "");
  EXPECT_FALSE(tail.seen());
  write("one\n");
  EXPECT_EQ(drain(tail), "one\n");
  write("two\n");
  EXPECT_EQ(drain(tail), "two\n");
  EXPECT_TRUE(tail.seen());
}

TEST_F(FileTailTest, StartsAgainWhenTheFileIsCutShort) {
  FileTail tail(path_);
  write("a long first line\n");
  drain(tail);
  write("new\n", std::ios::trunc);
  EXPECT_EQ(drain(tail), "new\n");
}

TEST_F(FileTailTest, ReadsTheRestBeforeItGoesToTheReplacement) {
  FileTail tail(path_);
  write("one\n");
  drain(tail);
  write("two\n");
  std::filesystem::rename(path_, path_.string() + ".1");
  write("three\n");
  EXPECT_EQ(drain(tail) + drain(tail), "two\nthree\n");
  std::filesystem::remove(path_.string() + ".1");
}

}  // namespace
}  // namespace aliquot::cli
