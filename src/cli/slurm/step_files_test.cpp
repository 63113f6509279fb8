#include <gtest/gtest.h>

#include "cli/slurm/file_pattern.hpp"
#include "cli/slurm/multi_prog.hpp"

namespace aliquot::cli {
namespace {

TEST(FilePattern, FillsIn) {
  const FileNames names{56, 2, 7, 55, 3, "vm.example", "ada", "pat"};
  EXPECT_EQ(expand_file_pattern("%x_%A_%a_%j_%J_%N_%n_%s_%t_%u_%4j_%%", names),
            "pat_55_3_56_56.2_vm_0_2_7_ada_0056_%");
  EXPECT_EQ(expand_file_pattern("out-%3t", names), "out-007");
  EXPECT_EQ(expand_file_pattern("a\\%j", names), "a%j");
  EXPECT_EQ(expand_file_pattern("100%", names), "100%");
  EXPECT_EQ(expand_file_pattern("%q", names), "%q");
}

TEST(FilePattern, KeepsNamesInTheirFolder) {
  FileNames names;
  names.job_name = "../../etc/x";
  EXPECT_EQ(expand_file_pattern("%x", names), ".._.._etc_x");
}

TEST(MultiProg, GivesEachTaskItsCommand) {
  const auto commands =
      parse_multi_prog("# who does what\n0 hostname\n1-2 echo %t %o\n* true\n", 5);
  ASSERT_TRUE(commands.has_value());
  EXPECT_EQ((*commands)[0], (std::vector<std::string>{"hostname"}));
  EXPECT_EQ((*commands)[2], (std::vector<std::string>{"echo", "2", "1"}));
  EXPECT_EQ((*commands)[4], (std::vector<std::string>{"true"}));
}

TEST(MultiProg, RefusesGapsAndDoubles) {
  EXPECT_FALSE(parse_multi_prog("0 a\n", 2).has_value());
  EXPECT_FALSE(parse_multi_prog("0 a\n0 b\n", 1).has_value());
  EXPECT_FALSE(parse_multi_prog("0\n", 1).has_value());
  EXPECT_FALSE(parse_multi_prog("x a\n", 1).has_value());
}

}  // namespace
}  // namespace aliquot::cli
