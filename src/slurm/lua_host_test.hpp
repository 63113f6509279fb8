// For tests: a Lua interpreter that runs aliquot_submit.lua as slurmctld would, over pipes, job by
// job (see lua/mock_slurmctld.lua).
#pragma once

#include <gtest/gtest.h>
#include <sys/types.h>

#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <map>
#include <string>
#include <variant>
#include <vector>

#include "slurm/site_table.hpp"

namespace aliquot::slurm::test {

// A job's fields by Slurm's names; `record.NAME`, `env.NAME` and `part.NAME` as in the mock.
using Fields = std::map<std::string, std::variant<std::string, std::int64_t>>;

struct Called {
  std::string code;  // what the script returned, or "failed"
  Fields fields;     // afterwards

  [[nodiscard]] std::string text(const std::string& key) const;
  [[nodiscard]] bool refused() const { return code != "0"; }
};

// The interpreters of this machine, lua5.1 and its successors; one empty name where there is none,
// so that the tests are skipped, not forgotten.
std::vector<std::string> interpreters_or_none();
std::string name_of_interpreter(const ::testing::TestParamInfo<std::string>& each);
#define NEED_LUA() \
  if (GetParam().empty()) GTEST_SKIP() << "no Lua here: tools/install-deps slurm"

// Two models, on a Slurm that mixes whole GPUs with shards, and on one that does not.
SiteTable old_site();
SiteTable new_site();

class LuaHost {
 public:
  // Runs these texts one after the other, as one job_submit.lua.
  LuaHost(const std::string& interpreter, const std::vector<std::string>& texts);
  ~LuaHost();
  LuaHost(const LuaHost&) = delete;
  LuaHost& operator=(const LuaHost&) = delete;

  Called submit(const Fields& fields, const std::vector<std::string>& spank = {});
  Called modify(const Fields& fields);
  // One more of the jobs that slurmctld knows; no fields: it knows none any more.
  void job(const Fields& fields);
  void reservation(const Fields& fields);

 private:
  Called call(const std::string& name, const Fields& fields, const std::vector<std::string>& spank);

  std::filesystem::path folder_;
  pid_t pid_ = -1;
  std::FILE* to_ = nullptr;
  std::FILE* from_ = nullptr;
};

}  // namespace aliquot::slurm::test
