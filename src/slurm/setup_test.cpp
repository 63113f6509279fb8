#include "slurm/setup.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <map>

#include "slurm/check.hpp"
#include "slurm/node_gpus.hpp"
#include "slurm/samples.hpp"
#include "slurm/setup_advice.hpp"
#include "slurm/submit_lua.hpp"
#include "sys/fd.hpp"
#include "sys/folder.hpp"

namespace aliquot::slurm {
namespace {

using testing::HasSubstr;
using testing::Not;
using Files = std::map<std::string, std::string>;

constexpr const char* kConf =
    "ClusterName=lab\n"
    "SlurmctldHost=ctl\n"
    "GresTypes=gpu\n"
    "TaskPlugin=task/affinity\n"
    "AccountingStorageType=accounting_storage/slurmdbd\n"
    "NodeName=n[1-4] CPUs=64 Gres=gpu:h200:4,nic:2\n"
    "NodeName=cpu1 CPUs=64\n"
    "PartitionName=main Nodes=ALL Default=YES\n"
    "PartitionName=cpus Nodes=cpu1\n";

ReadFile reader(const Files& files) {
  return [&files](const std::string& path) -> Result<std::string> {
    const auto found = files.find(path);
    if (found == files.end()) return fail(Error::Code::not_found, "no {}", path);
    return found->second;
  };
}

SetupInput input() {
  return {.slurm_conf = "/s/slurm.conf",
          .settings = {},
          .version = {22, 5, 8},
          .gpus = {{{"n1", "n2", "n3", "n4"}, "h200", 4, mib(143771), "/dev/nvidia[0-3]"}},
          .plugin = "/lib/aliquot_spank.so"};
}

void carry_out(Files& files, const SetupPlan& plan) {
  for (const FileChange& change : plan.changes) {
    if (change.after) {
      files[change.path] = *change.after;
    } else {
      files.erase(change.path);
    }
  }
}

SetupPlan planned(const SetupInput& from, const Files& files) {
  auto plan = plan_setup(from, reader(files));
  EXPECT_TRUE(plan) << plan.error().message;
  return plan ? *plan : SetupPlan{};
}

TEST(Setup, WritesEveryPiece) {
  Files files{{"/s/slurm.conf", kConf}};
  carry_out(files, planned(input(), files));
  EXPECT_THAT(files["/s/slurm.conf"], HasSubstr("# was: GresTypes=gpu\nGresTypes=gpu,mps,shard\n"));
  const std::string& conf = files["/s/slurm.conf"];
  EXPECT_THAT(conf, HasSubstr("TaskPlugin=task/affinity,task/cgroup\n"));
  EXPECT_THAT(conf, HasSubstr("NodeName=n[1-4] CPUs=64 Gres=gpu:h200:4,shard:h200:480,nic:2\n"));
  EXPECT_THAT(conf, HasSubstr("\nJobSubmitPlugins=lua\n"));
  EXPECT_THAT(conf, HasSubstr("\nSelectType=select/cons_tres\n"));
  EXPECT_THAT(conf, HasSubstr("\nAccountingStorageTRES=gres/gpu,gres/shard\n"));
  EXPECT_THAT(conf, Not(HasSubstr("LL_SHARED_GRES")));
  EXPECT_THAT(conf, Not(HasSubstr("TRESBillingWeights")));
  EXPECT_THAT(files["/s/gres.conf"],
              HasSubstr("NodeName=n[1-4] Name=gpu Type=h200 File=/dev/nvidia[0-3]\n"
                        "NodeName=n[1-4] Name=shard Type=h200 Count=480\n"));
  EXPECT_THAT(files["/s/cgroup.conf"], HasSubstr("\nConstrainDevices=yes\n"));
  EXPECT_THAT(files["/s/plugstack.conf"],
              HasSubstr("\noptional /lib/aliquot_spank.so socket=/run/aliquot/agent.sock "
                        "without=refuse\n"));
  EXPECT_THAT(files["/s/job_submit.lua"], HasSubstr("\ndofile(\"/s/aliquot_submit.lua\")\n"));
  EXPECT_TRUE(files["/s/aliquot_submit.lua"].starts_with(kSubmitLuaMark));
}

TEST(Setup, TheSitesOwnMpsStaysTheLastOfItsKind) {
  Files files{{"/s/slurm.conf", std::string(kConf) + "GresTypes=mps,nic,gpu\n"}};
  carry_out(files, planned(input(), files));
  EXPECT_THAT(files["/s/slurm.conf"], HasSubstr("\nGresTypes=nic,gpu,shard,mps\n"));
}

TEST(Setup, NewerSlurmSpreadsSharesAndBillsThemOnRequest) {
  Files files{{"/s/slurm.conf", std::string(kConf) + "SelectTypeParameters=CR_Core\n"}};
  auto from = input();
  from.version = {24, 11, 5};
  from.billing = true;
  carry_out(files, planned(from, files));
  EXPECT_THAT(files["/s/slurm.conf"], HasSubstr("SelectTypeParameters=CR_Core,LL_SHARED_GRES\n"));
  EXPECT_THAT(
      files["/s/slurm.conf"],
      HasSubstr("Default=YES TRESBillingWeights=CPU=1.0,GRES/gpu=120000,GRES/shard=1000\n"));
  EXPECT_THAT(files["/s/slurm.conf"], HasSubstr("\nPartitionName=cpus Nodes=cpu1\n"));
}

TEST(Setup, APlacementThatDoesNothingIsTold) {
  Files files{{"/s/slurm.conf", kConf}};
  auto from = input();
  from.settings.share.placement = "aliquot";
  from.version = {23, 11, 4};
  EXPECT_THAT(planned(from, files).notes, testing::Not(testing::Contains(HasSubstr("placement"))));
  from.version = {23, 11, 5};
  EXPECT_THAT(planned(from, files).notes,
              testing::Contains(HasSubstr("placement = \"aliquot\" does nothing here, as Slurm "
                                          "23.11.5 spreads shares itself")));
}

TEST(Setup, AClusterMayBeCalledWhatAnIncludeSays) {
  std::string conf = std::string(kConf) + "Include /s/%c-%c.conf\n";
  conf.replace(conf.find("lab"), 3, "a%c");
  Files files{{"/s/slurm.conf", conf}, {"/s/a%c-a%c.conf", "NodeName=extra CPUs=1\n"}};
  const auto plan = plan_setup(input(), reader(files));
  EXPECT_TRUE(plan) << plan.error().message;
}

TEST(Setup, BillsBesideWhatTheSiteBills) {
  Files files{
      {"/s/slurm.conf", std::string(kConf) +
                            "PartitionName=a Nodes=n1 TRESBillingWeights=\"CPU=1.0,Mem=0.25G\"\n"
                            "PartitionName=b Nodes=n1 TRESBillingWeights=CPU=1.0,GRES/gpu=8\n"}};
  auto from = input();
  from.billing = true;
  const auto plan = planned(from, files);
  carry_out(files, plan);
  EXPECT_THAT(files["/s/slurm.conf"],
              HasSubstr("TRESBillingWeights=CPU=1.0,Mem=0.25G,GRES/gpu=120000,GRES/shard=1000\n"));
  EXPECT_THAT(files["/s/slurm.conf"], HasSubstr("TRESBillingWeights=CPU=1.0,GRES/gpu=8\n"));
  EXPECT_THAT(plan.notes, testing::Contains(HasSubstr(
                              "partition b keeps its TRESBillingWeights=CPU=1.0,GRES/gpu=8: write "
                              "both GRES/gpu and GRES/shard there, 120 shards to a GPU")));
}

TEST(Setup, WhatTheSiteWritesAroundOurLinesChangesNothing) {
  Files files{{"/s/slurm.conf", kConf}};
  carry_out(files, planned(input(), files));
  files["/s/slurm.conf"] += "# a comment\n\nSlurmctldDebug=info\n";
  files["/s/gres.conf"] += "# another\nNodeName=cpu1 Name=nic Count=1\n";
  files["/s/job_submit.lua"] += "\n-- a third\n";
  files["/s/plugstack.conf"] += "optional /lib/other.so\n";
  EXPECT_TRUE(planned(input(), files).changes.empty());
  // What counts in place of ours does.
  files["/s/slurm.conf"] += "JobSubmitPlugins=throttle\n";
  files["/s/job_submit.lua"] += "function slurm_job_submit() return 0 end\n";
  EXPECT_EQ(planned(input(), files).changes.size(), 2U);
  auto other = input();  // as many shards, and other GPUs
  other.gpus[0].memory = mib(143700);
  files = {{"/s/slurm.conf", kConf}};
  carry_out(files, planned(input(), files));
  EXPECT_EQ(planned(other, files).changes.front().path, "/s/gres.conf");
}

TEST(Setup, ShowsTheSitesTableAndNotTheCode) {
  Files files{{"/s/slurm.conf", kConf}};
  const auto plan = planned(input(), files);
  const auto shown = preview(plan, false);
  EXPECT_THAT(shown, HasSubstr("+  overcommit = 10000"));
  EXPECT_THAT(shown, HasSubstr("lines of code, the same on every site: --all shows them)\n"));
  EXPECT_LT(std::ranges::count(shown, '\n'), 120);
  EXPECT_THAT(shown, Not(HasSubstr("+function slurm_job_submit")));
  EXPECT_GT(std::ranges::count(preview(plan, true), '\n'), 500);
}

TEST(Setup, AsksForNoMoreThanIsNeeded) {
  Files files{{"/s/slurm.conf", kConf}};
  std::string& conf = files["/s/slurm.conf"];
  conf.replace(conf.find("Nodes=ALL"), 9, "Nodes=n[1-4]");
  const auto first = planned(input(), files);
  EXPECT_THAT(what_to_restart(first), HasSubstr("restart slurmctld and then every slurmd"));
  carry_out(files, first);
  auto from = input();
  from.settings.share.reservations = {"course_*"};
  EXPECT_EQ(what_to_restart(planned(from, files)),
            "Nothing is to be restarted. slurmctld reads the Lua with the next job.");
  EXPECT_EQ(preview(planned(from, files), false).find("lines of code"), std::string::npos);
  from.settings.share.partitions = {"cpus"};
  EXPECT_THAT(what_to_restart(planned(from, files)), HasSubstr("copy plugstack.conf"));
  from = input();
  from.billing = true;
  EXPECT_THAT(what_to_restart(planned(from, files)), HasSubstr("'scontrol reconfigure': nothing"));
}

TEST(Setup, UndoSaysWhomItHits) {
  SlurmJob waits{.id = 7, .state = "PENDING", .admin_comment = "aliquot: --gpu-mem=8G"};
  SlurmJob runs{.id = 8, .state = "RUNNING", .tres_per_node = "gres:shard:h200:7"};
  SlurmJob other{.id = 9, .state = "PENDING", .tres_per_node = "gres:gpu:1"};
  EXPECT_EQ(hit_by_undo({other}), std::nullopt);
  EXPECT_EQ(hit_by_undo({waits, other, runs}),
            "1 waiting job(s) with a part of a GPU (7) would start without one, or never: scancel "
            "them first, to be submitted again; 1 running job(s) (8) would no longer be held to "
            "their part: let them end first");
}

TEST(Setup, ASecondTimeChangesNothingAndRemembersTheGpus) {
  Files files{{"/s/slurm.conf", kConf}};
  carry_out(files, planned(input(), files));
  EXPECT_TRUE(planned(input(), files).changes.empty());
  auto from = input();
  from.billing = true;
  carry_out(files, planned(from, files));
  EXPECT_THAT(files["/s/slurm.conf"], HasSubstr("TRESBillingWeights"));
  auto later = input();  // which says nothing of bills
  later.gpus.clear();
  EXPECT_TRUE(planned(later, files).changes.empty());
  EXPECT_EQ(remembered_gpus(files["/s/gres.conf"]), input().gpus);
}

TEST(Setup, UndoGivesTheSitesFilesBack) {
  const Files before{
      {"/s/slurm.conf", kConf},
      {"/s/cgroup.conf", "CgroupPlugin=cgroup/v1\nConstrainDevices=no\n"},
      {"/s/job_submit.lua", "function slurm_job_submit() end\nreturn slurm.SUCCESS\n"},
      {"/s/gres.conf", "Name=gpu File=/dev/nvidia[0-3]\nName=nic Count=2\n"}};
  Files files = before;
  carry_out(files, planned(input(), files));
  EXPECT_THAT(files["/s/cgroup.conf"],
              HasSubstr("# was: ConstrainDevices=no\nConstrainDevices=yes"));
  EXPECT_THAT(files["/s/gres.conf"], HasSubstr("# was: Name=gpu File=/dev/nvidia[0-3]\n"));
  // A file of Lua may end in `return`, and nothing may follow it.
  EXPECT_TRUE(files["/s/job_submit.lua"].ends_with("-- END aliquot\nreturn slurm.SUCCESS\n"));
  const auto plan = plan_undo("/s/slurm.conf", reader(files));
  ASSERT_TRUE(plan);
  carry_out(files, *plan);
  EXPECT_EQ(files, before);
  EXPECT_TRUE(plan_undo("/s/slurm.conf", reader(files))->changes.empty());
}

TEST(Setup, KeepsTheSitesLinesWhereTheyServe) {
  Files files{{"/s/slurm.conf", kConf},
              {"/s/gres.conf", "NodeName=n[1-4] Name=gpu Type=h200 File=/dev/nvidia[0-3]\n"}};
  carry_out(files, planned(input(), files));
  EXPECT_TRUE(files["/s/gres.conf"].starts_with("NodeName=n[1-4] Name=gpu Type=h200 File"));
  EXPECT_EQ(files["/s/gres.conf"].find("Name=gpu"), files["/s/gres.conf"].rfind("Name=gpu"));
}

TEST(Setup, IncludedFilesAreEditedWhereTheyAre) {
  Files files{
      {"/s/slurm.conf", "ClusterName=lab\nInclude nodes.conf\n"},
      {"/s/nodes.conf", "NodeName=n[1-4] CPUs=64 \\\n Weight=3\nPartitionName=p Nodes=n[1-4]\n"}};
  carry_out(files, planned(input(), files));
  EXPECT_THAT(files["/s/nodes.conf"],
              HasSubstr("NodeName=n[1-4] CPUs=64  Weight=3 Gres=gpu:h200:4,shard:h200:480\n"));
}

TEST(Setup, DevicesOfEachNodeMayHaveTheirOwnNames) {
  Files files{{"/s/slurm.conf", kConf}};
  auto from = input();
  from.gpus[0].files = "/x/%n/nvidia[0-3]";
  carry_out(files, planned(from, files));
  EXPECT_THAT(files["/s/gres.conf"],
              HasSubstr("NodeName=n2 Name=gpu Type=h200 File=/x/n2/nvidia[0-3]\n"));
  EXPECT_TRUE(planned(from, files).changes.empty());
}

TEST(Setup, SaysWhatItCannotDo) {
  Files files{{"/s/slurm.conf", kConf}};
  const auto complaint = [&](const SetupInput& from) {
    const auto plan = plan_setup(from, reader(files));
    return plan ? "fine" : plan.error().message;
  };
  auto from = input();
  from.gpus[0].nodes = {"n1"};
  EXPECT_EQ(complaint(from),
            "/s/slurm.conf:6: the nodes of this line have different GPUs: split it into one line "
            "for each kind of node");
  from.gpus[0].nodes = {"x9"};
  EXPECT_EQ(complaint(from), "/s/slurm.conf has no line NodeName=x9: add it, or name another node");
  from.gpus.clear();
  EXPECT_THAT(complaint(from), HasSubstr("no GPUs are known"));
  from = input();
  from.settings.share.by_partition["nosuch"] = {};
  EXPECT_EQ(complaint(from),
            "[partition.nosuch]: /s/slurm.conf has no such partition: there are main, cpus");
  Files without = {{"/s/slurm.conf", "NodeName=n[1-4]\n"}};
  from = input();
  from.billing = true;
  const auto billed = plan_setup(from, reader(without));
  ASSERT_FALSE(billed);
  EXPECT_THAT(billed.error().message, HasSubstr("--billing needs slurmdbd"));
  from = input();
  from.settings.share.partitions = {"ma*", "nope"};
  EXPECT_EQ(complaint(from),
            "share.partitions: no partition of /s/slurm.conf matches 'nope': there are main, cpus");
  from = input();
  from.settings.share.unit = gib(1024);
  EXPECT_THAT(complaint(from), HasSubstr("share.unit is 1T and no GPU has more than 14"));
  files["/s/aliquot_submit.lua"] = "-- the site's own\n";
  EXPECT_EQ(complaint(input()), "/s/aliquot_submit.lua is there and not ours: move it away");
}

TEST(Setup, GpusAreTold) {
  const auto group = parse_gpu_group("n[1-2]=h200:4:141G", "here");
  ASSERT_TRUE(group) << group.error().message;
  EXPECT_EQ(group->nodes, (std::vector<std::string>{"n1", "n2"}));
  EXPECT_EQ(group->memory, gib(141));
  EXPECT_EQ(group->files, "") << "not told";
  EXPECT_EQ(usual_files(4), "/dev/nvidia[0-3]");
  EXPECT_EQ(parse_gpu_group(format_gpu_group(*group), ""), *group);
  EXPECT_EQ(parse_gpu_group("h200:4:150754820096", "here")->memory, mib(143771));
  EXPECT_EQ(parse_gpu_group("h200:1:143771", "here")->nodes, std::vector<std::string>{"here"});
  EXPECT_EQ(usual_files(1), "/dev/nvidia0");
  for (const auto* bad :
       {"", "h200", "h200:4", "h200:0:1G", "h200:4:x", "=h200:4:1G", "h 2:4:1G", "n[=h200:4:1G",
        "h200:4:1G:relative", "h200:65:1G", "h200:4:0", "h200:4:500M"}) {
    EXPECT_FALSE(parse_gpu_group(bad, "here")) << bad;
  }
  const auto complaint = [](const char* text) {
    return parse_gpu_group(text, "n").error().message;
  };
  EXPECT_THAT(complaint("foo"), HasSubstr("COUNT is 1 to 64: write [NODES=]MODEL:COUNT:MEMORY"));
  // An example that is right for the card it names.
  EXPECT_THAT(complaint("foo"), HasSubstr("e.g. n[1-4]=h200:4:143156"));
  EXPECT_THAT(complaint("n[1-4]=h200:4:141"), HasSubstr("141M is no GPU's memory; a number alone"));
  EXPECT_THAT(complaint("h200:4:141G:/dev/nvidia[0-1]"), HasSubstr("4 GPUs and 2 files"));
  EXPECT_TRUE(parse_gpu_group("h200:3:141G:/dev/nvidia[0-1],/dev/nvidia3", "n"));
}

TEST(Setup, FilesStayWhenOnlyMemoryIsTold) {
  Files files{{"/s/slurm.conf", kConf}};
  auto from = input();
  from.gpus = {*parse_gpu_group("n[1-4]=h200:4:141G:/x/%n/nvidia[0-3]", "")};
  carry_out(files, planned(from, files));
  from.gpus = {*parse_gpu_group("n1=h200:4:143156", "")};
  const auto remembered = [&] {
    std::string all;
    for (const auto& group : planned(from, files).gpus) all += format_gpu_group(group) + "\n";
    return all;
  };
  EXPECT_THAT(remembered(), HasSubstr("n1=h200:4:150109945856B:/x/%n/nvidia[0-3]\n"));
  // Other GPUs have other files.
  from.gpus = {*parse_gpu_group("n[1-4]=h200:2:143156", "")};
  EXPECT_THAT(remembered(), HasSubstr("n[1-4]=h200:2:150109945856B:/dev/nvidia[0-1]\n"));
}

TEST(Setup, VersionsAreRead) {
  EXPECT_EQ(parse_slurm_version("slurm-wlm 22.05.8"), (SlurmVersion{22, 5, 8}));
  EXPECT_EQ(parse_slurm_version("slurm 24.11.5-1"), (SlurmVersion{24, 11, 5}));
  EXPECT_EQ(parse_slurm_version("nothing"), std::nullopt);
  EXPECT_LT((SlurmVersion{23, 11, 4}), kMixingFixed);
  EXPECT_EQ(to_string(SlurmVersion{22, 5, 8}), "22.05.8");
}

TEST(Site, KnowsItsPartitionsModels) {
  Files files{{"/s/slurm.conf",
               "NodeName=a[1-2] Feature=big\nNodeName=b1\nNodeSet=bigs Feature=big\n"
               "PartitionName=DEFAULT Nodes=b1\nPartitionName=x Nodes=bigs Default=YES\n"
               "PartitionName=y\nPartitionName=z Nodes=a2,b1\n"}};
  const auto site = read_site("/s/slurm.conf", reader(files));
  ASSERT_TRUE(site) << site.error().message;
  const auto table = make_site_table(
      *site, {{{"a1", "a2"}, "h200", 4, gib(140), "/dev/x"}, {{"b1"}, "t4", 2, gib(15), "/dev/x"}},
      {}, {24, 11, 0});
  ASSERT_EQ(table.partitions.size(), 3U);
  EXPECT_EQ(table.default_partition, "x");
  EXPECT_EQ(table.partitions[0].models, std::vector<std::string>{"h200"});
  EXPECT_EQ(table.partitions[1].models, std::vector<std::string>{"t4"});
  EXPECT_EQ(table.partitions[2].models, (std::vector<std::string>{"h200", "t4"}));
  EXPECT_EQ(table.models[0].shards, 120);
  EXPECT_EQ(table.models[0].most_per_node, 4);
  EXPECT_FALSE(table.whole_as_shards);
}

TEST(Site, KnowsWhereSharesCanBeAndWhoseTheGpusAre) {
  Files files{{"/s/slurm.conf",
               "NodeName=a[1-2]\nNodeName=b1\nNodeName=c1 Gres=gpu:2,mps:200\nNodeName=d1\n"
               "PartitionName=open Nodes=a1\nPartitionName=beside Nodes=a[1-2]\n"
               "PartitionName=own Nodes=b1\nPartitionName=theirs Nodes=c1\n"
               "PartitionName=cpu Nodes=d1\n"}};
  const auto site = read_site("/s/slurm.conf", reader(files));
  ASSERT_TRUE(site) << site.error().message;
  SiteSettings settings;
  settings.share.partitions = {"op*"};
  const auto table = make_site_table(*site, {{{"a1", "a2", "b1"}, "h200", 4, gib(140), "/dev/x"}},
                                     settings, {22, 5, 8});
  std::vector<std::string> shared;
  std::vector<std::string> foreign;
  for (const PartitionGpus& partition : table.partitions) {
    if (partition.shared) shared.push_back(partition.name);
    if (partition.foreign) foreign.push_back(partition.name);
  }
  EXPECT_EQ(shared, (std::vector<std::string>{"open", "beside"}));
  EXPECT_EQ(foreign, std::vector<std::string>{"theirs"});
}

TEST(Setup, AStepIsAsPatientAsSlurm) {
  auto from = input();
  const auto plugstack = [&](const std::string& line) {
    Files files{{"/s/slurm.conf", kConf + line}};
    const auto plan = plan_setup(from, reader(files));
    if (!plan) return plan.error().message;
    carry_out(files, *plan);
    return files["/s/plugstack.conf"];
  };
  EXPECT_THAT(plugstack("MessageTimeout=10\n"), Not(HasSubstr("timeout=")));
  EXPECT_THAT(plugstack("MessageTimeout=60\n"), HasSubstr(" timeout=60000\n"));
  from.settings.agent.patience = 5;
  EXPECT_THAT(plugstack("MessageTimeout=60\n"), HasSubstr(" timeout=5000\n"));
}

TEST(Setup, TellsThePluginWhichPartitionsAreSlurmsOwn) {
  Files files{{"/s/slurm.conf",
               "NodeName=a1\nNodeName=b1\nNodeName=c1 Gres=gpu:2\nPartitionName=open Nodes=a1\n"
               "PartitionName=own Nodes=b1 Default=YES\nPartitionName=theirs Nodes=c1\n"}};
  auto from = input();
  from.gpus = {*parse_gpu_group("a1=h200:4:141G", "a1"), *parse_gpu_group("b1=h200:4:141G", "b1")};
  from.settings.share.partitions = {"open"};
  from.version = {22, 5, 8};
  const auto line = [&] {
    const auto plan = plan_setup(from, reader(files));
    if (!plan) return plan.error().message;
    for (const auto& change : plan->changes) {
      if (change.path == "/s/plugstack.conf") return change.after.value_or("");
    }
    return std::string();
  };
  EXPECT_THAT(line(), HasSubstr(" whole=own* foreign=theirs\n"));
  from.version = {24, 11, 5};
  EXPECT_THAT(line(), Not(HasSubstr("whole=")));
}

TEST(Site, AFileThatIncludesItselfIsTold) {
  Files files{{"/s/slurm.conf", "Include slurm.conf\n"}};
  const auto site = read_site("/s/slurm.conf", reader(files));
  ASSERT_FALSE(site);
  EXPECT_THAT(site.error().message, HasSubstr("includes itself"));
}

TEST(SlurmCheck, AFreshSetupIsWellAndAMissingOneIsNot) {
  Files files{{"/s/slurm.conf", kConf}};
  const auto failures = [&] {
    auto from = input();
    from.gpus = files.contains("/s/gres.conf") ? std::vector<GpuGroup>{} : from.gpus;
    std::size_t count = 0;
    for (const Check& check : check_files(from, reader(files))) {
      if (check.level == Check::Level::fail) {
        ++count;
        EXPECT_FALSE(check.cure.empty()) << check.finding;
      }
    }
    return count;
  };
  EXPECT_GE(failures(), 6U);
  carry_out(files, planned(input(), files));
  EXPECT_EQ(failures(), 0U);
}

TEST(SlurmCheck, NamesIllNodesAndStaleSamples) {
  SlurmNode well{.name = "n1",
                 .state = "IDLE",
                 .gres = "gpu:h200:4,shard:h200:480",
                 .extra = "aliquot:0=0%/0M",
                 .weight = 1003};
  SlurmNode drained = well;
  drained.name = "n2";
  drained.state = "IDLE+DRAIN";
  drained.reason = "gres/shard count too low";
  SlurmNode stale = well;
  stale.name = "n3";
  stale.weight = 1101;
  const auto checks =
      check_cluster(std::vector<SlurmNode>{well, drained, stale}, std::vector<SlurmPartition>{}, {},
                    {{{"n1", "n2", "n3"}, "h200", 4, gib(140), "/dev/x"}});
  std::string all;
  for (const Check& check : checks) {
    all += fmt::format("{} {}: {}\n", to_string(check.level), check.name, check.finding);
  }
  EXPECT_EQ(all,
            "ok slurmctld: answers: 3 nodes\n"
            "fail node n2: IDLE+DRAIN: gres/shard count too low\n"
            "fail balancer: no fresh samples of n3\n");
}

TEST(SlurmCheck, FindsSilentNodesOtherVersionsAndNobodyHeard) {
  const SlurmNode well{.name = "n1",
                       .state = "IDLE",
                       .gres = "gpu:h200:4,shard:h200:560",
                       .extra = "aliquot:0=0%/0M",
                       .weight = 1003};
  SlurmNode silent = well;
  silent.name = "n2";
  silent.state = "IDLE*";
  SlurmNode other = well;
  other.name = "n3";
  other.extra = "aliquot:0=0%/0M/1M,v=0.0.7";
  const std::vector<SlurmNode> nodes{well, silent, other};
  const auto texts = [&](const std::vector<GpuGroup>& gpus) {
    std::string all;
    for (const Check& check : check_cluster(nodes, std::vector<SlurmPartition>{}, {}, gpus)) {
      all += fmt::format("{} {}: {}\n", to_string(check.level), check.name, check.finding);
    }
    return all;
  };
  EXPECT_EQ(texts({{{"n1", "n2", "n3"}, "h200", 4, gib(140), "/dev/x"}}),
            fmt::format("ok slurmctld: answers: 3 nodes\n"
                        "fail slurmd: that of n2 does not answer slurmctld\n"
                        "warn versions: Aliquot 0.0.7 on n3, {} on the controller\n"
                        "ok balancer: hears 3 nodes\n",
                        own_version()));
  EXPECT_THAT(texts({}), HasSubstr("fail balancer: there is no node that shares its GPUs"));
}

TEST(SlurmCheck, TakesTheAgentsWordForItsGpus) {
  const auto here = [](std::string_view version) {
    return read_agent("n1", "/s",
                      fmt::format("{{\"version\":\"{}\",\"node\":\"n1\",\"jobs\":0,\"gpus\":[{{"
                                  "\"model\":\"h200\",\"memory\":7}}]}}",
                                  version));
  };
  EXPECT_EQ(here(own_version()).check.level, Check::Level::ok);
  EXPECT_EQ(here(own_version()).devices->front().gpu.memory, Bytes(7));
  EXPECT_EQ(here(own_version()).devices->front().gpu.model, "h200");
  EXPECT_EQ(here("0.0.7").check.level, Check::Level::warn);
  EXPECT_EQ(read_agent("n1", "/s", "nonsense").devices, std::nullopt);
}

TEST(SlurmCheck, AnAgentThatDoesNotAnswerIsGivenUp) {
  const auto folder = sys::TemporaryFolder::create("check-test").value();
  const std::string path = (folder.path() / "agent.sock").string();
  const sys::Fd hung(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_un address{.sun_family = AF_UNIX, .sun_path = {}};
  path.copy(static_cast<char*>(address.sun_path), sizeof(address.sun_path) - 1);
  ASSERT_EQ(::bind(hung.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
  ASSERT_EQ(::listen(hung.get(), 4), 0);
  const auto check = check_agent("n1", path, seconds(1)).check;
  EXPECT_EQ(check.level, Check::Level::fail);
  EXPECT_EQ(check.finding, "the daemon does not answer within 1 s");
  EXPECT_EQ(check.cure, "systemctl restart aliquot-agent, and see its log");
}

TEST(SlurmCheck, FindsOurPluginInThePlugstack) {
  EXPECT_EQ(plugin_of("# optional /a/aliquot_spank.so\noptional /b/x.so\n"), "");
  EXPECT_EQ(plugin_of("optional /b/x.so\noptional /a/aliquot_spank.so socket=/s\n"),
            "/a/aliquot_spank.so");
}

TEST(SlurmCheck, ComparesGpusWithGresConf) {
  gpu::Device device;
  device.gpu.model = "h200";
  device.gpu.memory = mib(143771);
  const std::vector<GpuGroup> gpus{{{"n1"}, "h200", 2, mib(143771), "/dev/x"}};
  EXPECT_EQ(check_gpus("n1", {device, device}, gpus).level, Check::Level::ok);
  EXPECT_EQ(check_gpus("n1", {device}, gpus).finding, "gres.conf says 2 h200, there are 1 h200");
  device.gpu.memory = mib(143771) - Bytes(65536);
  EXPECT_EQ(check_gpus("n1", {device, device}, gpus).level, Check::Level::ok);
  device.gpu.memory = mib(81559) + Bytes(65536);
  const auto less = check_gpus("n1", {device, device}, gpus);
  EXPECT_EQ(less.level, Check::Level::fail);
  EXPECT_EQ(less.finding, "gres.conf gives each h200 143771 MiB, but there are 81559");
  EXPECT_EQ(less.cure, "aliquot slurm setup --gpus 'n1=h200:2:81559' --apply");
}

// Any site: set up twice is once, and undone is as before.
RC_GTEST_PROP(Setup, IsIdempotentAndCanBeUndone, ()) {
  std::string conf;
  const auto maybe = [&](std::string_view line) {
    if (*rc::gen::arbitrary<bool>()) conf += std::string(line) + "\n";
  };
  maybe("# the lab's cluster");
  maybe("GresTypes=gpu,nic");
  maybe("SelectType=select/linear SelectTypeParameters=CR_Core # both on one line");
  maybe("TaskPlugin=task/none");
  maybe("JobSubmitPlugins=throttle");
  maybe("NodeName=DEFAULT Gres=gpu:8");
  conf += "NodeName=n[1-4] CPUs=4\n";
  maybe("PartitionName=main \\\n  Nodes=ALL");
  const bool accounted = *rc::gen::arbitrary<bool>();
  if (accounted) conf += "AccountingStorageType=accounting_storage/slurmdbd\n";
  maybe("AccountingStorageTRES=gres/gpu");
  Files files{{"/s/slurm.conf", conf}};
  const auto file = [&](const std::string& path, std::vector<std::string> texts) {
    if (*rc::gen::arbitrary<bool>()) files[path] = *rc::gen::elementOf(texts);
  };
  file("/s/gres.conf", {"AutoDetect=nvml\n", "Name=gpu File=/dev/nvidia0\n", "# none\n", ""});
  file("/s/cgroup.conf", {"ConstrainDevices=yes\n", "ConstrainCores=yes\n", ""});
  file("/s/plugstack.conf", {"include plugstack.conf.d/*\n", ""});
  file("/s/job_submit.lua", {"x = 1\n", "return slurm.SUCCESS\n-- end\n"});
  const Files before = files;
  auto from = input();
  from.version = *rc::gen::element(SlurmVersion{22, 5, 8}, SlurmVersion{24, 11, 0});
  from.billing = accounted && *rc::gen::arbitrary<bool>();
  const auto plan = plan_setup(from, reader(files));
  RC_ASSERT(plan.has_value());
  carry_out(files, *plan);
  RC_ASSERT(plan_setup(from, reader(files))->changes.empty());
  carry_out(files, *plan_undo("/s/slurm.conf", reader(files)));
  RC_ASSERT(files == before);
}

}  // namespace
}  // namespace aliquot::slurm
