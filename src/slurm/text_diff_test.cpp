#include "slurm/text_diff.hpp"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <sstream>
#include <vector>

#include "slurm/conf_text.hpp"

namespace aliquot::slurm {
namespace {

TEST(TextDiff, NothingWhereNothingDiffers) {
  EXPECT_EQ(unified_diff("a\nb\n", "a\nb\n", "x", "x"), "");
}

TEST(TextDiff, ShowsThreeLinesAround) {
  EXPECT_EQ(unified_diff("1\n2\n3\n4\n5\n6\n7\n8\n9\n", "1\n2\n3\n4\nfive\n6\n7\n8\n9\n", "a", "b"),
            "--- a\n+++ b\n@@ -2,7 +2,7 @@\n 2\n 3\n 4\n-5\n+five\n 6\n 7\n 8\n");
}

TEST(TextDiff, ANewFileAndARemovedOne) {
  EXPECT_EQ(unified_diff("", "a\n", "/dev/null", "f"), "--- /dev/null\n+++ f\n@@ -0,0 +1 @@\n+a\n");
  EXPECT_EQ(unified_diff("a\nb\n", "", "f", "/dev/null"),
            "--- f\n+++ /dev/null\n@@ -1,2 +0,0 @@\n-a\n-b\n");
}

TEST(TextDiff, FarChangesAreHunksOfTheirOwn) {
  std::string old_text;
  std::string new_text;
  for (int i = 0; i < 40; ++i) {
    old_text += std::to_string(i) + "\n";
    new_text += (i == 5 || i == 30 ? "x" : std::to_string(i)) + "\n";
  }
  const auto diff = unified_diff(old_text, new_text, "a", "b");
  EXPECT_NE(diff.find("@@ -3,7 +3,7 @@"), std::string::npos);
  EXPECT_NE(diff.find("@@ -28,7 +28,7 @@"), std::string::npos);
}

// Applies a unified diff; strict about every number in it.
std::string apply(const std::string& text, const std::string& diff) {
  const auto lines = lines_of_text(text);
  std::string out;
  std::size_t at = 0;
  std::istringstream in(diff);
  std::string line;
  std::getline(in, line);
  std::getline(in, line);
  while (std::getline(in, line)) {
    if (line.starts_with("@@")) {
      std::size_t start = std::stoul(line.substr(4));
      const auto comma = line.find(',');
      const bool none = comma < line.find('+') && line.substr(comma, 3) == ",0 ";
      if (!none) --start;
      for (; at < start; ++at) out += lines[at] + "\n";
      continue;
    }
    if (line[0] != '+') {
      if (lines.at(at) != line.substr(1)) return "does not apply";
      ++at;
    }
    if (line[0] != '-') out += line.substr(1) + "\n";
  }
  for (; at < lines.size(); ++at) out += lines[at] + "\n";
  return out;
}

RC_GTEST_PROP(TextDiff, AppliedToTheOldItGivesTheNew, ()) {
  const auto text = [] {
    std::string made;
    const auto count = *rc::gen::inRange(0, 30);
    for (int i = 0; i < count; ++i) {
      made += *rc::gen::element<std::string>("a", "b", "c", "", "d") + "\n";
    }
    return made;
  };
  const std::string before = text();
  const std::string after = text();
  const auto diff = unified_diff(before, after, "x", "y");
  RC_ASSERT(diff.empty() == (before == after));
  if (!diff.empty()) RC_ASSERT(apply(before, diff) == after);
}

}  // namespace
}  // namespace aliquot::slurm
