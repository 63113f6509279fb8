#include "node/environment.hpp"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "node/cgroup.hpp"
#include "node/testing.hpp"
#include "sys/file.hpp"

namespace aliquot::node {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsSupersetOf;
using ::testing::Not;
using ::testing::StartsWith;

constexpr std::int64_t kMiB = 1024L * 1024;

struct Example {
  Example() {
    job.id = 20;
    job.name = "envjob";
    job.user = "root";
    job.account = "root";
    job.partition = "gpu";
    job.qos = "normal";
    job.node = "localhost";
    job.work_dir = "/srv/lab/work";
    job.submit_host = "vm";
    job.start_ms = 1'700'000'000'123;
    job.time_limit_ms = 60'000;
    job.ntasks = 2;
    job.cpus = 4;
    job.memory = 2048 * kMiB;
    job.gpus.resize(2);
    job.gpus[0].uuid = "GPU-aa";
    job.gpus[1].index = 1;
    job.gpus[1].uuid = "GPU-bb";
    spec.ntasks = 2;
    spec.cpus_per_task = 2;
    spec.memory = 2048 * kMiB;
  }
  [[nodiscard]] JobContext context() const {
    return {.job = job, .spec = spec, .cluster = "lab", .mark = "20:ff"};
  }
  api::JobInfo job;
  api::JobSpec spec;
};

// The recorded environment of a batch job, with UUIDs for indices, and without what names a
// slurmctld.
TEST(BatchEnvironment, IsSlurms) {
  const Example example;
  const auto environment = batch_environment(
      example.context(), {"HOME=/root", "SHELL=/bin/bash", "CUDA_HOME=/usr/local/cuda"});
  const std::vector<std::string> recorded = {"CUDA_HOME=/usr/local/cuda",
                                             "CUDA_VISIBLE_DEVICES=GPU-aa,GPU-bb",
                                             "ENVIRONMENT=BATCH",
                                             "HOME=/root",
                                             "HOSTNAME=localhost",
                                             "SHELL=/bin/bash",
                                             "SLURMD_NODENAME=localhost",
                                             "SLURM_CLUSTER_NAME=lab",
                                             "SLURM_CPUS_ON_NODE=4",
                                             "SLURM_CPUS_PER_TASK=2",
                                             "SLURM_GPUS_ON_NODE=2",
                                             "SLURM_GTIDS=0",
                                             "SLURM_JOBID=20",
                                             "SLURM_JOB_ACCOUNT=root",
                                             "SLURM_JOB_CPUS_PER_NODE=4",
                                             "SLURM_JOB_GID=0",
                                             "SLURM_JOB_GPUS=0,1",
                                             "SLURM_JOB_ID=20",
                                             "SLURM_JOB_NAME=envjob",
                                             "SLURM_JOB_NODELIST=localhost",
                                             "SLURM_JOB_NUM_NODES=1",
                                             "SLURM_JOB_PARTITION=gpu",
                                             "SLURM_JOB_QOS=normal",
                                             "SLURM_JOB_UID=0",
                                             "SLURM_JOB_USER=root",
                                             "SLURM_LOCALID=0",
                                             "SLURM_MEM_PER_NODE=2048",
                                             "SLURM_NNODES=1",
                                             "SLURM_NODEID=0",
                                             "SLURM_NODELIST=localhost",
                                             "SLURM_NODE_ALIASES=(null)",
                                             "SLURM_NPROCS=2",
                                             "SLURM_NTASKS=2",
                                             "SLURM_PRIO_PROCESS=0",
                                             "SLURM_PROCID=0",
                                             "SLURM_SUBMIT_DIR=/srv/lab/work",
                                             "SLURM_SUBMIT_HOST=vm",
                                             "SLURM_TASKS_PER_NODE=2",
                                             "SLURM_TOPOLOGY_ADDR=localhost",
                                             "SLURM_TOPOLOGY_ADDR_PATTERN=node",
                                             "TMPDIR=/tmp"};
  EXPECT_THAT(environment, IsSupersetOf(recorded));
  EXPECT_THAT(environment,
              IsSupersetOf({"CUDA_DEVICE_ORDER=PCI_BUS_ID", "ALIQUOT_JOB=20:ff",
                            "SLURM_JOB_START_TIME=1700000000", "SLURM_JOB_END_TIME=1700000060"}));
  for (const auto* name : {"SLURM_ARRAY_JOB_ID", "SLURM_GPUS", "SLURM_RESTART_COUNT",
                           "SLURM_JOB_DEPENDENCY", "SLURM_STEP_ID", "SLURM_NTASKS_PER_NODE"}) {
    EXPECT_FALSE(get(environment, name)) << name;
  }
}

TEST(BatchEnvironment, OfAnArrayElement) {
  Example example;
  example.job.array_job_id = 16;
  example.job.array_task_id = 5;
  example.job.array_count = 2;
  example.job.array_min = 3;
  example.job.array_max = 5;
  example.job.restarts = 1;
  example.spec.gpus = "1";
  example.spec.ntasks.reset();
  example.spec.memory.reset();
  example.spec.memory_per_cpu = 1024 * kMiB;
  const auto environment = batch_environment(example.context(), {});
  EXPECT_THAT(
      environment,
      IsSupersetOf({"SLURM_ARRAY_JOB_ID=16", "SLURM_ARRAY_TASK_ID=5", "SLURM_ARRAY_TASK_COUNT=2",
                    "SLURM_ARRAY_TASK_MIN=3", "SLURM_ARRAY_TASK_MAX=5", "SLURM_ARRAY_TASK_STEP=1",
                    "SLURM_GPUS=1", "SLURM_MEM_PER_CPU=1024", "SLURM_RESTART_COUNT=1"}));
  EXPECT_FALSE(get(environment, "SLURM_NTASKS"));
  EXPECT_FALSE(get(environment, "SLURM_MEM_PER_NODE"));
}

TEST(BatchEnvironment, WithoutGpusShowsNone) {
  Example example;
  example.job.gpus.clear();
  const auto environment = batch_environment(example.context(), {"CUDA_VISIBLE_DEVICES=0,1,2,3"});
  EXPECT_EQ(get(environment, "CUDA_VISIBLE_DEVICES"), "");
  EXPECT_FALSE(get(environment, "SLURM_JOB_GPUS"));
}

TEST(BatchEnvironment, ShowsNothingOfAnOuterJob) {
  const Example example;
  const auto environment = batch_environment(
      example.context(), {"SLURM_ARRAY_TASK_ID=9", "SLURM_STEP_ID=3", "SLURM_JOB_ID=1",
                          "SLURM_CPU_BIND=none", "ALIQUOT_JOB=1:00", "SLURM_CONF=/etc/slurm.conf"});
  EXPECT_FALSE(get(environment, "SLURM_ARRAY_TASK_ID"));
  EXPECT_FALSE(get(environment, "SLURM_STEP_ID"));
  EXPECT_FALSE(get(environment, "SLURM_CONF"));
  EXPECT_EQ(get(environment, "SLURM_JOB_ID"), "20");
  EXPECT_EQ(get(environment, "ALIQUOT_JOB"), "20:ff");
  EXPECT_EQ(get(environment, "SLURM_CPU_BIND"), "none") << "a setting for srun stays";
}

TEST(BatchEnvironment, KnowsWhereItWasSubmittedFrom) {
  Example example;
  example.spec.environment = {"SLURM_SUBMIT_DIR=/srv/elsewhere"};
  EXPECT_EQ(get(batch_environment(example.context(), {}), "SLURM_SUBMIT_DIR"), "/srv/elsewhere");
  auto context = example.context();
  context.submit_dir = "/srv/third";
  EXPECT_EQ(get(batch_environment(context, {}), "SLURM_SUBMIT_DIR"), "/srv/third");
}

TEST(BatchEnvironment, FindsTheStandIn) {
  const Example example;
  auto context = example.context();
  context.standin = gpu::StandIn{"/opt/standin", "h200:4", "/run/aliquot/gpus", true};
  const auto environment =
      batch_environment(context, {"PATH=/usr/bin", "LD_LIBRARY_PATH=/home/me/lib"});
  EXPECT_THAT(environment, IsSupersetOf({"LD_LIBRARY_PATH=/opt/standin:/home/me/lib",
                                         "PATH=/opt/standin:/usr/bin", "ALIQUOT_STANDIN=h200:4",
                                         "ALIQUOT_STANDIN_STATE=/run/aliquot/gpus",
                                         "ALIQUOT_STANDIN_SHARED=1"}));
  EXPECT_EQ(get(batch_environment(context, environment), "PATH"), "/opt/standin:/usr/bin")
      << "a job inside a job";
  EXPECT_EQ(get(batch_environment(context, {}), "LD_LIBRARY_PATH"), "/opt/standin");
  EXPECT_FALSE(get(batch_environment(example.context(), {}), "LD_LIBRARY_PATH"));
}

TEST(BatchEnvironment, FindsOurCommandsFirst) {
  Example example;
  auto context = example.context();
  context.commands = "/opt/commands";
  context.socket = "/run/s";
  const auto environment = batch_environment(context, {"PATH=/usr/bin:/opt/commands:/bin"});
  EXPECT_EQ(get(environment, "PATH"), "/opt/commands:/usr/bin:/bin");
  EXPECT_EQ(get(environment, "ALIQUOT_SOCKET"), "/run/s");
  context.standin = gpu::StandIn{"/opt/standin", "h200:4", "/tmp/state", false};
  const auto once = batch_environment(context, environment);
  EXPECT_EQ(get(once, "PATH"), "/opt/commands:/opt/standin:/usr/bin:/bin");
  EXPECT_EQ(get(batch_environment(context, once), "PATH"), get(once, "PATH"));
  // The client puts these in front of its own.
  EXPECT_EQ(get(allocation_environment(context), "PATH"), "/opt/commands:/opt/standin");
  EXPECT_EQ(get(step_environment(context, {}), "LD_LIBRARY_PATH"), "/opt/standin");
}

TEST(BatchEnvironment, WhatEnforcementSetsWins) {
  const Example example;
  auto context = example.context();
  context.extra = {"CUDA_VISIBLE_DEVICES=MIG-1", "LD_PRELOAD=/x.so"};
  const auto environment = batch_environment(context, {"LD_PRELOAD=/y.so"});
  EXPECT_EQ(get(environment, "CUDA_VISIBLE_DEVICES"), "MIG-1");
  EXPECT_EQ(get(environment, "LD_PRELOAD"), "/x.so");
}

TEST(BatchEnvironment, TheLibraryComesFirstAndOnlyOurs) {
  const Example example;
  auto context = example.context();
  const Environment user = {"LD_PRELOAD=/lib/mine.so /outer/libaliquot.so", "ALIQUOT_GRANT=/outer",
                            "CUDA_MPS_PIPE_DIRECTORY=/outer"};
  auto environment = batch_environment(context, user);
  EXPECT_EQ(get(environment, "LD_PRELOAD"), "/lib/mine.so");
  EXPECT_EQ(get(environment, "ALIQUOT_GRANT"), std::nullopt);
  EXPECT_EQ(get(environment, "CUDA_MPS_PIPE_DIRECTORY"), std::nullopt);
  context.preload = "/usr/lib/aliquot/libaliquot.so";
  context.extra = {"ALIQUOT_GRANT=/run/7"};
  environment = batch_environment(context, user);
  EXPECT_EQ(get(environment, "LD_PRELOAD"), "/usr/lib/aliquot/libaliquot.so:/lib/mine.so");
  EXPECT_EQ(get(environment, "ALIQUOT_GRANT"), "/run/7");
  EXPECT_EQ(get(allocation_environment(context), "LD_PRELOAD"), context.preload);
  EXPECT_EQ(get(step_environment(context, {}), "LD_PRELOAD"), context.preload);
}

TEST(StepEnvironment, AddsTheStepToTheJob) {
  const Example example;
  const auto environment = step_environment(example.context(), {.step = 0, .ntasks = 2});
  EXPECT_THAT(environment, IsSupersetOf({"SLURM_JOB_ID=20", "SLURM_STEP_ID=0", "SLURM_STEPID=0",
                                         "SLURM_STEP_NODELIST=localhost", "SLURM_STEP_NUM_NODES=1",
                                         "SLURM_STEP_NUM_TASKS=2", "SLURM_STEP_TASKS_PER_NODE=2",
                                         "SLURM_STEP_GPUS=0,1", "SLURM_NTASKS=2",
                                         "SLURM_UMASK=0022", "SLURM_LAUNCH_NODE_IPADDR=127.0.0.1",
                                         "SRUN_DEBUG=3", "CUDA_VISIBLE_DEVICES=GPU-aa,GPU-bb"}));
  EXPECT_FALSE(get(environment, "ENVIRONMENT"));
  EXPECT_FALSE(get(allocation_environment(example.context()), "SLURM_STEP_ID"));
}

// Programs parse them as integers.
TEST(VisibleGpus, AreIndexesAsWithSlurm) {
  Example example;
  const auto visible = [&](GpuNames names, std::vector<std::pair<int, const char*>> gpus) {
    example.job.gpus.clear();
    for (const auto& [index, uuid] : gpus) {
      example.job.gpus.push_back({.index = index, .uuid = uuid, .model = {}});
    }
    auto context = example.context();
    context.gpu_names = names;
    return std::string(get(batch_environment(context, {}), "CUDA_VISIBLE_DEVICES").value_or("-"));
  };
  using enum GpuNames;
  EXPECT_EQ(visible(index, {{1, "GPU-b"}, {3, "GPU-d"}}), "1,3");
  EXPECT_EQ(visible(own_index, {{1, "GPU-b"}, {3, "GPU-d"}}), "0,1");
  EXPECT_EQ(visible(own_index, {{3, "GPU-d"}, {1, "GPU-b"}}), "1,0");
  EXPECT_EQ(visible(own_index, {}), "");
  EXPECT_EQ(visible(own_index, {{0, "MIG-x"}}), "MIG-x");
  EXPECT_EQ(visible(index, {{0, "GPU-a"}, {1, "MIG-x"}}), "GPU-a,MIG-x");
}

RC_GTEST_PROP(VisibleGpusProperty, OwnIndexesAreEachOnce, ()) {
  const auto indices =
      *rc::gen::nonEmpty(rc::gen::unique<std::vector<int>>(rc::gen::inRange(0, 16)));
  Example example;
  example.job.gpus.clear();
  for (const int one : indices) {
    example.job.gpus.push_back({.index = one, .uuid = "GPU-x", .model = {}});
  }
  auto context = example.context();
  context.gpu_names = GpuNames::own_index;
  const auto environment = batch_environment(context, {});
  const auto text = get(environment, "CUDA_VISIBLE_DEVICES").value_or("");
  std::set<std::string_view> seen;
  for (const auto part : split(text, ',')) {
    RC_ASSERT(parse_digits(part).value_or(99) < std::ssize(indices));
    seen.insert(part);
  }
  RC_ASSERT(seen.size() == indices.size());
}

TEST(Merge, TheLaterWinsAndNonsenseGoes) {
  EXPECT_EQ(merge({"A=1", "B=2", "A=3"}, {"B=", "=x", "novalue", "C=a=b"}),
            (Environment{"A=3", "B=", "C=a=b"}));
}

RC_GTEST_PROP(Merge, EveryNameIsThereOnce, (const std::vector<std::string>& words)) {
  const auto all = merge(words, words);
  for (const auto& variable : all) {
    const auto name = variable.substr(0, variable.find('='));
    RC_ASSERT(std::count_if(all.begin(), all.end(), [&](const std::string& other) {
                return other.substr(0, other.find('=')) == name;
              }) == 1);
  }
}

class Login : public ::testing::Test {
 protected:
  Login() : user_(test::me()) {
    user_.home = folder_.path().string();
    user_.shell = "/bin/bash";
  }
  void profile(const std::string& text) {
    ASSERT_TRUE(sys::write_whole(folder_.path() / ".bash_profile", text, 0644, false));
  }
  test::Folder folder_;
  sys::Identity user_;
};

TEST_F(Login, IsWhatTheProfileMakesIt) {
  profile("echo Welcome; export FROM_PROFILE='a\nb'\n");
  setenv("DAEMON_SECRET", "1", 1);
  const auto login = login_environment(user_, seconds(60));
  EXPECT_EQ(login.warning, "");
  EXPECT_EQ(get(login.environment, "FROM_PROFILE"), "a\nb");
  EXPECT_EQ(get(login.environment, "HOME"), user_.home);
  EXPECT_EQ(get(login.environment, "USER"), user_.user);
  EXPECT_FALSE(get(login.environment, "DAEMON_SECRET"));
  EXPECT_FALSE(get(login.environment, "ALIQUOT_JOB"));
}

TEST_F(Login, DoesNotWaitForever) {
  profile("sleep 300\n");
  const auto login = login_environment(user_, Millis(300));
  EXPECT_THAT(login.warning, HasSubstr("the profile took over 300 ms"));
  EXPECT_EQ(get(login.environment, "HOME"), user_.home);
  EXPECT_TRUE(get(login.environment, "PATH"));
}

TEST_F(Login, OfAUserWithoutAShellIsTheLeast) {
  user_.shell = "/bin/false";
  const auto login = login_environment(user_);
  EXPECT_THAT(login.warning, HasSubstr("/bin/false printed none"));
  EXPECT_EQ(get(login.environment, "USER"), user_.user);
  user_.shell = "/no/such/shell";
  EXPECT_THAT(login_environment(user_).warning, HasSubstr("No such file"));
}

TEST_F(Login, RunsTheProfileAsTheUser) {
  auto user = test::someone();
  if (!user) GTEST_SKIP() << "needs root and the user games";
  user->home = user_.home;
  user->shell = "/bin/bash";
  profile("export WHO=$(id -u)\n");
  EXPECT_EQ(get(login_environment(*user, seconds(60)).environment, "WHO"),
            std::to_string(user->uid.value()));
}

// In no session and without a mark it could only be found by the job's group.
TEST_F(Login, LeavesNothingOfTheProfileRunning) {
  const auto cgroups = open_cgroups("aliquot-test");
  if (!cgroups->available()) GTEST_SKIP() << cgroups->capabilities();
  const Group group{JobId(getpid())};  // tests run side by side
  const auto paths = cgroups->create(group, {});
  ASSERT_TRUE(paths) << paths.error().message;
  profile("(setsid env -i /bin/sleep 300 &)\nexport GROUP=$(cat /proc/self/cgroup)\n");
  const auto login = login_environment(user_, seconds(60), {}, *paths);
  EXPECT_THAT(std::string(get(login.environment, "GROUP").value_or("")),
              HasSubstr(fmt::format("/aliquot-test/job_{}", getpid())));
  EXPECT_TRUE(group_processes(*paths)->empty());
  EXPECT_TRUE(cgroups->remove(group));
}

// Whoever is outside of the group, with a mark or not, is not even looked at.
TEST_F(Login, WithAGroupNobodysEnvironmentIsRead) {
  const auto cgroups = open_cgroups("aliquot-test");
  if (!cgroups->available()) GTEST_SKIP() << cgroups->capabilities();
  const Group group{JobId(getpid())};
  const auto paths = cgroups->create(group, {});
  ASSERT_TRUE(paths) << paths.error().message;
  std::string leave;
  for (const auto& [controller, folder] : paths->folders) {
    const auto outside = std::filesystem::path(folder).parent_path().parent_path();
    leave += fmt::format("echo 0 >{}/cgroup.procs; ", outside.string());
  }
  profile(
      fmt::format("(bash -c '{} exec sleep 300' & echo $! >$HOME/outside)\n"
                  "until [[ $(</proc/$(<$HOME/outside)/comm) = sleep ]]; do :; done\n",
                  leave));
  (void)login_environment(user_, seconds(60), {}, *paths);
  const Pid outside(std::stoi(sys::read_whole(folder_.path() / "outside").value()));
  const auto left = sys::read_process(outside);
  ASSERT_TRUE(left);
  EXPECT_TRUE(sys::is_alive(left->ref));
  kill(outside.value(), SIGKILL);
  EXPECT_TRUE(cgroups->remove(group));
}

TEST_F(Login, HandsTheProfileNoFileOfOurs) {
  const sys::Fd leak(open("/dev/null", O_RDONLY));  // NOLINT: not close-on-exec, on purpose
  profile("export FILES=$(ls /proc/self/fd | wc -l)\n");
  // 0, 1, 2 and the one ls reads the folder with.
  EXPECT_EQ(get(login_environment(user_, seconds(60)).environment, "FILES"), "4");
}

}  // namespace
}  // namespace aliquot::node
