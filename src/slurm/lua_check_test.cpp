#include "slurm/lua_check.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "slurm/lua_host_test.hpp"
#include "slurm/submit_lua.hpp"
#include "sys/folder.hpp"

namespace aliquot::slurm {
namespace {

using testing::HasSubstr;

TEST(LuaCheck, TakesTheLuaThatThePluginHas) {
  const std::string plugin("\0ELF liblua.so\0liblua5.3.so.0\0x\0", 32);
  EXPECT_EQ(lua_libraries(plugin).front(), "liblua5.3.so.0");
  EXPECT_FALSE(lua_libraries("").empty());
}

TEST(LuaCheck, LoadsAsSlurmctldDoes) {
  const auto folder = sys::TemporaryFolder::create("aliquot-lua").value();
  const std::string path = folder.path() / "job_submit.lua";
  const auto complaint = [&](const std::string& text) {
    std::ofstream(path) << text;
    const auto done = try_submit_lua(path, lua_libraries(""));
    return done ? "" : done.error().message;
  };
  const std::string both =
      "function slurm_job_submit() return slurm.SUCCESS end\n"
      "function slurm_job_modify() return slurm.SUCCESS end\n";
  if (complaint(both) == "there is no Lua here") GTEST_SKIP() << "no Lua here";
  EXPECT_EQ(complaint(both + "slurm.log_info(\"hello\")\nreturn slurm.SUCCESS\n"), "");
  EXPECT_EQ(complaint("local limit = slurm.NO_VAL - 1\n" + both), "");
  EXPECT_EQ(complaint(make_submit_lua(test::old_site())), "");
  EXPECT_THAT(complaint(both + "function (\n"), HasSubstr("job_submit.lua:3: "));
  EXPECT_THAT(complaint(both + "local x = nothing.at_all\n"), HasSubstr("job_submit.lua:3: "));
  EXPECT_THAT(complaint("function slurm_job_submit() end\n"),
              HasSubstr("it has no function slurm_job_modify"));
  EXPECT_THAT(complaint("dofile('/no/such.lua')\n"), HasSubstr("/no/such.lua"));
}

}  // namespace
}  // namespace aliquot::slurm
