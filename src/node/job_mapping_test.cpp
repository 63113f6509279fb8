#include "node/job_mapping.hpp"

#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

namespace aliquot::node {
namespace {

std::string text_of(const std::filesystem::path& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

TEST(JobMappingTest, HasAFileForEachGpuWithALineForEachJob) {
  std::string pattern = testing::TempDir() + "mapping-XXXXXX";
  const std::filesystem::path folder = std::filesystem::path(::mkdtemp(pattern.data())) / "jobs";
  JobMapping mapping(folder);
  ASSERT_TRUE(mapping.write({{0, {"7", "9"}}, {1, {}}}));
  EXPECT_EQ(text_of(folder / "0"), "7\n9\n");
  EXPECT_EQ(text_of(folder / "1"), "");
  ASSERT_TRUE(mapping.write({{0, {"9"}}, {1, {"10"}}}));
  EXPECT_EQ(text_of(folder / "0"), "9\n");
  EXPECT_EQ(text_of(folder / "1"), "10\n");
  std::filesystem::remove_all(folder.parent_path());
}

}  // namespace
}  // namespace aliquot::node
