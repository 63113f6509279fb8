#include "cli/view/sacct_fields.hpp"

#include <gtest/gtest.h>

#include "cli/view/samples.hpp"
#include "cli/view/seff_text.hpp"

namespace aliquot::cli {
namespace {

using namespace samples;

api::JobInfo train() {
  auto one = ended(job(1, "train", ""), "COMPLETED", "None", 0, 0);
  one.gpus = {{0, "GPU-0", "h100", gib(80).value(), 10'000, true}};
  one.steps[0].max_rss = 4'833'280;
  return one;
}

std::string show(std::string_view format, const SacctLayout& layout,
                 const std::vector<api::JobInfo>& jobs, char unit = 0) {
  use_utc();
  const auto fields = choose_sacct_fields(format);
  if (!fields) return fields.error().message;
  return format_sacct(*fields, jobs, layout, {kNow, "lab", unit});
}

TEST(Sacct, PrintsJobsAndSteps) {
  auto interactive = ended(small(42, "interactive", ""), "COMPLETED", "None", 0, 0);
  interactive.steps[0].id = "0";
  interactive.steps[0].name = "env";
  EXPECT_EQ(
      show(kSacctFormat, {},
           {train(), ended(small(22, "ex3", ""), "FAILED", "NonZeroExitCode", 3, 0), interactive}),
      R"(JobID           JobName  Partition    Account  AllocCPUS      State ExitCode 
------------ ---------- ---------- ---------- ---------- ---------- -------- 
1                 train        gpu       root          4  COMPLETED      0:0 
1.batch           batch                  root          4  COMPLETED      0:0 
22                  ex3        gpu       root          1     FAILED      3:0 
22.batch          batch                  root          1     FAILED      3:0 
42           interacti+        gpu       root          1  COMPLETED      0:0 
42.0                env                  root          1  COMPLETED      0:0 
)");
}

TEST(Sacct, PrintsBriefly) {
  EXPECT_EQ(show(kSacctBrief, {.steps = false}, {train()}),
            "JobID             State ExitCode \n"
            "------------ ---------- -------- \n"
            "1             COMPLETED      0:0 \n");
  EXPECT_EQ(show(kSacctFormat, {}, {}),
            "JobID           JobName  Partition    Account  AllocCPUS      State ExitCode \n"
            "------------ ---------- ---------- ---------- ---------- ---------- -------- \n");
}

TEST(Sacct, MarksWhatDoesNotFit) {
  EXPECT_EQ(
      show("jobid,state,exitcode,elapsed,maxrss,alloctres%40", {}, {train()}),
      R"(JobID             State ExitCode    Elapsed     MaxRSS                                AllocTRES 
------------ ---------- -------- ---------- ---------- ---------------------------------------- 
1             COMPLETED      0:0   00:00:30            billing=4,cpu=4,gres/gpu:h100=1,gres/gp+ 
1.batch       COMPLETED      0:0   00:00:30      4720K cpu=4,gres/gpu:h100=1,gres/gpu=1,mem=4G+ 
)");
}

TEST(Sacct, PrintsForPrograms) {
  auto cancelled = small(3, "wrapped", "None");
  cancelled.state = "CANCELLED";
  cancelled.end_ms = kSubmit + 33'000;
  EXPECT_EQ(
      show("JobID,JobName,User,State,ExitCode,DerivedExitCode,Elapsed,Start,End,AllocTRES,NodeList,"
           "Timelimit",
           {.delimiter = "|"}, {train(), cancelled}),
      R"(JobID|JobName|User|State|ExitCode|DerivedExitCode|Elapsed|Start|End|AllocTRES|NodeList|Timelimit
1|train|root|COMPLETED|0:0|0:0|00:00:30|2026-11-15T06:44:06|2026-11-15T06:44:36|billing=4,cpu=4,gres/gpu:h100=1,gres/gpu=1,mem=4G,node=1|localhost|00:10:00
1.batch|batch||COMPLETED|0:0||00:00:30|2026-11-15T06:44:06|2026-11-15T06:44:36|cpu=4,gres/gpu:h100=1,gres/gpu=1,mem=4G,node=1|localhost|
3|wrapped|root|CANCELLED|0:0|0:0|00:00:00|2026-11-15T06:44:38|2026-11-15T06:44:38||None assigned|Partition_Limit
)");
  EXPECT_EQ(show("jobidraw,state",
                 {.header = false, .steps = false, .delimiter = "|", .trailing = true}, {train()}),
            "1|COMPLETED|\n");
  auto pending = array(7, "1-6%2");
  EXPECT_EQ(show("JobID,State,NodeList", {.header = false, .delimiter = "\x1f"}, {pending}),
            "7_[1-6%2]\x1fPENDING\x1fNone assigned\n");
}

// A width counts for every mention of its field, as it does in Slurm.
TEST(Sacct, SaysWhoCancelled) {
  auto one = small(44, "gjob", "None");
  one.state = "CANCELLED";
  one.cancelled_by = 5;
  auto waits = small(46, "gwall", "QOSMaxWallDurationPerJobLimit");
  EXPECT_EQ(show("jobid,state%20,state,exitcode,reason%20", {.steps = false}, {one, waits}),
            R"(JobID                       State                State ExitCode               Reason 
------------ -------------------- -------------------- -------- -------------------- 
44                 CANCELLED by 5       CANCELLED by 5      0:0                 None 
46                        PENDING              PENDING      0:0 QOSMaxWallDurationP+ 
)");
  one.cancelled_by = 0;
  EXPECT_EQ(accounting_state(one), "CANCELLED by 0");
  one.cancelled_by.reset();
  EXPECT_EQ(accounting_state(one), "CANCELLED");
}

TEST(Sacct, ConvertsUnits) {
  EXPECT_EQ(show("maxrss,reqmem", {.header = false, .delimiter = "|"}, {train()}, 'G'),
            "|4G\n0.00G|\n");
  EXPECT_EQ(show("nosuch", {}, {}), "Invalid field requested: \"nosuch\"");
  EXPECT_EQ(show("ela,us", {.steps = false, .delimiter = "|"}, {train()}),
            "Elapsed|User\n00:00:30|root\n");
}

TEST(Sacct, ListsItsFields) {
  const auto text = list_sacct_fields();
  EXPECT_TRUE(text.starts_with("Account             AdminComment        AllocCPUS"));
  EXPECT_TRUE(text.ends_with("\n"));
}

TEST(Seff, TellsHowMuchWasUsed) {
  auto one = train();
  one.user_cpu_ms = 60'000;
  one.max_rss = gib(1).value();
  one.gpu_ms = 30'000;
  one.gpu_utilisation = 4'250;
  one.gpu_memory_peak = gib(20).value();
  EXPECT_EQ(format_seff(one, "lab", kNow), R"(Job ID: 1
Cluster: lab
User/Group: root/root
State: COMPLETED (exit code 0)
Nodes: 1
Cores per node: 4
CPU Utilized: 00:01:00
CPU Efficiency: 50.00% of 00:02:00 core-walltime
Job Wall-clock time: 00:00:30
Memory Utilized: 1.00 GB
Memory Efficiency: 25.00% of 4.00 GB
GPU Share: gpu0:whole
GPU Time: 00:00:30
GPU Utilization: 42.5%
GPU Memory Utilized: 20.00 GB
GPU Memory Efficiency: 25.00% of 80.00 GB
)");
  EXPECT_NE(format_seff(small(3, "x", "Priority"), "lab", kNow).find("PENDING state"),
            std::string::npos);
}

}  // namespace
}  // namespace aliquot::cli
