#include "slurm/endpoint.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

namespace aliquot::slurm {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;

TEST(Endpoint, ReadsWhatSamplesNeed) {
  const auto conf = read_conf(
      "ClusterName=x\n"
      "SlurmctldHost=ctl1(10.0.0.1) # the first\n"
      "slurmctldhost = ctl2\n"
      "#SlurmctldHost=ctl3\n"
      "AuthInfo=cred_expire=5,socket=/run/m/socket\n");
  EXPECT_THAT(conf.controllers, ElementsAre("10.0.0.1", "ctl2"));
  EXPECT_EQ(conf.munge_socket, "/run/m/socket");
  EXPECT_THAT(read_conf("ControlMachine=old\nControlAddr=10.1.1.1").controllers,
              ElementsAre("10.1.1.1"));
  EXPECT_THAT(read_conf("SlurmctldHost=\\\nctl\nAuthInfo").controllers, ElementsAre("ctl"));
  EXPECT_TRUE(read_conf("").controllers.empty());
}

TEST(Endpoint, FollowsIncludesAndTheSettings) {
  std::string folder = fs::temp_directory_path() / "aliquot-endpoint.XXXXXX";
  ASSERT_NE(::mkdtemp(folder.data()), nullptr);
  std::ofstream(folder + "/slurm.conf") << "Include hosts.conf\ninclude missing.conf\n";
  std::ofstream(folder + "/hosts.conf") << "SlurmctldHost=ctl7\nInclude slurm.conf\n";
  Settings settings;
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
  fs::remove_all(folder);
}

}  // namespace
}  // namespace aliquot::slurm
