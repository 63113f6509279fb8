#include "cli/control/scontrol_text.hpp"

#include <gtest/gtest.h>

#include "cli/control/scontrol_update.hpp"
#include "cli/view/samples.hpp"

namespace aliquot::cli {
namespace {

using namespace samples;

TEST(Scontrol, ShowsARunningJob) {
  use_utc();
  EXPECT_EQ(show_job(running(1, "train"), {}, kNow), R"(JobId=1 JobName=train
   UserId=root(0) GroupId=root(0) MCS_label=N/A
   Priority=10625 Nice=0 Account=root QOS=normal
   JobState=RUNNING Reason=None Dependency=(null)
   Requeue=1 Restarts=0 BatchFlag=1 Reboot=0 ExitCode=0:0
   RunTime=00:00:29 TimeLimit=00:10:00 TimeMin=N/A
   SubmitTime=2026-11-15T06:44:05 EligibleTime=2026-11-15T06:44:05
   AccrueTime=2026-11-15T06:44:05
   StartTime=2026-11-15T06:44:06 EndTime=2026-11-15T06:54:06 Deadline=N/A
   SuspendTime=None SecsPreSuspend=0 LastSchedEval=2026-11-15T06:44:06 Scheduler=Main
   Partition=gpu AllocNode:Sid=localhost:0
   ReqNodeList=(null) ExcNodeList=(null)
   NodeList=localhost
   BatchHost=localhost
   NumNodes=1 NumCPUs=4 NumTasks=1 CPUs/Task=4 ReqB:S:C:T=0:0:*:*
   TRES=cpu=4,mem=4G,node=1,billing=4,gres/gpu=1,gres/gpu:h100=1
   Socks/Node=* NtasksPerN:B:S:C=0:0:*:* CoreSpec=*
   MinCPUsNode=4 MinMemoryNode=4G MinTmpDiskNode=0
   Features=(null) DelayBoot=00:00:00
   OverSubscribe=OK Contiguous=0 Licenses=(null) Network=(null)
   Command=/srv/lab/srv.sh 30
   WorkDir=/srv/lab/work
   StdErr=/srv/lab/srv-1.out
   StdIn=/dev/null
   StdOut=/srv/lab/srv-1.out
   Power=
   TresPerNode=gres/gpu:1
   GpuShare=gpu0:whole
   

)");
}

TEST(Scontrol, ShowsHowAShareIsHeld) {
  auto held = running(1, "train");
  held.enforcement = "mps(user)+library+leases+watchdog";
  EXPECT_NE(show_job(held, {}, kNow).find("\n   Enforcement=mps(user)+library+leases+watchdog\n"),
            std::string::npos);
}

TEST(Scontrol, TakesKeysAndValuesAsPairsOfWords) {
  const auto update = parse_update({"jobid", "7_[1-3],9", "timelimit", "25", "Nice"}, kNow);
  ASSERT_TRUE(update) << update.error().message;
  EXPECT_EQ(update->jobs.at(0).ids, (std::vector<std::string>{"7_[1-3]", "9"}));
  EXPECT_NE(update->jobs[0].body.find("1500000"), std::string::npos);
  EXPECT_NE(update->jobs[0].body.find("100"), std::string::npos);
  EXPECT_EQ(parse_update({"JobId=7", "MailType=x"}, kNow).error().message, "Invalid MailType: x");
}

TEST(Scontrol, ShowsPendingJobsAndArrays) {
  use_utc();
  auto pending = job(4, "train", "Resources");
  pending.start_ms = kSubmit + 601'000;
  const auto text = show_job(pending, {}, kNow);
  EXPECT_NE(text.find("StartTime=2026-11-15T06:54:06 EndTime=2026-11-15T07:04:06 Deadline=N/A\n"),
            text.npos);
  EXPECT_NE(text.find("   NodeList=\n   NumNodes=1"), text.npos);
  EXPECT_NE(text.find("   TRES=cpu="), text.npos);
  EXPECT_EQ(text.find("MailUser="), text.npos);
  pending.mail_type = "end,ALL";
  pending.nodelist = "n1";
  pending.min_memory = 300 << 20;
  pending.memory_by_cpu = true;
  const auto asked = show_job(pending, {}, kNow);
  EXPECT_NE(asked.find(" MailType=INVALID_DEPEND,BEGIN,END,FAIL,REQUEUE,STAGE_OUT\n"), asked.npos);
  EXPECT_NE(asked.find("ReqNodeList=n1 ExcNodeList=(null)\n"), asked.npos);
  EXPECT_NE(asked.find("MinMemoryCPU=300M "), asked.npos);
  EXPECT_EQ(text.find("GpuShare"), text.npos);
  const auto elements = show_job(array(7, "1-6%2"), {}, kNow);
  EXPECT_TRUE(elements.starts_with(
      "JobId=7 ArrayJobId=7 ArrayTaskId=1-6%2 ArrayTaskThrottle=2 JobName=arr\n"));
  EXPECT_NE(elements.find("TimeLimit=UNLIMITED"), elements.npos);
  EXPECT_NE(elements.find("StartTime=Unknown EndTime=Unknown"), elements.npos);
}

TEST(Scontrol, ShowsDetailsAndOneLine) {
  use_utc();
  const auto details = show_job(running(1, "train"), {.details = true}, kNow);
  EXPECT_NE(details.find("ExitCode=0:0\n   DerivedExitCode=0:0\n   RunTime"), details.npos);
  EXPECT_NE(details.find("   JOB_GRES=gpu:h100:1\n"
                         "     Nodes=localhost CPU_IDs=N/A Mem=4096 GRES=gpu:h100:1(IDX:0)\n"),
            details.npos);
  const auto line = show_job(running(1, "train"), {.one_line = true}, kNow);
  EXPECT_EQ(line.find('\n'), line.size() - 1);
  EXPECT_TRUE(line.starts_with("JobId=1 JobName=train UserId=root(0) GroupId=root(0)"));
  EXPECT_TRUE(line.ends_with("Power= TresPerNode=gres/gpu:1 GpuShare=gpu0:whole \n"));
}

TEST(Scontrol, ShowsTheNode) {
  use_utc();
  EXPECT_EQ(show_node(cluster(), {}), R"(NodeName=localhost Arch=x86_64 CoresPerSocket=16 
   CPUAlloc=8 CPUEfctv=16 CPUTot=16 CPULoad=N/A
   AvailableFeatures=(null)
   ActiveFeatures=(null)
   Gres=gpu:h100:4
   NodeAddr=localhost NodeHostName=localhost Version=22.05.8
   OS=Linux 6.18.44-fc-v445 #1 SMP PREEMPT_DYNAMIC @0 
   RealMemory=20000 AllocMem=8192 FreeMem=11808 Sockets=1 Boards=1
   State=MIXED ThreadsPerCore=1 TmpDisk=0 Weight=1 Owner=N/A MCS_label=N/A
   Partitions=gpu,debug 
   BootTime=2026-11-15T06:20:15 SlurmdStartTime=2026-11-15T06:43:23
   LastBusyTime=2026-11-15T06:43:23
   CfgTRES=cpu=16,mem=20000M,billing=16,gres/gpu=4,gres/gpu:h100=4
   AllocTRES=cpu=8,mem=8G,gres/gpu=2,gres/gpu:h100=2
   CapWatts=n/a
   CurrentWatts=0 AveWatts=0
   ExtSensorsJoules=n/s ExtSensorsWatts=0 ExtSensorsTemp=n/s

)");
  auto drained = cluster();
  drained.node.state = "draining";
  drained.node.reason = "bad gpu 2";
  EXPECT_NE(show_node(drained, {}).find("State=MIXED+DRAIN "), std::string::npos);
  EXPECT_NE(show_node(drained, {}).find("\n   Reason=bad gpu 2\n"), std::string::npos);
  drained.node.gpus[2].reason = "bad fan";
  drained.node.gpus[2].reason_user = "root";
  EXPECT_NE(show_node(drained, {}).find("\n   GpuReason=2: bad fan [root@Unknown]\n"),
            std::string::npos);
  EXPECT_NE(show_node(drained, {.details = true}).find("GresDrain=gpu:h100:1(IDX:2)"),
            std::string::npos);
  drained.simulated = true;
  EXPECT_NE(show_node(drained, {}).find("GpuSimulated=yes"), std::string::npos);
}

TEST(Scontrol, ShowsPartitions) {
  const auto info = cluster();
  EXPECT_EQ(show_partition(info, info.partitions[1], {}), R"(PartitionName=debug
   AllowGroups=ALL AllowAccounts=ALL AllowQos=ALL
   AllocNodes=ALL Default=NO QoS=N/A
   DefaultTime=NONE DisableRootJobs=NO ExclusiveUser=NO GraceTime=0 Hidden=NO
   MaxNodes=UNLIMITED MaxTime=00:30:00 MinNodes=0 LLN=NO MaxCPUsPerNode=UNLIMITED
   Nodes=localhost
   PriorityJobFactor=1 PriorityTier=1 RootOnly=NO ReqResv=NO OverSubscribe=NO
   OverTimeLimit=NONE PreemptMode=OFF
   State=UP TotalCPUs=16 TotalNodes=1 SelectTypeParameters=NONE
   JobDefaults=(null)
   DefMemPerNode=UNLIMITED MaxMemPerNode=UNLIMITED
   TRES=cpu=16,mem=20000M,node=1,billing=16,gres/gpu=4,gres/gpu:h100=4

)");
  auto narrow = info.partitions[1];
  narrow.groups = {"staff", "ml"};
  narrow.users = {"ann"};
  narrow.gpus = {0, 3};
  narrow.tier = 7;
  const auto text = show_partition(info, narrow, {});
  EXPECT_NE(text.find("AllowGroups=staff,ml "), std::string::npos);
  EXPECT_NE(text.find("PriorityTier=7 "), std::string::npos);
  EXPECT_NE(text.find("billing=16,gres/gpu=2,gres/gpu:h100=2\n   AllowUsers=ann\n   Gpus=0,3\n"),
            std::string::npos);
}

TEST(Scontrol, ShowsSteps) {
  use_utc();
  const auto one = running(1, "train");
  EXPECT_EQ(show_step(one, one.steps[0], {}),
            R"(StepId=1.batch UserId=0 StartTime=2026-11-15T06:44:06 TimeLimit=UNLIMITED
   State=RUNNING Partition=gpu NodeList=localhost
   Nodes=1 CPUs=0 Tasks=1 Name=batch Network=(null)
   TRES=(null)
   ResvPorts=(null)
   CPUFreqReq=Default
   SrunHost:Pid=(null):0

)");
}

// snakemake reads MinJobAge.
TEST(Scontrol, ShowsTheConfiguration) {
  use_utc();
  auto info = cluster();
  info.config["Policy"] = "best-fit";
  const auto text = show_config(info, kNow);
  EXPECT_TRUE(text.starts_with("Configuration data as of 2026-11-15T06:44:35\n"));
  EXPECT_NE(text.find("\nMinJobAge               = 300 sec\n"), text.npos);
  EXPECT_NE(text.find("\nPolicy                  = best-fit\n"), text.npos);
}

std::string body(std::initializer_list<std::string_view> words) {
  const auto update = parse_update(words, kNow);
  if (!update) return update.error().message;
  return update->jobs.empty() ? "node" : update->jobs[0].body;
}

TEST(ScontrolUpdate, ReadsChangesOfJobs) {
  EXPECT_EQ(body({"JobId=4", "TimeLimit=5:00"}), "{\n  \"time_limit_ms\": 300000\n}\n");
  EXPECT_EQ(body({"jobid=4,5", "name=x", "priority=7", "Nice=-3"}),
            "{\n  \"name\": \"x\",\n  \"priority\": 7,\n  \"nice\": -3\n}\n");
  EXPECT_EQ(body({"JobId=4", "TimeLimit=UNLIMITED"}), "{\n  \"time_limit_ms\": null\n}\n");
  EXPECT_EQ(body({"JobId=4", "TimeLimit=soon"}), "scontrol: error: Invalid TimeLimit value");
  EXPECT_EQ(body({"JobId=4"}), "No changes specified");
  EXPECT_EQ(body({"JobId=4", "Frob=1"}),
            "Update of this parameter is not supported: Frob=1\nRequest aborted");
  EXPECT_EQ(body({"Frob"}),
            "No valid entity in update command\nInput line must include \"NodeName\", "
            "\"PartitionName\", \"Reservation\", \"JobId\", or \"SlurmctldDebug\"");
}

TEST(ScontrolUpdate, ReadsTheNodesState) {
  const auto gpus = parse_update({"nodename=here", "gpu=0,2", "state=down", "reason=fan"}, kNow);
  ASSERT_TRUE(gpus);
  EXPECT_EQ(gpus->nodes[0].gpus, (std::vector<std::int64_t>{0, 2}));
  EXPECT_TRUE(gpus->nodes[0].drain && gpus->nodes[0].down);
  EXPECT_FALSE(parse_update({"nodename=here", "gpu=x", "state=drain", "reason=fan"}, kNow));
  const auto drain = parse_update({"nodename=localhost", "state=drain", "reason=bad gpu 2"}, kNow);
  ASSERT_TRUE(drain);
  ASSERT_EQ(drain->nodes.size(), 1U);
  EXPECT_TRUE(drain->nodes[0].drain);
  EXPECT_EQ(drain->nodes[0].reason, "bad gpu 2");
  EXPECT_FALSE(parse_update({"NodeName=n", "State=drain"}, kNow));
  EXPECT_FALSE(parse_update({"NodeName=n", "State=purple"}, kNow));
  EXPECT_FALSE(parse_update({"NodeName=n", "State=resume"}, kNow)->nodes[0].drain);
}

}  // namespace
}  // namespace aliquot::cli
