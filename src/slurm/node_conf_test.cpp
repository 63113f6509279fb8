#include "slurm/node_conf.hpp"

#include <gtest/gtest.h>

namespace aliquot::slurm {
namespace {

bool grouped(const std::string& slurm_conf, const std::optional<std::string>& cgroup_conf = {}) {
  const ReadFile read = [&](const std::string& path) -> Result<std::string> {
    if (path == "/s/slurm.conf") return slurm_conf;
    if (path == "/s/cgroup.conf" && cgroup_conf) return *cgroup_conf;
    return fail(Error::Code::not_found, "there is no {}", path);
  };
  return makes_groups(read_keys("/s/slurm.conf", read).value(), read);
}

TEST(NodeConf, SaysWhetherJobsAreInControlGroups) {
  const std::string by_parents = "ProctrackType=proctrack/linuxproc\n";
  EXPECT_TRUE(grouped("")) << "Slurm's default";
  EXPECT_TRUE(grouped("proctracktype=proctrack/cgroup\n"));
  EXPECT_FALSE(grouped(by_parents));
  EXPECT_TRUE(grouped(by_parents + "JobAcctGatherType=jobacct_gather/cgroup\n"));
  const std::string constrained = by_parents + "TaskPlugin=task/affinity,task/cgroup\n";
  EXPECT_FALSE(grouped(constrained));
  EXPECT_FALSE(grouped(constrained, "ConstrainDevices=no\n"));
  EXPECT_TRUE(grouped(constrained, "ConstrainDevices=Yes\n"));
  EXPECT_FALSE(grouped(by_parents + "TaskPlugin=task/none\n", "ConstrainDevices=yes\n"));
}

}  // namespace
}  // namespace aliquot::slurm
