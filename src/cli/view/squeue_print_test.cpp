#include "cli/view/squeue_print.hpp"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "cli/view/samples.hpp"
#include "cli/view/slurm_json.hpp"
#include "cli/view/squeue_fields.hpp"

namespace aliquot::cli {
namespace {

using namespace samples;

std::vector<api::JobInfo> queue() {
  auto debug = job(13, "train", "PartitionTimeLimit");
  debug.partition = "debug";
  debug.time_limit_ms = 7'200'000;
  auto begin = job(6, "train", "BeginTime");
  begin.priority = 10'630;
  begin.start_ms = kSubmit + 3'600'000;
  auto held = job(5, "train", "JobHeldUser");
  held.priority = 0;
  auto wrapped = small(3, "wrapped", "Priority");
  wrapped.priority = 10'532;
  auto stdin_job = small(14, "stdin", "Priority");
  auto arr = array(7, "1-6%2");
  arr.priority = 10'530;
  return {running(1, "train"),
          running(2, "train"),
          wrapped,
          job(4, "train", "Resources"),
          held,
          begin,
          arr,
          job(11, "train", "Priority"),
          debug,
          stdin_job,
          ended(small(9, "gone", ""), "COMPLETED", "None", 0, 0)};
}

std::string show(SqueueView view, std::vector<api::JobInfo> jobs = queue()) {
  use_utc();
  if (view.format.empty()) view.format = kSqueueFormat;
  view.context.now = kNow;
  const auto text = format_squeue(jobs, view);
  return text ? text->text : text.error().message;
}

// The order of jobs that are equal in the sort keys is ours: by id.
TEST(Squeue, PrintsTheQueue) {
  EXPECT_EQ(show({}),
            R"(             JOBID PARTITION     NAME     USER ST       TIME  NODES NODELIST(REASON)
                13     debug    train     root PD       0:00      1 (PartitionTimeLimit)
                 6       gpu    train     root PD       0:00      1 (BeginTime)
                 4       gpu    train     root PD       0:00      1 (Resources)
                11       gpu    train     root PD       0:00      1 (Priority)
                 3       gpu  wrapped     root PD       0:00      1 (Priority)
                14       gpu    stdin     root PD       0:00      1 (Priority)
         7_[1-6%2]       gpu      arr     root PD       0:00      1 (Priority)
                 5       gpu    train     root PD       0:00      1 (JobHeldUser)
                 1       gpu    train     root  R       0:29      1 localhost
                 2       gpu    train     root  R       0:29      1 localhost
)");
}

TEST(Squeue, PrintsTheLongForm) {
  SqueueView view;
  view.format = kSqueueLong;
  view.date_line = true;
  view.filter.ids = {"13", "7", "1"};
  EXPECT_EQ(show(view),
            R"(Sun Nov 15 06:44:35 2026
             JOBID PARTITION     NAME     USER    STATE       TIME TIME_LIMI  NODES NODELIST(REASON)
                13     debug    train     root  PENDING       0:00   2:00:00      1 (PartitionTimeLimit)
         7_[1-6%2]       gpu      arr     root  PENDING       0:00 UNLIMITED      1 (Priority)
                 1       gpu    train     root  RUNNING       0:29     10:00      1 localhost
)");
}

TEST(Squeue, PrintsWhenJobsMayStart) {
  SqueueView view;
  view.format = kSqueueStart;
  view.sort = "S";
  view.filter.states = {"PENDING"};
  view.filter.ids = {"6", "3", "7"};
  EXPECT_EQ(
      show(view),
      R"(             JOBID PARTITION     NAME     USER ST          START_TIME  NODES SCHEDNODES           NODELIST(REASON)
                 6       gpu    train     root PD 2026-11-15T07:44:05      1 (null)               (BeginTime)
                 3       gpu  wrapped     root PD                 N/A      1 (null)               (Priority)
         7_[1-6%2]       gpu      arr     root PD                 N/A      1 (null)               (Priority)
)");
}

TEST(Squeue, ExpandsArrays) {
  SqueueView view;
  view.expand_arrays = true;
  view.header = false;
  view.format = "%.18i %.9P %.8j";
  view.filter.ids = {"7"};
  EXPECT_EQ(show(view), R"(               7_1       gpu      arr
               7_2       gpu      arr
               7_3       gpu      arr
               7_4       gpu      arr
               7_5       gpu      arr
               7_6       gpu      arr
)");
  view.filter.ids = {"7_4"};
  EXPECT_EQ(show(view), "               7_4       gpu      arr\n");
}

TEST(Squeue, PrintsFieldsByName) {
  SqueueView view;
  view.by_name = true;
  view.format = "jobid,name,username,state,timeused,tres-alloc:60,reason";
  view.filter.ids = {"4", "14"};
  EXPECT_EQ(
      show(view),
      R"(JOBID               NAME                USER                STATE               TIME                TRES_ALLOC                                                  REASON              
4                   train               root                PENDING             0:00                cpu=4,mem=4G,node=1,billing=4,gres/gpu=1                    Resources           
14                  stdin               root                PENDING             0:00                cpu=1,mem=1G,node=1,billing=1                               Priority            
)");
}

// Open OnDemand puts a control character between the fields.
TEST(Squeue, PrintsWhatClientsAskFor) {
  SqueueView view;
  view.header = false;
  view.filter.ids = {"1"};
  view.format = "%T %B";
  EXPECT_EQ(show(view), "RUNNING localhost\n");
  view.filter.ids = {"4"};
  EXPECT_EQ(show(view), "PENDING n/a\n");
  view.format = "%i|%T";
  EXPECT_EQ(show(view), "4|PENDING\n");
  view.format = "Account:\x1f,JobID:\x1f,BatchHost:\x1f,StateCompact:,tres-alloc:";
  view.by_name = true;
  view.header = true;
  EXPECT_EQ(show(view),
            "ACCOUNT\x1fJOBID\x1f"
            "EXEC_HOST\x1fSTTRES_ALLOC\n"
            "root\x1f"
            "4\x1fn/a\x1fPDcpu=4,mem=4G,node=1,billing=4,gres/gpu=1\n");
}

TEST(Squeue, SortsByPriorityAndId) {
  SqueueView view;
  view.sort = "-p,i";
  view.format = "%.9i %.12b %.10m %.4C %Q %R";
  view.filter.ids = {"3", "4", "5", "11"};
  EXPECT_EQ(show(view), R"(    JOBID TRES_PER_NOD MIN_MEMORY CPUS PRIORITY NODELIST(REASON)
        4   gres/gpu:1         4G    4 10625 (Resources)
       11   gres/gpu:1         4G    4 10625 (Priority)
        3          N/A         1G    1 10532 (Priority)
        5   gres/gpu:1         4G    4 0 (JobHeldUser)
)");
}

TEST(Squeue, ShowsWhatEndedOnlyWhenAsked) {
  std::vector<api::JobInfo> jobs{ended(small(22, "ex3", ""), "FAILED", "NonZeroExitCode", 3, 0),
                                 ended(small(15, "envjob", ""), "COMPLETED", "None", 0, 0),
                                 ended(small(25, "sig", ""), "TIMEOUT", "TimeLimit", 0, 0)};
  auto cancelled = small(13, "train", "PartitionTimeLimit");
  cancelled.state = "CANCELLED";
  jobs.push_back(cancelled);
  SqueueView view;
  view.format = "%.8i %.8u %.2t %.12T %r %R";
  EXPECT_EQ(show(view, jobs), "   JOBID     USER ST        STATE REASON NODELIST(REASON)\n");
  view.filter.all_states = true;
  EXPECT_EQ(show(view, jobs), R"(   JOBID     USER ST        STATE REASON NODELIST(REASON)
      13     root CA    CANCELLED PartitionTimeLimit 
      15     root CD    COMPLETED None localhost
      22     root  F       FAILED NonZeroExitCode (NonZeroExitCode)
      25     root TO      TIMEOUT TimeLimit (TimeLimit)
)");
}

TEST(Squeue, PrintsDependencies) {
  auto sing = small(34, "sing", "Dependency");
  sing.dependency = "singleton(unfulfilled)";
  SqueueView view;
  view.format = "%.8i %.9P %.8j %.8u %.2t %.10M %.6D %.20E %R";
  EXPECT_EQ(
      show(view, {sing, small(35, "parent", "None")}),
      R"(   JOBID PARTITION     NAME     USER ST       TIME  NODES           DEPENDENCY NODELIST(REASON)
      34       gpu     sing     root PD       0:00      1 singleton(unfulfille (Dependency)
      35       gpu   parent     root PD       0:00      1               (null) (None)
)");
}

TEST(Squeue, PrintsRunningSteps) {
  SqueueView view;
  view.steps = true;
  view.format = kSqueueSteps;
  EXPECT_EQ(show(view), R"(         STEPID     NAME PARTITION     USER      TIME NODELIST
        1.batch    batch       gpu     root      0:29 localhost
        2.batch    batch       gpu     root      0:29 localhost
)");
}

TEST(Squeue, NamesUnknownFields) {
  auto jobs = queue();
  SqueueView view;
  view.format = "nosuch:5,jobid:3";
  view.by_name = true;
  const auto text = format_squeue(jobs, view);
  ASSERT_TRUE(text);
  EXPECT_EQ(text->unknown_fields, std::vector<std::string>{"nosuch"});
}

TEST(Squeue, PrintsSharesInWordsThatSlurmHas) {
  auto share = running(8, "share");
  share.gres = "--gpu-mem=8G --gpu-share=50% --gpus=2";
  share.gpus = {{0, "a", "h100", gib(8).value(), 5'000, false},
                {2, "b", "h100", gib(8).value(), 5'000, false}};
  SqueueView view;
  view.by_name = true;
  view.header = false;
  view.format = "tres-per-node:|,tres-alloc:|,gpushare:";
  EXPECT_EQ(show(view, {share}),
            "gres/gpumem:16G,gres/gpuutil:100|cpu=4,mem=4G,node=1,billing=4,gres/gpumem=16G,"
            "gres/gpuutil=100|gpu0:8G,50% gpu2:8G,50%\n");
}

TEST(Squeue, WritesJson) {
  auto one = running(1, "a \"b\"");
  const auto json = squeue_json({one}, "lab");
  EXPECT_NE(json.find("\"job_state\": \"RUNNING\""), json.npos);
  EXPECT_NE(json.find("\"name\": \"a \\\"b\\\"\""), json.npos);
  EXPECT_NE(json.find("\"type\": \"openapi\\/v0.0.38\""), json.npos);
  EXPECT_NE(json.find("\"start_time\": 1794725046"), json.npos);
}

RC_GTEST_PROP(SqueueProperty, SortingKeepsEveryJobAndIsInOrder, ()) {
  std::vector<api::JobInfo> jobs;
  const auto count = *rc::gen::inRange<std::int64_t>(0, 40);
  for (std::int64_t id = 1; id <= count; ++id) {
    auto one = small(id, "j", "None");
    one.priority = *rc::gen::inRange<std::int64_t>(0, 5);
    one.partition = *rc::gen::element<std::string>("a", "b");
    jobs.push_back(one);
  }
  sort_jobs(jobs, *parse_sort_keys(kSqueueSort));
  RC_ASSERT(jobs.size() == static_cast<std::size_t>(count));
  for (std::size_t i = 1; i < jobs.size(); ++i) {
    const auto& a = jobs[i - 1];
    const auto& b = jobs[i];
    RC_ASSERT(a.partition <= b.partition);
    if (a.partition == b.partition) RC_ASSERT(a.priority >= b.priority);
    if (a.partition == b.partition && a.priority == b.priority) RC_ASSERT(a.id < b.id);
  }
}

}  // namespace
}  // namespace aliquot::cli
