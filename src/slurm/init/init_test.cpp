#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "slurm/conf_text.hpp"
#include "slurm/init/cluster_files.hpp"
#include "slurm/init/node_line.hpp"
#include "slurm/init/steps.hpp"

namespace aliquot::slurm {
namespace {

using Words = std::vector<std::string>;

using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using InitFiles = std::map<std::string, std::string>;

constexpr const char* kFour =
    "NodeName=n[1-4] CPUs=64 Boards=1 SocketsPerBoard=2 CoresPerSocket=16 ThreadsPerCore=2 "
    "RealMemory=512000 Gpus=h200:4:143156M:/dev/nvidia[0-3]\n";

ReadFile from_files(const InitFiles& files) {
  return [&files](const std::string& path) -> Result<std::string> {
    const auto found = files.find(path);
    if (found == files.end()) return fail(Error::Code::not_found, "no {}", path);
    return found->second;
  };
}

ClusterInput cluster_of(const std::string& lines) {
  ClusterInput input;
  input.host = "ctl";
  if (!lines.empty()) input.nodes = parse_node_lines(lines, "nodes").value();
  input.version = {22, 5, 8};
  input.plugin = "/usr/lib/aliquot/slurm/aliquot_spank.so";
  return input;
}

// Plans, and writes it down.
ClusterFiles carried_out(const ClusterInput& input, InitFiles& files) {
  auto plan = plan_cluster(input, from_files(files));
  EXPECT_TRUE(plan) << plan.error().message;
  if (!plan) return {};
  for (const FileChange& change : plan->plan.changes) {
    const auto now = files.find(change.path);
    EXPECT_EQ(change.before, now == files.end() ? std::nullopt : std::optional(now->second));
    files[change.path] = *change.after;
  }
  return *plan;
}

std::string refusal_of(const std::string& lines) {
  const auto nodes = parse_node_lines(lines, "nodes");
  return nodes ? "" : nodes.error().message;
}

TEST(NodeLine, IsReadAsItIsWritten) {
  const auto nodes = parse_node_lines(kFour, "nodes");
  ASSERT_TRUE(nodes) << nodes.error().message;
  ASSERT_EQ(nodes->size(), 4U);
  EXPECT_EQ(nodes->at(3).name, "n4");
  EXPECT_EQ(nodes->at(3).cpus, 64);
  EXPECT_EQ(nodes->at(3).memory, 512000);
  ASSERT_EQ(nodes->at(3).gpus.size(), 1U);
  EXPECT_EQ(nodes->at(3).gpus[0].memory, mib(143156));
  const auto again = parse_node_lines(format_node_line(nodes->at(3)), "nodes");
  ASSERT_TRUE(again);
  EXPECT_EQ(again->front(), nodes->at(3));
}

TEST(NodeLine, RefusesWhatIsNone) {
  EXPECT_THAT(refusal_of(""), HasSubstr("nodes has no nodes"));
  EXPECT_THAT(refusal_of("# none\n"), HasSubstr("nodes has no nodes"));
  EXPECT_THAT(refusal_of("n1 64\n"), HasSubstr("nodes:1: 'n1 64' is no node"));
  EXPECT_THAT(refusal_of("CPUs=4 NodeName=n1"), HasSubstr("does not begin with NodeName="));
  EXPECT_THAT(refusal_of("NodeName=n1 CPUs=4\nNodeName=n[1-2] CPUs=4"), HasSubstr("nodes:2: n1"));
  EXPECT_THAT(refusal_of("NodeName=n1 CPUs=0"), HasSubstr("CPUs is a number"));
  EXPECT_THAT(refusal_of("NodeName=n1 RealMemory=4"), HasSubstr("has no CPUs="));
  EXPECT_THAT(refusal_of("NodeName=n1 CPUs=4 State=DOWN"), HasSubstr("'State' is no word of it"));
  EXPECT_THAT(refusal_of("NodeName=n1 CPUs=4 Gpus=many"), HasSubstr("MODEL:COUNT:MEMORY"));
  EXPECT_THAT(refusal_of("NodeName=n;1 CPUs=4"), Not(IsEmpty()));
}

TEST(NodeLine, HardwareIsSaidInSlurmsWords) {
  std::vector<CpuPlace> cpus;
  for (int i = 0; i < 16; ++i) cpus.push_back({i < 8 ? "0" : "1", std::to_string(i / 2)});
  EXPECT_EQ(
      describe_hardware(cpus, 32000),
      "CPUs=16 Boards=1 SocketsPerBoard=2 CoresPerSocket=4 ThreadsPerCore=2 RealMemory=31000");
  // Cores with one thread beside cores with two.
  EXPECT_EQ(describe_hardware({{"0", "0-1"}, {"0", "0-1"}, {"0", "2"}}, 0), "CPUs=3");
}

TEST(ClusterFiles, HaveWhatTheClusterNeeds) {
  InitFiles files;
  const auto plan = carried_out(cluster_of(kFour), files);
  const std::string& conf = files["/etc/slurm/slurm.conf"];
  EXPECT_THAT(conf, HasSubstr("ClusterName=cluster\nSlurmctldHost=ctl\n"));
  EXPECT_THAT(conf, HasSubstr("enable_configless"));
  EXPECT_THAT(conf, HasSubstr("\nNodeName=n[1-4] CPUs=64 "));
  EXPECT_THAT(conf, HasSubstr("Gres=gpu:h200:4,shard:h200:480"));
  EXPECT_THAT(conf, HasSubstr("DefMemPerCPU=8000\n"));
  EXPECT_THAT(conf, HasSubstr("\nPartitionName=main Nodes=ALL Default=YES"));
  EXPECT_THAT(conf, HasSubstr("\nPartitionName=besteffort "));
  EXPECT_THAT(files["/etc/slurm/gres.conf"], HasSubstr("NodeName=n[1-4] Name=gpu Type=h200"));
  EXPECT_THAT(files["/etc/slurm/cgroup.conf"], HasSubstr("ConstrainDevices=yes"));
  EXPECT_THAT(files["/etc/slurm/slurmdbd.conf"], Not(HasSubstr("StoragePass")));
  EXPECT_TRUE(files.contains(std::string(kMariadbConf)));
  EXPECT_EQ(plan.gpu_shards, 120);
}

TEST(ClusterFiles, SecondTimeNothingChanges) {
  InitFiles files;
  carried_out(cluster_of(kFour), files);
  EXPECT_THAT(carried_out(cluster_of(kFour), files).plan.changes, IsEmpty());
  // It needs no telling.
  const auto plan = carried_out(cluster_of(""), files);
  EXPECT_THAT(plan.plan.changes, IsEmpty());
  EXPECT_EQ(plan.nodes.size(), 4U);
  EXPECT_EQ(plan.gpu_shards, 120);
}

TEST(ClusterFiles, NodesComeAndTheSitesLinesStay) {
  InitFiles files;
  carried_out(cluster_of(kFour), files);
  auto& own = files["/etc/slurm/slurm.conf"];
  own.insert(own.find("# END cluster\n") + 14, "# the site's\nKillWait=60\n");
  EXPECT_THAT(carried_out(cluster_of(""), files).plan.changes, IsEmpty());
  const auto plan = carried_out(cluster_of("NodeName=n4 CPUs=8 RealMemory=8000\n"
                                           "NodeName=n5 CPUs=8 RealMemory=8000\n"),
                                files);
  EXPECT_EQ(plan.nodes.size(), 5U);
  const std::string& conf = files["/etc/slurm/slurm.conf"];
  EXPECT_THAT(conf, HasSubstr("\nNodeName=n[1-3] CPUs=64 "));
  EXPECT_THAT(conf, HasSubstr("\nNodeName=n[4-5] CPUs=8 RealMemory=8000 State=UNKNOWN\n"));
  EXPECT_THAT(conf, HasSubstr("DefMemPerCPU=1000\n"));
  EXPECT_THAT(conf, HasSubstr("KillWait=60\n"));
}

TEST(ClusterFiles, LeaveAnotherSlurmAlone) {
  const auto refusal = [](const InitFiles& files, ClusterInput input) {
    const auto plan = plan_cluster(input, from_files(files));
    return plan ? "" : plan.error().message;
  };
  EXPECT_THAT(refusal({{"/etc/slurm/slurm.conf", "ClusterName=a\n"}}, cluster_of(kFour)),
              HasSubstr("is there and not init's"));
  EXPECT_THAT(refusal({{"/etc/slurm/slurmdbd.conf", "DbdHost=a\n"}}, cluster_of(kFour)),
              HasSubstr("is there and not init's"));
  EXPECT_THAT(refusal({}, cluster_of("")), HasSubstr("no nodes are known"));
  auto named = cluster_of(kFour);
  named.cluster = "Lab 1";
  EXPECT_THAT(refusal({}, named), HasSubstr("small letters"));
  InitFiles files;
  carried_out(cluster_of(kFour), files);
  named.cluster = "lab";
  EXPECT_THAT(refusal(files, named), HasSubstr("this cluster is called cluster"));
}

TEST(ClusterFiles, NodesWithoutGpusAreACluster) {
  InitFiles files;
  const auto plan = carried_out(cluster_of("NodeName=c1 CPUs=4 RealMemory=4000"), files);
  EXPECT_EQ(plan.gpu_shards, 0);
  EXPECT_FALSE(files.contains("/etc/slurm/gres.conf"));
  EXPECT_THAT(files["/etc/slurm/slurm.conf"], Not(HasSubstr("GresTypes")));
}

std::vector<std::string> lines_of(const std::vector<Step>& steps) {
  std::vector<std::string> lines;
  for (const Step& step : steps) lines.push_back(shell_line(step.command));
  return lines;
}

std::ptrdiff_t place_of(const std::vector<std::string>& lines, std::string_view text) {
  return std::ranges::find_if(lines, [&](const auto& line) { return line.starts_with(text); }) -
         lines.begin();
}

TEST(Steps, OfTheControllerAreInOrder) {
  const auto lines = lines_of(controller_steps(
      {.cluster = "lab", .user_billing = 480, .users = {"ann"}, .shares = true, .own_node = ""},
      {.systemd = true}));
  const std::vector<std::string_view> order{
      "runuser -u munge",
      "systemctl restart munge",
      "systemctl restart mariadb",
      "mariadb -e",
      "systemctl restart slurmdbd",
      "sacctmgr -i -Q add cluster lab",
      "sacctmgr -i -Q add qos",
      "sacctmgr -i -Q modify qos main set MaxTRESPerUser=billing=480",
      "sacctmgr -i -Q add user ann",
      "systemctl restart slurmctld",
      "systemctl restart aliquot-balancer"};
  for (std::size_t i = 0; i < order.size(); ++i) {
    EXPECT_LT(place_of(lines, order[i]), std::ssize(lines)) << order[i];
    if (i > 0) {
      EXPECT_LT(place_of(lines, order[i - 1]), place_of(lines, order[i])) << order[i];
    }
  }
}

// What is billed stands in slurm.conf, and the limit in sacctmgr: they count in the same.
TEST(Steps, AUsersLimitIsSoManyGpusOfTheBill) {
  InitFiles files;
  const auto plan = carried_out(cluster_of(kFour), files);
  EXPECT_THAT(files["/etc/slurm/slurm.conf"], HasSubstr("GRES/gpu=120000,GRES/shard=1000"));
  const auto limit = user_billing(plan, 4);
  EXPECT_GE(limit, 4 * plan.bill.gpu);
  EXPECT_LT(limit, 4 * plan.bill.gpu + plan.bill.shard);
  const auto lines =
      lines_of(controller_steps({.cluster = "lab", .user_billing = limit, .users = {}}, {}));
  EXPECT_THAT(lines, testing::Contains(HasSubstr("MaxTRESPerUser=billing=480999")));
  EXPECT_EQ(user_billing(plan, 0), 0) << "none is set";
  EXPECT_EQ(user_billing(carried_out(cluster_of(""), files), 4), limit) << "as it is remembered";
}

TEST(Steps, EachSaysHowToSeeThatItIsDone) {
  for (const bool systemd : {true, false}) {
    Machine machine;
    machine.systemd = systemd;
    auto steps = controller_steps(
        {.cluster = "lab", .user_billing = 1, .users = {"ann"}, .shares = true, .own_node = "ctl"},
        machine);
    for (auto& step : node_steps("n1", "ctl", machine)) steps.push_back(step);
    for (auto& step : package_steps(node_packages())) steps.push_back(step);
    for (const Step& step : steps) {
      EXPECT_FALSE(step.command.empty()) << step.purpose;
      EXPECT_FALSE(step.done_by.empty()) << step.purpose;
      EXPECT_EQ(step.daemon.empty(), step.until.empty()) << step.purpose;
    }
  }
}

TEST(Steps, SlurmdIsToldWhomToAsk) {
  const std::string own = "# Debian's\n#SLURMD_OPTIONS=\"\"\n";
  const std::string once = slurmd_defaults(own, "ctl");
  EXPECT_THAT(once, HasSubstr("\nSLURMD_OPTIONS=\"--conf-server ctl\"\n"));
  EXPECT_EQ(slurmd_defaults(once, "ctl"), once);
  EXPECT_EQ(without_ours(slurmd_defaults(once, "other")), own);
}

TEST(Steps, AreShownAsAShellTakesThem) {
  EXPECT_EQ(shell_line({"mariadb", "-e", "select 'a'"}), "mariadb -e 'select '\\''a'\\'''");
  EXPECT_EQ(daemons_of("/etc/slurm/slurmdbd.conf"), Words{"slurmdbd"});
  EXPECT_EQ(daemons_of("/etc/slurm/gres.conf"), (Words{"slurmctld", "slurmd"}));
  EXPECT_EQ(daemons_of(kMariadbConf), Words{"mariadb"});
  EXPECT_EQ(daemons_of("/etc/munge/munge.key"), Words{"munge"});
  EXPECT_EQ(daemons_of("/etc/default/slurmd"), Words{"slurmd"});
}

}  // namespace
}  // namespace aliquot::slurm
