#include "slurm/node_conf.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

namespace aliquot::slurm {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;

Site site_of(const std::string& text) {
  return read_keys("slurm.conf", [&](const std::string&) -> Result<std::string> { return text; })
      .value();
}

TEST(Endpoint, ReadsWhatSamplesNeed) {
  const auto site = site_of(
      "ClusterName=x\n"
      "SlurmctldHost=ctl1(10.0.0.1) # the first\n"
      "slurmctldhost = ctl2\n"
      "#SlurmctldHost=ctl3\n"
      "NodeName=n[1-2,oops\n"
      "AuthInfo=cred_expire=5,socket=/run/m/socket\n");
  EXPECT_THAT(controllers(site), ElementsAre("10.0.0.1", "ctl2"));
  EXPECT_EQ(munge_socket(site), "/run/m/socket");
  EXPECT_THAT(controllers(site_of("ControlMachine=old\nControlAddr=10.1.1.1")),
              ElementsAre("10.1.1.1"));
  EXPECT_THAT(controllers(site_of("SlurmctldHost=\\\nctl\nAuthInfo")), ElementsAre("ctl"));
  EXPECT_TRUE(controllers(site_of("")).empty());
}

TEST(Endpoint, FollowsIncludesAndTheSettings) {
  std::string folder = fs::temp_directory_path() / "aliquot-endpoint.XXXXXX";
  ASSERT_NE(::mkdtemp(folder.data()), nullptr);
  std::ofstream(folder + "/slurm.conf") << "Include hosts.conf\n";
  std::ofstream(folder + "/hosts.conf") << "SlurmctldHost=ctl7\n";
  SiteSettings settings;
  settings.slurm.conf = folder + "/slurm.conf";
  const auto found = find_endpoint(settings).value();
  EXPECT_EQ(found.hosts.front(), "ctl7");
  EXPECT_EQ(found.port, 6821);
  settings.balancer.host = "10.0.0.9";
  settings.balancer.port = 7000;
  EXPECT_THAT(find_endpoint(settings).value().hosts, ElementsAre("10.0.0.9"));
  EXPECT_EQ(find_endpoint(settings).value().port, 7000);
  settings.slurm.conf = folder + "/none";
  EXPECT_THAT(find_endpoint(settings).error().message, HasSubstr("set SLURM_CONF"));
  // As for Slurm itself, which does not start with such a file either.
  std::ofstream(folder + "/slurm.conf") << "include missing.conf\n";
  settings.slurm.conf = folder + "/slurm.conf";
  EXPECT_THAT(find_endpoint(settings).error().message, HasSubstr("missing.conf"));
  std::ofstream(folder + "/slurm.conf") << "include slurm.conf\n";
  EXPECT_THAT(find_endpoint(settings).error().message, HasSubstr("includes itself"));
  fs::remove_all(folder);
}

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
