#include "cli/view/list_options.hpp"

#include <gtest/gtest.h>

namespace aliquot::cli {
namespace {

TEST(ChosenColumns, AreThoseGivenLast) {
  OptionSet options(SlurmCommand::squeue);
  EXPECT_EQ(chosen_columns(options, true).format, "");
  ASSERT_TRUE(options.set("Format", "jobid", Source::command_line).has_value());
  EXPECT_TRUE(chosen_columns(options, true).by_name);
  ASSERT_TRUE(options.set("format", "%i", Source::command_line).has_value());
  EXPECT_EQ(chosen_columns(options, true).format, "%i");
  EXPECT_FALSE(chosen_columns(options, true).by_name);
}

TEST(ChosenColumns, ComeFromTheEnvironmentWhereNothingElseIsSaid) {
  OptionSet options(SlurmCommand::squeue);
  for (const auto* name : {"Format", "format"}) {
    ASSERT_TRUE(options.set(name, name, Source::environment).has_value());
  }
  EXPECT_EQ(chosen_columns(options, true).format, "Format");
  EXPECT_EQ(chosen_columns(options, false).format, "");
  ASSERT_TRUE(options.set("format", "%i", Source::command_line).has_value());
  EXPECT_EQ(chosen_columns(options, true).format, "%i");
}

}  // namespace
}  // namespace aliquot::cli
