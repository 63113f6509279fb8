#include "slurm/settings.hpp"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <cstdlib>

namespace aliquot::slurm {
namespace {

std::string complaint(std::string_view text) {
  const auto settings = parse_settings(text, "x.toml");
  return settings ? "fine" : settings.error().message;
}

TEST(SlurmSettings, NoneAreNeeded) {
  const auto settings = parse_settings("", "x.toml");
  ASSERT_TRUE(settings);
  EXPECT_EQ(*settings, Settings{});
  EXPECT_EQ(settings->share.unit, gib(1));
  EXPECT_EQ(settings->share.overcommit, kWholeGpu);
  EXPECT_EQ(settings->agent.without, "refuse");
  EXPECT_EQ(settings->agent.patience, 15);
  EXPECT_TRUE(settings->agent.enforce.kill_escapes);
  EXPECT_EQ(settings->balancer.port, 6821);
}

TEST(SlurmSettings, ReadsEachOfThem) {
  const auto settings = parse_settings(R"(
[share]
unit = "512M"
overcommit = 1.25
mps_per_gpu = 200
shards_per_gpu = 4
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

TEST(SlurmSettings, WholeNumbersAreFactorsToo) {
  const auto settings = parse_settings("[share]\novercommit = 2\n", "x.toml");
  ASSERT_TRUE(settings);
  EXPECT_EQ(settings->share.overcommit, kWholeGpu * 2);
}

TEST(SlurmSettings, AMistakeIsNamedWithItsLine) {
  EXPECT_EQ(complaint("\n[share]\nunti = \"1G\"\n"),
            "x.toml:3: share.unti: there is no such setting; known here: accounts, mps_per_gpu, "
            "overcommit, partitions, reservations, shards_per_gpu, unit");
  EXPECT_EQ(complaint("[share]\nunit = \"1K\"\n"), "x.toml:2: share.unit: expected 1M or more");
  EXPECT_EQ(complaint("[share]\novercommit = 0.5\n"),
            "x.toml:2: share.overcommit: expected a number from 1.0 to 10");
  EXPECT_EQ(complaint("[share]\novercommit = nan\n"),
            "x.toml:2: share.overcommit: expected a number from 1.0 to 10");
  EXPECT_EQ(complaint("[share]\npartitions = \"a\"\n"),
            "x.toml:2: share.partitions: expected a list of texts: [\"a\", \"b\"]");
  EXPECT_EQ(complaint("[share]\naccounts = [\"\"]\n"),
            "x.toml:2: share.accounts: '' is not a name or pattern");
  EXPECT_EQ(complaint("[agent]\nwithout = \"panic\"\n"),
            "x.toml:2: agent.without: 'panic' is none of refuse, run");
  EXPECT_EQ(complaint("[agent]\nsocket = \"agent.sock\"\n").substr(0, 39),
            "x.toml:2: agent.socket: expected a full");
  EXPECT_EQ(complaint("[agent]\nnode = \"n 1\"\n"),
            "x.toml:2: agent.node: letters, digits, '-', '_', '.' and ':' only");
  EXPECT_EQ(complaint("[balancer]\nport = 70000\n"),
            "x.toml:2: balancer.port: expected a whole number from 1 to 65535");
  EXPECT_EQ(complaint("agent = 1\n"), "x.toml:1: agent: expected a table: [agent]");
}

TEST(SlurmSettings, AFileThatIsNamedMustBeThere) {
  const auto settings = load_settings("/nonexistent/slurm.toml");
  ASSERT_FALSE(settings);
  EXPECT_EQ(settings.error().message, "cannot read the settings '/nonexistent/slurm.toml'");
}

TEST(SlurmSettings, ShardsNeverStandForMoreThanTheMemory) {
  EXPECT_EQ(shards_of(mib(143771), gib(1)), 140);
  EXPECT_EQ(shards_of(gib(139), gib(1)), 120);
  EXPECT_EQ(shards_of(gib(79), gib(1)), 76);
  EXPECT_EQ(shards_of(gib(23), gib(1)), 20);
  EXPECT_EQ(shards_of(gib(15), gib(1)), 12);
  EXPECT_EQ(shards_of(gib(3), gib(1)), 3);
  EXPECT_EQ(shards_of(mib(512), gib(1)), 1);
}

RC_GTEST_PROP(SlurmSettings, ShardsTimesUnitFit, ()) {
  const auto memory = mib(*rc::gen::inRange<std::int64_t>(1, 1 << 20));
  const auto unit = mib(*rc::gen::inRange<std::int64_t>(1, 1 << 20));
  const auto shards = shards_of(memory, unit);
  RC_ASSERT(shards >= 1);
  if (shards > 1) RC_ASSERT(unit * shards <= memory);
  RC_ASSERT(shards * 2 > memory / unit);
  // Quarters fit, and all shards are all of the memory and never more.
  if (shards >= 4) RC_ASSERT((shards + 3) / 4 * 4 <= shards);
  RC_ASSERT(shard_memory(memory, shards, shards) == memory);
  RC_ASSERT(shard_memory(memory, shards, shards - 1) < memory || shards == 1);
}

}  // namespace
}  // namespace aliquot::slurm
