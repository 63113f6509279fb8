#include "base/output_path.hpp"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

namespace aliquot {
namespace {

PatternValues array_element(std::int64_t job, std::int64_t task) {
  return {.job = JobId(job),
          .array_job = 55,
          .array_task = task,
          .job_name = "pat",
          .user = "root",
          .host = "vm"};
}

// The lines of the recorded transcript; %b came later than the Slurm that was recorded.
TEST(ExpandPattern, FillsInWhatSlurmDoes) {
  const auto* pattern = "p_%x_%A_%a_%j_%J_%N_%n_%t_%u_%4j_%%_%b.out";
  EXPECT_EQ(expand_pattern(pattern, array_element(56, 3)),
            "p_pat_55_3_56_56_vm_0_0_root_0056_%_3.out");
  EXPECT_EQ(expand_pattern(pattern, array_element(55, 4)),
            "p_pat_55_4_55_55_vm_0_0_root_0055_%_4.out");
}

TEST(ExpandPattern, KnowsStepsAndRestarts) {
  auto values = array_element(56, 13);
  values.restarts = 2;
  EXPECT_EQ(expand_pattern("%s %r %b %2a", values), "batch 2 3 13");
  values.step = 1;
  values.task = 7;
  EXPECT_EQ(expand_pattern("%s %J %3t", values), "1 56.1 007");
  EXPECT_EQ(expand_pattern("%b %2r", values), "%b %2r") << "srun knows neither";
}

TEST(ExpandPattern, AStepsFilesStayInTheirFolder) {
  PatternValues values{.job = JobId(7), .job_name = "../../etc/x"};
  EXPECT_EQ(expand_pattern("/tmp/%x", values), "/tmp/../../etc/x");
  values.step = 0;
  EXPECT_EQ(expand_pattern("/tmp/%x.out", values), "/tmp/.._.._etc_x.out");
}

TEST(ExpandPattern, OfAJobThatIsNoArray) {
  const PatternValues values{.job = JobId(7), .job_name = "a b", .host = "gpu1.lab.example"};
  EXPECT_EQ(expand_pattern("%A %a %N %x", values), "7 4294967294 gpu1 a b");
  EXPECT_EQ(expand_pattern(default_output_pattern(false), values), "slurm-7.out");
  EXPECT_EQ(expand_pattern(default_output_pattern(true), array_element(56, 3)), "slurm-55_3.out");
}

TEST(ExpandPattern, PadsNumbersOnlyAndToTenDigits) {
  const auto values = array_element(56, 3);
  EXPECT_EQ(expand_pattern("%4x", values), "pat");
  EXPECT_EQ(expand_pattern("%99j", values), "0000000056");
  EXPECT_EQ(expand_pattern("%99999999999999999999j", values), "0000000056");
  EXPECT_EQ(expand_pattern("%0j", values), "56");
}

TEST(ExpandPattern, LeavesTheUnknownAlone) {
  const auto values = array_element(56, 3);
  EXPECT_EQ(expand_pattern("%q%5z%", values), "%q%5z%");
  EXPECT_EQ(expand_pattern("100%12", values), "100%12");
  EXPECT_EQ(expand_pattern("", values), "");
}

TEST(ExpandPattern, ABackslashTurnsItOff) {
  EXPECT_EQ(expand_pattern("\\%j-%x.out", array_element(56, 3)), "%j-%x.out");
  EXPECT_EQ(expand_pattern("a%j\\", array_element(56, 3)), "a%j");
}

RC_GTEST_PROP(ExpandPattern, TextWithoutPercentOrBackslashIsItself, (std::string text)) {
  std::erase_if(text, [](char c) { return c == '%' || c == '\\'; });
  RC_ASSERT(expand_pattern(text, array_element(1, 1)) == text);
}

TEST(ResolvePath, IsUnderTheFolder) {
  EXPECT_EQ(resolve_path("a.out", "/home/me"), "/home/me/a.out");
  EXPECT_EQ(resolve_path("a.out", "/"), "/a.out");
  EXPECT_EQ(resolve_path("/x/a.out", "/home/me"), "/x/a.out");
}

}  // namespace
}  // namespace aliquot
