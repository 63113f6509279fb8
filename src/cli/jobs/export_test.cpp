#include "cli/jobs/export.hpp"

#include <gtest/gtest.h>

#include <array>
#include <string>
#include <vector>

namespace aliquot::cli {
namespace {

Environment mine() {
  constexpr std::array<const char*, 5> kVariables = {"HOME=/home/a", "A=1", "B=2", "SLURM_HINT=x",
                                                     nullptr};
  return Environment(kVariables.data());
}

TEST(Environment, HoldsANameOnce) {
  auto environment = mine();
  environment.set("A", "3");
  environment.set("AA=4");
  environment.set("no assignment");
  EXPECT_EQ(environment.get("A"), "3");
  EXPECT_EQ(environment.get("AA"), "4");
  EXPECT_EQ(environment.variables().size(), 5U);
  environment.unset("A");
  EXPECT_FALSE(environment.get("A").has_value());
}

TEST(Export, TakesAllUnlessTold) {
  for (const std::optional<std::string>& choice :
       {std::optional<std::string>(), std::optional<std::string>("ALL")}) {
    const auto exported = export_environment(mine(), choice);
    EXPECT_EQ(exported.environment.variables(), mine().variables());
    EXPECT_FALSE(exported.login);
  }
}

TEST(Export, NoneIsTheLoginEnvironment) {
  const auto exported = export_environment(mine(), "NONE");
  EXPECT_TRUE(exported.login);
  EXPECT_FALSE(exported.environment.get("HOME").has_value());
  EXPECT_EQ(exported.environment.get("SLURM_HINT"), "x");
  EXPECT_EQ(exported.environment.get("SLURM_EXPORT_ENV"), "NONE");
}

TEST(Export, NilIsNothing) {
  const auto exported = export_environment(mine(), "NIL");
  EXPECT_FALSE(exported.login);
  EXPECT_FALSE(exported.environment.get("A").has_value());
}

TEST(Export, NamesAndAssigns) {
  const auto some = export_environment(mine(), "A,C=\"x,y\",MISSING");
  EXPECT_EQ(some.environment.get("A"), "1");
  EXPECT_EQ(some.environment.get("C"), "x,y");
  EXPECT_FALSE(some.environment.get("B").has_value());
  EXPECT_FALSE(some.environment.get("MISSING").has_value());
  const auto all = export_environment(mine(), "ALL,B=9");
  EXPECT_EQ(all.environment.get("A"), "1");
  EXPECT_EQ(all.environment.get("B"), "9");
  EXPECT_FALSE(all.login);
}

TEST(Export, PutsWhatIsGrantedInFrontOfTheCallersPaths) {
  auto environment = mine();
  environment.set("PATH=/venv/bin:/usr/bin");
  const std::vector<std::string> granted = {"PATH=/commands:/standin", "LD_PRELOAD=/lib/share.so",
                                            "A=9"};
  for (int i = 0; i < 2; ++i) add_granted(environment, granted);
  EXPECT_EQ(environment.get("PATH"), "/commands:/standin:/venv/bin:/usr/bin");
  EXPECT_EQ(environment.get("LD_PRELOAD"), "/lib/share.so");
  EXPECT_EQ(environment.get("A"), "9");
}

TEST(Export, AGrantedPathAloneIsNotAllThereIs) {
  Environment none;
  add_granted(none, {"PATH=/commands"});
  EXPECT_EQ(none.get("PATH"), "/commands:/usr/local/bin:/usr/bin:/bin");
}

TEST(Export, ForgetsTheJobItRunsIn) {
  auto environment = mine();
  environment.set("SLURM_JOB_ID=7");
  environment.set("SLURM_ARRAY_TASK_ID=3");
  environment.set("SLURM_STEP_ID=0");
  environment.set("SLURM_CONF=/etc/slurm.conf");
  forget_job(environment);
  EXPECT_FALSE(environment.get("SLURM_JOB_ID").has_value());
  EXPECT_FALSE(environment.get("SLURM_ARRAY_TASK_ID").has_value());
  EXPECT_FALSE(environment.get("SLURM_STEP_ID").has_value());
  EXPECT_TRUE(environment.get("SLURM_CONF").has_value());
}

}  // namespace
}  // namespace aliquot::cli
