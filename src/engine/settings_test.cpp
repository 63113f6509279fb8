#include "engine/settings.hpp"

#include <gtest/gtest.h>

namespace aliquot::engine {
namespace {

std::string complaint(std::string_view text) {
  const auto settings = parse_settings(text, "x.toml");
  return settings ? "fine" : settings.error().message;
}

TEST(Settings, NoneAreNeeded) {
  const auto settings = parse_settings("", "x.toml");
  ASSERT_TRUE(settings);
  ASSERT_EQ(settings->partitions.size(), 2U);
  EXPECT_EQ(settings->partitions[0].name, "main");
  EXPECT_TRUE(settings->partitions[0].is_default);
  EXPECT_EQ(settings->partitions[1].name, "besteffort");
  EXPECT_FALSE(settings->partitions[1].is_default);
  EXPECT_LT(settings->partitions[1].tier, settings->partitions[0].tier);
  EXPECT_EQ(settings->kill_wait, seconds(30));
  EXPECT_TRUE(settings->enforce.enabled);
  EXPECT_EQ(settings->enforce.domain, core::FaultDomain::user);
  EXPECT_TRUE(settings->enforce.kill_escapes);
  EXPECT_EQ(settings->watch_interval, Millis(250));
}

TEST(Settings, ReadsEachOfThem) {
  const auto settings = parse_settings(R"(
[cluster]
name = "lab"
[node]
name = "gpu1"
cpus = 48
memory = "200G"
[gpu]
simulate = "h200:4"
mps_per_gpu = 200
shards_per_gpu = 4
compute_overcommit = 2
[enforce]
enabled = false
fault_domain = "gpu"
escape = "report"
watch_ms = 100
library = "/opt/libaliquot.so"
[schedule]
policy = "least-occupied"
[jobs]
memory_per_cpu = "4G"
first_id = 17000001
kill_wait = 10
min_job_age = "5:00"
[monitor]
interval = 2
idle_interval = 60
stale_after = 90
[log]
level = "debug"
file = "/tmp/log"
[[partition]]
name = "short"
max_time = "30:00"
default_time = "10:00"
[[partition]]
name = "long"
default = true
)",
                                       "x.toml");
  ASSERT_TRUE(settings) << settings.error().message;
  EXPECT_EQ(settings->cluster, "lab");
  EXPECT_EQ(settings->cpus, 48);
  EXPECT_EQ(settings->memory, gib(200));
  EXPECT_EQ(settings->compute_limit, kWholeGpu * 2);
  EXPECT_FALSE(settings->enforce.enabled);
  EXPECT_EQ(settings->enforce.domain, core::FaultDomain::gpu);
  EXPECT_FALSE(settings->enforce.kill_escapes);
  EXPECT_EQ(settings->watch_interval, Millis(100));
  EXPECT_EQ(settings->library, "/opt/libaliquot.so");
  EXPECT_EQ(settings->policy, "least-occupied");
  EXPECT_EQ(settings->first_id, 17'000'001);
  EXPECT_EQ(settings->kill_wait, seconds(10));
  EXPECT_EQ(settings->min_job_age, seconds(300));
  EXPECT_EQ(settings->idle_sample_interval, seconds(60));
  ASSERT_EQ(settings->partitions.size(), 2U);
  EXPECT_EQ(settings->partitions[0].default_time.length, minutes(10));
  EXPECT_FALSE(settings->partitions[0].is_default);
  EXPECT_TRUE(settings->partitions[1].is_default);
}

TEST(Settings, APartitionThatSaysNoDefaultTimeHasTheMachines) {
  constexpr std::string_view kPartitions =
      "[[partition]]\nname = \"a\"\n[[partition]]\nname = \"b\"\nmax_time = \"30:00\"\n"
      "[[partition]]\nname = \"c\"\ndefault_time = \"UNLIMITED\"\n";
  const auto usual = parse_settings(kPartitions, "x.toml");
  ASSERT_TRUE(usual) << usual.error().message;
  EXPECT_EQ(usual->partitions[0].default_time.length, hours(24));
  EXPECT_EQ(usual->partitions[1].default_time.length, minutes(30));
  EXPECT_TRUE(usual->partitions[2].default_time.unlimited());
  const auto set =
      parse_settings("[jobs]\ndefault_time = \"10:00\"\n" + std::string(kPartitions), "x.toml");
  EXPECT_EQ(set->partitions[0].default_time.length, minutes(10));
  const auto none = parse_settings("[jobs]\ndefault_time = \"UNLIMITED\"\n", "x.toml");
  EXPECT_TRUE(none->partitions[0].default_time.unlimited());
}

TEST(Settings, PrioritiesAndShares) {
  const auto settings = parse_settings(R"(
[priority]
decay_half_life = "2-0"
weight_fair_share = 500
weight_age = 0
[priority.shares]
ann = 3
"b.c" = 0
[[partition]]
name = "a"
tier = 7
job_factor = 9
)",
                                       "x.toml");
  ASSERT_TRUE(settings) << settings.error().message;
  EXPECT_EQ(settings->priority.half_life, days(2));
  EXPECT_EQ(settings->priority.weights.fair_share, 500);
  EXPECT_EQ(settings->priority.weights.age, 0);
  EXPECT_EQ(settings->priority.shares.at("ann"), 3);
  EXPECT_EQ(settings->priority.shares.at("b.c"), 0);
  EXPECT_EQ(settings->partitions[0].tier, 7);
  EXPECT_EQ(settings->partitions[0].job_factor, 9);
  EXPECT_EQ(complaint("[priority.shares]\nann = -1\n"),
            "x.toml:2: priority.shares.ann: expected a whole number from 0 to 65533");
  EXPECT_EQ(complaint("[priority]\nshares = 3\n"),
            "x.toml:2: priority.shares: write it as [priority.shares]");
}

TEST(Settings, AMistakeIsNamedWithItsLine) {
  EXPECT_EQ(complaint("\n[jobs]\nkill_wiat = 3\n"),
            "x.toml:3: jobs.kill_wiat: there is no such setting; known here: default_time, "
            "first_id, "
            "gpus_per_user, "
            "kill_wait, "
            "memory_per_cpu, min_job_age, processes, purge_after, requeue_exit, "
            "requeue_exit_hold, shares_only_in_reservations");
  EXPECT_EQ(complaint("[gpu]\nmps_per_gpu = \"many\"\n"),
            "x.toml:2: gpu.mps_per_gpu: expected a whole number from 1 to 1000000");
  EXPECT_EQ(complaint("[schedule]\npolicy = \"magic\"\n").substr(0, 40),
            "x.toml:2: schedule.policy: 'magic' is no");
  EXPECT_EQ(complaint("[[partition]]\nmax_time = \"1:00\"\n"),
            "x.toml:1: partition: a partition needs a name");
  EXPECT_EQ(complaint("[[partition]]\nname = \"a\"\n[[partition]]\nname = \"a\"\n"),
            "x.toml:3: partition: there are two of the name 'a'");
  EXPECT_EQ(
      complaint("[[partition]]\nname = \"a\"\nmax_time = \"1:00\"\ndefault_time = \"2:00\"\n"),
      "x.toml:1: partition: default_time is over max_time");
  EXPECT_EQ(complaint("[enforce]\nescape = \"forgive\"\n"),
            "x.toml:2: enforce.escape: 'forgive' is none of report, kill");
  EXPECT_EQ(complaint("[enforce]\nlibrary = \"/a b/x.so\"\n"),
            "x.toml:2: enforce.library: expected a full path without spaces, colons and '$'");
  EXPECT_EQ(complaint("cluster = 3\n"), "x.toml:1: cluster: expected a table: [cluster]");
  EXPECT_EQ(complaint("[node\n").substr(0, 9), "x.toml:1:");
}

TEST(Settings, PartitionsKeepTheOrderOfTheFile) {
  const auto settings = parse_settings(R"(
[partition.short]
max_time = "30:00"
tier = 3
[partition.course]
default = true
users = ["ann"]
groups = ["students", "teachers"]
gpus = [3, 1]
)",
                                       "x.toml");
  ASSERT_TRUE(settings) << settings.error().message;
  ASSERT_EQ(settings->partitions.size(), 2U);
  const Partition& first = settings->partitions[0];
  EXPECT_EQ(first.name, "short");
  EXPECT_FALSE(first.is_default);
  EXPECT_EQ(first.tier, 3);
  EXPECT_EQ(first.default_time.length, minutes(30));
  const Partition& course = settings->partitions[1];
  EXPECT_TRUE(course.is_default);
  EXPECT_EQ(course.users, std::vector<std::string>{"ann"});
  EXPECT_EQ(course.groups, (std::vector<std::string>{"students", "teachers"}));
  EXPECT_EQ(course.gpus, (std::vector<std::int64_t>{1, 3}));

  EXPECT_EQ(complaint("[partition.a]\ngpus = [0, 0]\n"),
            "x.toml:2: partition.a.gpus: a GPU stands twice");
  EXPECT_EQ(complaint("[partition.a]\ngpus = []\n"),
            "x.toml:2: partition.a.gpus: name at least one GPU, or leave it out for all");
  EXPECT_EQ(complaint("[partition.a]\ngpus = [\"0\"]\n"),
            "x.toml:2: partition.a.gpus: expected a list of whole numbers from 0 to 63: [0, 1]");
  EXPECT_EQ(complaint("[partition.'a,b']\n").substr(0, 42),
            "x.toml:1: partition.a,b: the name 'a,b' ma");
  EXPECT_EQ(complaint("[partition]\na = 3\n"),
            "x.toml:1: partition: write each as [partition.NAME]");
  EXPECT_EQ(complaint("[partition]\n"), "x.toml:1: partition: write each as [partition.NAME]");
}

// A setting that nobody thought of here would be dropped in silence.
TEST(Settings, EachIsTakenOverOrNeedsARestart) {
  const auto next = parse_settings(R"(
[cluster]
name = "other"
[node]
name = "n"
cpus = 3
memory = "1G"
[gpu]
simulate = "h200:1"
mps_per_gpu = 7
shards_per_gpu = 7
compute_overcommit = 2
[enforce]
enabled = false
fault_domain = "gpu"
strict = true
escape = "report"
watch_ms = 77
library = "/opt/l.so"
[schedule]
policy = "least-occupied"
[jobs]
memory_per_cpu = "4G"
default_time = "5:00"
gpus_per_user = 2
shares_only_in_reservations = true
first_id = 9
kill_wait = 10
processes = 100
min_job_age = 5
purge_after = "30-0"
[limits]
max_job_count = 20
max_submit_jobs_per_user = 5
max_array_size = 11
max_dependencies = 3
max_script_size = "1K"
max_environment_size = "1K"
max_stored_per_user = "1M"
max_connections = 100
max_connections_per_user = 10
[priority]
weight_age = 3
[monitor]
interval = 2
idle_interval = 60
stale_after = 90
[log]
level = "debug"
file = "/tmp/log"
[[partition]]
name = "short"
)",
                                   "x.toml");
  ASSERT_TRUE(next) << next.error().message;
  Settings current;
  const auto reloaded = reload_settings(current, *next);
  EXPECT_EQ(reloaded.changed,
            (std::vector<std::string>{
                "partition", "enforce.watch_ms", "jobs.default_time", "jobs.memory_per_cpu",
                "jobs.gpus_per_user", "jobs.shares_only_in_reservations", "jobs.min_job_age",
                "jobs.purge_after", "limits", "priority", "monitor.interval",
                "monitor.idle_interval", "monitor.stale_after", "log.level"}));
  EXPECT_EQ(reloaded.changed.size() + reloaded.needs_restart.size(), 34U);
  EXPECT_EQ(current.limits, next->limits);
  EXPECT_EQ(current.limits.jobs_per_user, 5);
  EXPECT_EQ(current.purge_after, days(30));
  EXPECT_EQ(current.kill_wait, seconds(30));
  EXPECT_EQ(current.cluster, "aliquot");
  const auto again = reload_settings(current, *next);
  EXPECT_TRUE(again.changed.empty());
  EXPECT_EQ(again.needs_restart, reloaded.needs_restart);
}

}  // namespace
}  // namespace aliquot::engine
