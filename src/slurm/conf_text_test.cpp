#include "slurm/conf_text.hpp"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

namespace aliquot::slurm {
namespace {

std::vector<ConfLine> parse(std::string_view text) { return parse_conf_lines(lines_of_text(text)); }

TEST(ConfText, ReadsLinesAsSlurmDoes) {
  const auto lines = parse(
      "# a comment\n"
      "ClusterName=lab # and one behind\n"
      "\n"
      "NodeName=n[1-4] CPUs=64 \\\n"
      "   Gres=gpu:h200:4\n"
      "PartitionName=main TRESBillingWeights=\"CPU=1,GRES/gpu=2\" nodes = n[1-4]\n"
      "Include /etc/slurm/more.conf\n"
      "Pass=a\\#b\n");
  ASSERT_EQ(lines.size(), 5U);
  EXPECT_EQ(lines[0].get("clustername"), "lab");
  EXPECT_EQ(lines[0].first, 1U);
  EXPECT_TRUE(lines[1].is_about("NODENAME"));
  EXPECT_EQ(lines[1].first, 3U);
  EXPECT_EQ(lines[1].count, 2U);
  EXPECT_EQ(lines[1].get("Gres"), "gpu:h200:4");
  EXPECT_EQ(lines[2].get("TRESBillingWeights"), "CPU=1,GRES/gpu=2");
  EXPECT_EQ(lines[2].get("Nodes"), "n[1-4]");
  EXPECT_EQ(lines[3].include, "/etc/slurm/more.conf");
  EXPECT_EQ(lines[4].get("Pass"), "a#b");
  EXPECT_EQ(lines[4].get("CPUs"), std::nullopt);
}

TEST(ConfText, SetsOneKeyAndLeavesTheOthers) {
  const auto lines = lines_of_text("NodeName=n1 \\\n  CPUs=4 Gres=gpu:1 Weight=3 # why\n");
  const auto line = logical_text(lines, parse_conf_lines(lines).front());
  EXPECT_EQ(with_value(line, "gres", "shard:4"), "NodeName=n1   CPUs=4 Gres=shard:4 Weight=3");
  EXPECT_EQ(with_value("A=1", "B", "x y"), "A=1 B=\"x y\"");
  EXPECT_EQ(with_value("A=\"1 2\" C=3", "A", "4"), "A=4 C=3");
}

TEST(ConfText, OursStandsBetweenMarksAndGoesWithoutTrace) {
  const std::string site = "A=1\nB=2 \\\n  C=3\nD=4\n";
  ConfEdit edit(site, {});
  edit.replace(1, 2, "B=2 C=9");
  edit.append("E=5");
  const std::string text = edit.text();
  EXPECT_EQ(text,
            "A=1\n# BEGIN aliquot\n# was: B=2 \\\n# was:   C=3\nB=2 C=9\n# END aliquot\nD=4\n"
            "# BEGIN aliquot\nE=5\n# END aliquot\n");
  EXPECT_TRUE(has_ours(text));
  EXPECT_EQ(without_ours(text), site);
  EXPECT_FALSE(has_ours(site));
  // What the site edits later stays.
  EXPECT_EQ(without_ours("X=1\n" + text + "Y=2\n"), "X=1\n" + site + "Y=2\n");
}

TEST(ConfText, MarksThatDoNotComeInPairsAreNotGuessedAt) {
  const std::string ours = "# BEGIN aliquot\n# was: A=1\nA=2\n# END aliquot\n";
  EXPECT_EQ(own_text("X=1\n" + ours + "Y=2\n", "slurm.conf"), "X=1\nA=1\nY=2\n");
  const auto refusal = [](const std::string& text) {
    const auto own = own_text(text, "/etc/slurm/slurm.conf");
    return own ? "" : own.error().message;
  };
  const std::string no_end = "# BEGIN aliquot\nA=2\n";
  EXPECT_EQ(
      refusal("X=1\n" + no_end + "Y=2\n"),
      "/etc/slurm/slurm.conf:2: '# BEGIN aliquot' without '# END aliquot': put that line back "
      "where our lines end, or take this one out with ours");
  EXPECT_EQ(refusal(no_end + "Y=2\n" + ours).substr(0, 23), "/etc/slurm/slurm.conf:1");
  EXPECT_EQ(
      refusal(ours + "Y=2\n# END aliquot\n"),
      "/etc/slurm/slurm.conf:6: '# END aliquot' without '# BEGIN aliquot': put that line back "
      "where our lines begin, or take this one out with ours");
}

TEST(ConfText, LuaHasCommentsOfItsOwn) {
  ConfEdit edit("f()\nreturn 0\n", {"--"});
  edit.insert(1, "dofile('x')");
  EXPECT_EQ(edit.text(), "f()\n-- BEGIN aliquot\ndofile('x')\n-- END aliquot\nreturn 0\n");
  EXPECT_EQ(without_ours(edit.text(), {"--"}), "f()\nreturn 0\n");
}

// Whatever a site wrote, and wherever we edit: it gets its own text back.
RC_GTEST_PROP(ConfText, UndoingGivesBackWhatWasThere, ()) {
  const auto count = *rc::gen::inRange<std::size_t>(0, 12);
  std::string site;
  for (std::size_t i = 0; i < count; ++i) {
    site += *rc::gen::element<std::string>("A=1", "", "# was: x", "  B=2 \\", "# c",
                                           "C=\"d e\" F=1", "include x", "#END aliquot", "\t") +
            "\n";
  }
  ConfEdit edit(site, {});
  std::size_t at = 0;
  while (at < count) {
    const auto length = *rc::gen::inRange<std::size_t>(0, count - at + 1);
    if (*rc::gen::arbitrary<bool>()) {
      edit.replace(at, length, *rc::gen::element<std::string>("", "X=1", "X=1\nY=2"));
    }
    at += length + 1;
  }
  if (*rc::gen::arbitrary<bool>()) edit.append("Z=1");
  RC_ASSERT(without_ours(edit.text()) == site);
}

}  // namespace
}  // namespace aliquot::slurm
