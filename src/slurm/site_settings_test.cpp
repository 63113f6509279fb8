#include "slurm/site_settings.hpp"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <utility>
#include <vector>

namespace aliquot::slurm {
namespace {

TEST(SiteSettings, NoneAreNeeded) {
  const auto settings = parse_settings("", "x.toml");
  ASSERT_TRUE(settings);
  EXPECT_EQ(*settings, SiteSettings{});
  EXPECT_EQ(settings->share.unit, gib(1));
  EXPECT_EQ(settings->share.overcommit, kWholeGpu);
  EXPECT_EQ(settings->agent.without, "refuse");
  EXPECT_EQ(settings->agent.patience, 15);
  EXPECT_TRUE(settings->agent.enforce.kill_escapes);
  EXPECT_EQ(settings->balancer.port, 6821);
}

TEST(SiteSettings, ReadsEachOfThem) {
  const auto settings = parse_settings(R"(
[share]
unit = "512M"
overcommit = 1.25
mps_per_gpu = 200
shards_per_gpu = 4
placement = "aliquot"
partitions = ["shared"]
accounts = ["a*", "b"]
reservations = ["jupyterhub_course_*"]
[agent]
socket = "/run/x/agent.sock"
run_dir = "/run/x"
without = "run"
patience = 5
fault_domain = "job"
escape = "report"
simulate = "h200:4"
node = "n1"
[balancer]
mode = "pack"
host = "127.0.0.1"
port = 7000
state = "/var/lib/x.json"
[slurm]
conf = "/etc/s.conf"
)",
                                       "x.toml");
  ASSERT_TRUE(settings) << settings.error().message;
  EXPECT_EQ(settings->share.unit, mib(512));
  EXPECT_EQ(settings->share.overcommit, Compute(12500));
  EXPECT_EQ(settings->share.mps_per_gpu, 200);
  EXPECT_EQ(settings->share.shards_per_gpu, 4);
  EXPECT_EQ(settings->share.placement, "aliquot");
  EXPECT_EQ(settings->share.partitions, std::vector<std::string>{"shared"});
  EXPECT_EQ(settings->share.accounts, (std::vector<std::string>{"a*", "b"}));
  EXPECT_EQ(settings->share.reservations, std::vector<std::string>{"jupyterhub_course_*"});
  EXPECT_EQ(settings->agent.socket, "/run/x/agent.sock");
  EXPECT_EQ(settings->agent.run_dir, "/run/x");
  EXPECT_EQ(settings->agent.without, "run");
  EXPECT_EQ(settings->agent.patience, 5);
  EXPECT_EQ(settings->agent.enforce.domain, core::FaultDomain::job);
  EXPECT_FALSE(settings->agent.enforce.kill_escapes);
  EXPECT_EQ(settings->agent.simulate, "h200:4");
  EXPECT_EQ(settings->agent.node, "n1");
  EXPECT_EQ(settings->balancer.mode, "pack");
  EXPECT_EQ(settings->balancer.host, "127.0.0.1");
  EXPECT_EQ(settings->balancer.port, 7000);
  EXPECT_EQ(settings->balancer.state, "/var/lib/x.json");
  EXPECT_EQ(slurm_conf_path(*settings), "/etc/s.conf");
}

TEST(SiteSettings, APartitionMayCountInItsOwn) {
  const auto settings = parse_settings(R"(
[share]
mps_per_gpu = 200
[partition.course]
overcommit = 2
mps_per_gpu = 80
[partition.main]
shards_per_gpu = 4
)",
                                       "x.toml");
  ASSERT_TRUE(settings) << settings.error().message;
  const auto& share = settings->share;
  EXPECT_EQ(share.in("course").overcommit, kWholeGpu * 2);
  EXPECT_EQ(share.in("course").mps_per_gpu, 80);
  EXPECT_EQ(share.in("main").mps_per_gpu, 200);
  EXPECT_EQ(share.in("main").shards_per_gpu, 4);
  EXPECT_EQ(share.in("other").shards_per_gpu, 8);
  EXPECT_EQ(share.in("course,main").overcommit, kWholeGpu);
  EXPECT_EQ(share.in("course,main").mps_per_gpu, 200);
  EXPECT_EQ(share.most_compute(), kWholeGpu * 2);
}

TEST(SiteSettings, WholeNumbersAreFactorsToo) {
  const auto settings = parse_settings("[share]\novercommit = 2\n", "x.toml");
  ASSERT_TRUE(settings);
  EXPECT_EQ(settings->share.overcommit, kWholeGpu * 2);
}

TEST(SiteSettings, AMistakeIsNamedWithItsLine) {
  const std::vector<std::pair<std::string, std::string>> mistakes{
      {"\n[share]\nunti = \"1G\"\n",
       "x.toml:3: share.unti: there is no such setting; known here: accounts, mps_per_gpu, "
       "overcommit, partitions, placement, reservations, shards_per_gpu, unit"},
      {"[share]\nunit = \"1K\"\n", "x.toml:2: share.unit: expected 1M or more"},
      {"[share]\novercommit = 0.5\n",
       "x.toml:2: share.overcommit: expected a number from 1.0 to 10"},
      {"[share]\novercommit = nan\n",
       "x.toml:2: share.overcommit: expected a number from 1.0 to 10"},
      {"[share]\npartitions = \"a\"\n",
       "x.toml:2: share.partitions: expected a list of texts: [\"a\", \"b\"]"},
      {"[share]\naccounts = [\"\"]\n", "x.toml:2: share.accounts: '' is not a name or pattern"},
      {"[share]\nreservations = [\"a*\", \"[\"]\n",
       "x.toml:2: share.reservations: '[' has a [ without its ]"},
      {"[agent]\nwithout = \"panic\"\n", "x.toml:2: agent.without: 'panic' is none of refuse, run"},
      {"[agent]\nsocket = \"agent.sock\"\n",
       "x.toml:2: agent.socket: expected a full path without blanks, quotes and any of , ; # \\ $ "
       "="},
      {"[agent]\nnode = \"n 1\"\n",
       "x.toml:2: agent.node: letters, digits, '-', '_', '.' and ':' only"},
      {"[balancer]\nport = 70000\n",
       "x.toml:2: balancer.port: expected a whole number from 1 to 65535"},
      {"agent = 1\n", "x.toml:1: agent: expected a table: [agent]"},
      {"partition = 1\n", "x.toml:1: partition: expected a table: [partition.NAME]"},
      {"[partition]\nmain = 1\n", "x.toml:2: partition.main: expected a table: [partition.main]"},
      {"[partition.main]\novercommit = 0.5\n",
       "x.toml:2: partition.main.overcommit: expected a number from 1.0 to 10"},
      {"[partition.main]\nunit = \"1G\"\n",
       "x.toml:2: partition.main.unit: there is no such setting; known here: mps_per_gpu, "
       "overcommit, shards_per_gpu"},
  };
  for (const auto& [text, complaint] : mistakes) {
    const auto read = parse_settings(text, "x.toml");
    ASSERT_FALSE(read) << text;
    EXPECT_EQ(read.error().message, complaint);
  }
}

TEST(SiteSettings, AFileThatIsNamedMustBeThere) {
  const auto settings = load_settings("/nonexistent/slurm.toml");
  ASSERT_FALSE(settings);
  EXPECT_EQ(settings.error().message, "cannot read the settings '/nonexistent/slurm.toml'");
}

TEST(SiteSettings, EveryGpuHasAHighlyDivisibleNumberOfShards) {
  EXPECT_EQ(shards_of(mib(143771), gib(1)), 120);
  EXPECT_EQ(shards_of(mib(143771), mib(512)), 240);
  EXPECT_EQ(shards_of(gib(79), gib(1)), 120);
  EXPECT_EQ(shards_of(gib(23), gib(1)), 120);
  EXPECT_EQ(shards_of(gib(288), gib(1)), 240);
  EXPECT_EQ(shards_of(mib(512), gib(1)), 120);
  EXPECT_EQ(shard_memory(mib(24'000), shards_of(mib(24'000), gib(1)), 40), mib(8'000));
}

RC_GTEST_PROP(SiteSettings, ThirdsFifthsEighthsAndTenthsOfShardsAreEven, ()) {
  const auto memory = mib(*rc::gen::inRange<std::int64_t>(1, 1 << 20));
  const auto unit = mib(*rc::gen::inRange<std::int64_t>(1, 1 << 20));
  const auto shards = shards_of(memory, unit);
  for (const std::int64_t parts : {2, 3, 4, 5, 6, 8, 10, 12, 15, 20, 24, 30, 40, 60}) {
    RC_ASSERT(shards % parts == 0);
  }
  if (shards > kEvenShards) RC_ASSERT(unit * shards <= memory);
  RC_ASSERT(shards * 2 > memory / unit);
  // All shards are all of the memory and never more.
  RC_ASSERT(shard_memory(memory, shards, shards) == memory);
  RC_ASSERT(shard_memory(memory, shards, shards - 1) < memory);
}

}  // namespace
}  // namespace aliquot::slurm
