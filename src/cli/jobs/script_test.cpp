#include "cli/jobs/script.hpp"

#include <gtest/gtest.h>

#include <rapidcheck/gtest.h>

namespace aliquot::cli {
namespace {

using Words = std::vector<std::string>;

TEST(SplitDirective, KeepsQuotedWordsTogether) {
  EXPECT_EQ(split_directive(" -J \"my job\" --comment='a b'"),
            (Words{"-J", "my job", "--comment=a b"}));
  EXPECT_EQ(split_directive(" -o a\\ b"), (Words{"-o", "a b"}));
  EXPECT_EQ(split_directive(" --comment=''"), (Words{"--comment="}));
}

TEST(SplitDirective, EndsAtAComment) {
  EXPECT_EQ(split_directive(" -n 2 # two of them"), (Words{"-n", "2"}));
  EXPECT_EQ(split_directive(" --comment=\"#1\""), (Words{"--comment=#1"}));
}

TEST(ReadDirectives, ReadsThemUpToTheFirstCommand) {
  const auto words = read_directives(
      "#!/bin/bash\n"
      "#SBATCH --time=5 -n2\n"
      "# a remark\n"
      "\n"
      "#SBATCH -J x\n"
      "##SBATCH --mem=1\n"
      " #SBATCH --mem=2\n"
      "module load cuda\n"
      "#SBATCH --gres=gpu:9\n");
  ASSERT_TRUE(words.has_value());
  ASSERT_EQ(words->size(), 3U);
  EXPECT_EQ((*words)[0].name, "time");
  EXPECT_EQ((*words)[1].value, "2");
  EXPECT_EQ((*words)[2].name, "job-name");
}

TEST(ReadDirectives, RefusesWhatIsNoOption) {
  const auto unknown = read_directives("#!/bin/sh\n#SBATCH --frob=1\n", true);
  ASSERT_FALSE(unknown.has_value());
  EXPECT_EQ(unknown.error().status, 255);
  const auto word = read_directives("#!/bin/sh\n#SBATCH nonsense\n", true);
  ASSERT_FALSE(word.has_value());
  EXPECT_EQ(word.error().message, "Invalid directive found in batch script: nonsense");
}

TEST(ReadDirectives, RefusesAQuoteThatNothingCloses) {
  const auto open = read_directives("#!/bin/sh\n#SBATCH -t 1 -J 'a b\n", true, "job.sh");
  ASSERT_FALSE(open.has_value());
  EXPECT_TRUE(open.error().fatal);
  EXPECT_EQ(open.error().message, "job.sh: line 2: Unmatched `'` in [ 'a b]");
}

TEST(CheckScript, RefusesInSlurmsWords) {
  EXPECT_EQ(check_script("").error().message, "Batch script is empty!");
  EXPECT_EQ(check_script("echo hi\n").error().message,
            "This does not look like a batch script.  The first\n"
            "line must start with #! followed by the path to an interpreter.\n"
            "For instance: #!/bin/sh");
  EXPECT_FALSE(check_script("#!/bin/sh\r\necho\r\n").has_value());
  EXPECT_FALSE(check_script(std::string_view("#!/bin/sh\n\0", 11)).has_value());
  EXPECT_TRUE(check_script("#!/bin/sh\n").has_value());
}

TEST(WrapScript, IsAScript) {
  const auto script = wrap_script("echo hi");
  EXPECT_TRUE(check_script(script.text).has_value());
  EXPECT_TRUE(script.text.ends_with("\necho hi\n"));
}

RC_GTEST_PROP(SplitDirective, NeverLosesASimpleWord, (const std::vector<unsigned>& sizes)) {
  std::string line;
  for (const auto size : sizes) line += " " + std::string(size % 20 + 1, 'x');
  RC_ASSERT(split_directive(line).size() == sizes.size());
}

}  // namespace
}  // namespace aliquot::cli
