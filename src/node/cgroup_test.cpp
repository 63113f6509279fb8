#include "node/cgroup.hpp"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

#include "node/fake_cgroups.hpp"
#include "node/spawn.hpp"
#include "node/testing.hpp"
#include "sys/file.hpp"

namespace aliquot::node {
namespace {

using ::testing::HasSubstr;

SpawnSpec shell(const std::string& script, const GroupPaths& group) {
  SpawnSpec spec;
  spec.identity = test::me();
  spec.file = "/bin/sh";
  spec.argv = {"sh", "-c", script};
  spec.environment = {"PATH=/usr/bin:/bin"};
  spec.group = group;
  return spec;
}

int wait_for(Pid pid) {
  int status = 0;
  waitpid(pid.value(), &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

// Whatever this machine offers.
class RealCgroups : public ::testing::Test {
 protected:
  void SetUp() override {
    cgroups_ = open_cgroups("aliquot-test");
    if (!cgroups_->available()) GTEST_SKIP() << cgroups_->capabilities();
  }
  void TearDown() override {
    if (!cgroups_->available()) return;
    EXPECT_TRUE(cgroups_->kill(group_, seconds(10)));
    EXPECT_TRUE(test::eventually([&] { return cgroups_->remove(group_).has_value(); }));
  }
  [[nodiscard]] bool is_v1() const { return cgroups_->capabilities().starts_with("v1"); }

  std::unique_ptr<Cgroups> cgroups_;
  Group group_{{JobId(getpid())}};
};

TEST_F(RealCgroups, KnowInWhoseGroupAProcessIs) {
  group_.run.attempt = 2;
  ASSERT_TRUE(cgroups_->create(group_, {}));
  const Group step{group_.run, 3};
  ASSERT_TRUE(cgroups_->create(step, {}));
  const pid_t child = fork();
  if (child == 0) {
    pause();
    _exit(0);
  }
  EXPECT_EQ(cgroups_->run_of(Pid(child)), std::nullopt);
  for (const Group& group : {group_, step}) {
    EXPECT_TRUE(cgroups_->add(group, Pid(child)));
    EXPECT_EQ(cgroups_->run_of(Pid(child)), group_.run);
  }
  EXPECT_TRUE(cgroups_->expel(Pid(child)));
  EXPECT_EQ(cgroups_->run_of(Pid(child)), std::nullopt);
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
}

TEST_F(RealCgroups, HoldProcessesAndLetThemGo) {
  const auto paths = cgroups_->create(group_, {.cpus = CpuMilli(1500), .memory = mib(100)});
  ASSERT_TRUE(paths) << paths.error().message;
  EXPECT_THAT(*cgroups_->runs(), ::testing::Contains(group_.run));
  const auto pid = spawn(shell("sleep 60 & sleep 61", *paths));
  ASSERT_TRUE(pid) << pid.error().what;
  EXPECT_TRUE(test::eventually([&] { return cgroups_->processes(group_)->size() == 3; }));
  EXPECT_EQ(cgroups_->remove(group_).error().code, Error::Code::unavailable);

  // A step inside, and a process that is moved into it.
  const Group step{group_.run, 0};
  const auto step_paths = cgroups_->create(step, {});
  ASSERT_TRUE(step_paths) << step_paths.error().message;
  EXPECT_TRUE(cgroups_->add(step, *pid));
  EXPECT_EQ(cgroups_->processes(step)->size(), 1U);
  EXPECT_EQ(cgroups_->processes(group_)->size(), 3U) << "a job's are those of its steps too";

  const auto killed = cgroups_->kill(group_, seconds(20));
  ASSERT_TRUE(killed);
  EXPECT_EQ(killed->count, 3);
  EXPECT_TRUE(killed->all_gone);
  EXPECT_EQ(wait_for(*pid), 128 + SIGKILL);
}

// Who forks faster than one can look is caught by the freezer, and who is spared lives on.
TEST_F(RealCgroups, KillWhatForksAllTheTimeButNotThoseSpared) {
  const auto paths = cgroups_->create(group_, {.processes = 200});
  ASSERT_TRUE(paths) << paths.error().message;
  // First: later there may be no room for it.
  const auto client = spawn(shell("exec sleep 60", *paths));
  const auto pid = spawn(
      shell("exec perl -e 'while (1) { fork(); select(undef, undef, undef, 0.01) }'", *paths));
  ASSERT_TRUE(pid && client);
  EXPECT_TRUE(test::eventually([&] { return cgroups_->processes(group_)->size() > 50; }));
  EXPECT_LE(cgroups_->processes(group_)->size(), 200U) << "pids.max";
  const auto killed = cgroups_->kill(group_, seconds(20), {*client});
  ASSERT_TRUE(killed);
  EXPECT_TRUE(killed->all_gone);
  EXPECT_EQ(cgroups_->processes(group_)->size(), 1U);
  EXPECT_TRUE(cgroups_->kill(group_, seconds(20))->all_gone);
  EXPECT_TRUE(cgroups_->processes(group_)->empty());
  EXPECT_EQ(wait_for(*pid), 128 + SIGKILL);
  EXPECT_EQ(wait_for(*client), 128 + SIGKILL);
}

// A later run of the same job has a group of its own.
TEST_F(RealCgroups, OfTwoRunsAreTwo) {
  const Group again{{group_.run.job, 1}};
  ASSERT_TRUE(cgroups_->create(group_, {}));
  ASSERT_TRUE(cgroups_->create(again, {}));
  const auto pid = spawn(shell("sleep 60", cgroups_->paths(again)));
  ASSERT_TRUE(pid);
  EXPECT_TRUE(cgroups_->kill(group_, seconds(1)));
  EXPECT_TRUE(cgroups_->remove(group_));
  EXPECT_FALSE(cgroups_->processes(again)->empty());
  EXPECT_THAT(*cgroups_->runs(), ::testing::Contains(again.run));
  EXPECT_TRUE(cgroups_->kill(again, seconds(20)));
  EXPECT_EQ(wait_for(*pid), 128 + SIGKILL);
  EXPECT_TRUE(test::eventually([&] { return cgroups_->remove(again).has_value(); }));
}

// Once all runs of a job were named alike.
TEST_F(RealCgroups, OfAnEarlierVersionAreFound) {
  ASSERT_TRUE(cgroups_->create(group_, {}));
  const auto paths = cgroups_->paths(group_);
  const Group again{{group_.run.job, 1}};
  EXPECT_NE(cgroups_->paths(again), paths);
  cgroups_->name_by_job(again.run);
  EXPECT_EQ(cgroups_->paths(again), paths);
  EXPECT_THAT(*cgroups_->runs(), ::testing::Contains(again.run));
  EXPECT_THAT(*cgroups_->runs(), ::testing::Not(::testing::Contains(group_.run)));
  const auto child = fork();
  if (child == 0) {
    pause();
    _exit(0);
  }
  EXPECT_TRUE(cgroups_->add(again, Pid(child)));
  EXPECT_EQ(cgroups_->run_of(Pid(child)), again.run);
  EXPECT_TRUE(cgroups_->kill(again, seconds(20)));
  waitpid(child, nullptr, 0);
  // The next run has a name of its own.
  EXPECT_NE(cgroups_->paths({{group_.run.job, 2}}), paths);
}

TEST_F(RealCgroups, FreezeAndThaw) {
  const test::Folder folder;
  const auto paths = cgroups_->create(group_, {});
  ASSERT_TRUE(paths);
  auto spec = shell("while :; do date +%N > beat; sleep 0.01; done", *paths);
  spec.directory = folder.path().string();
  const auto pid = spawn(spec);
  ASSERT_TRUE(pid);
  const auto beat = [&] { return test::read_text(folder.path() / "beat"); };
  ASSERT_TRUE(test::eventually([&] { return !beat().empty(); }));
  ASSERT_TRUE(cgroups_->freeze(group_, true));
  EXPECT_TRUE(test::eventually([&] {
    const auto before = beat();
    usleep(200'000);
    return beat() == before;
  }));
  ASSERT_TRUE(cgroups_->freeze(group_, false));
  const auto before = beat();
  EXPECT_TRUE(test::eventually([&] { return beat() != before; }));
  // What is frozen can be killed, too.
  ASSERT_TRUE(cgroups_->freeze(group_, true));
  EXPECT_TRUE(cgroups_->kill(group_, seconds(20))->all_gone);
  wait_for(*pid);
}

TEST_F(RealCgroups, LimitMemoryAndSayWhoWasKilled) {
  const auto paths = cgroups_->create(group_, {.memory = mib(20)});
  ASSERT_TRUE(paths);
  const auto pid = spawn(shell("exec tail -n 1 /dev/zero", *paths));
  ASSERT_TRUE(pid);
  EXPECT_EQ(wait_for(*pid), 128 + SIGKILL);
  const auto usage = cgroups_->usage(group_);
  ASSERT_TRUE(usage);
  EXPECT_GE(usage->oom_kills, 1);
  EXPECT_LE(usage->memory_peak.value_or(Bytes(0)), mib(21));
  // Up and down again.
  EXPECT_TRUE(cgroups_->update(group_, {.memory = mib(200)}));
  EXPECT_TRUE(cgroups_->update(group_, {.memory = mib(100)}));
}

TEST_F(RealCgroups, CountCpuTime) {
  const auto paths = cgroups_->create(group_, {});
  ASSERT_TRUE(paths);
  const auto pid = spawn(shell("i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done", *paths));
  ASSERT_TRUE(pid);
  wait_for(*pid);
  const auto usage = cgroups_->usage(group_);
  ASSERT_TRUE(usage);
  if (!usage->user_cpu) GTEST_SKIP() << "no cpuacct";
  EXPECT_GE(usage->user_cpu->value() + usage->system_cpu->value(), 20);
}

TEST_F(RealCgroups, HideDevices) {
  if (!is_v1()) GTEST_SKIP() << cgroups_->capabilities();
  struct stat info {};
  ASSERT_EQ(stat("/dev/full", &info), 0);
  const auto paths =
      cgroups_->create(group_, {.hidden_devices = {{major(info.st_rdev), minor(info.st_rdev)}}});
  ASSERT_TRUE(paths) << paths.error().message;
  const auto hidden = spawn(shell("cat < /dev/full > /dev/null 2>&1", *paths));
  ASSERT_TRUE(hidden);
  EXPECT_NE(wait_for(*hidden), 0);
  const auto shown = spawn(shell("head -c 1 < /dev/zero > /dev/null", *paths));
  ASSERT_TRUE(shown);
  EXPECT_EQ(wait_for(*shown), 0);
}

TEST_F(RealCgroups, LimitCpus) {
  const auto paths = cgroups_->create(group_, {.cpus = CpuMilli(500), .cpuset = "0"});
  ASSERT_TRUE(paths) << paths.error().message;
  if (!is_v1()) return;
  EXPECT_EQ(test::read_text(paths->folders.at("cpu") + "/cpu.cfs_quota_us"), "50000\n");
  EXPECT_EQ(test::read_text(paths->folders.at("cpuset") + "/cpuset.cpus"), "0\n");
}

// The files of v2 where no v2 is: what is written to them. Processes need the kernel.
class PretendedV2 : public ::testing::Test {
 protected:
  void SetUp() override {
    if (geteuid() != 0) GTEST_SKIP() << "not root";
    put("cgroup.controllers", "cpuset cpu io memory pids\n");
    put("cgroup.subtree_control", "");
    put("test/cgroup.subtree_control", "");
    for (const auto* file : {"cpu.max", "cpuset.cpus", "memory.max", "memory.swap.max",
                             "cgroup.freeze", "cgroup.procs"}) {
      put(std::string("test/job_7/") + file, "");
    }
    put("mounts", fmt::format("30 20 0:26 / {} rw - cgroup2 cgroup2 rw\n", root_.path().string()));
    cgroups_ = open_cgroups("test", root_.path() / "mounts");
  }
  void put(const std::string& file, const std::string& text) {
    std::filesystem::create_directories((root_.path() / file).parent_path());
    ASSERT_TRUE(sys::write_whole(root_.path() / file, text, 0644, false));
  }
  std::string get(const std::string& file) {
    return test::read_text(root_.path() / "test/job_7" / file);
  }

  test::Folder root_;
  std::unique_ptr<Cgroups> cgroups_;
};

TEST_F(PretendedV2, IsWrittenAsTheKernelWantsIt) {
  EXPECT_THAT(
      cgroups_->capabilities(),
      ::testing::AnyOf("v2: cpu, cpuset, memory, pids, devices, freezer",
                       ::testing::StartsWith("v2: cpu, cpuset, memory, freezer; devices not: ")));
  const Group group{{JobId(7)}};
  const auto paths =
      cgroups_->create(group, {.cpus = CpuMilli(2500), .cpuset = "0-1", .memory = mib(1)});
  ASSERT_TRUE(paths) << paths.error().message;
  EXPECT_EQ(get("cpu.max"), "250000 100000");
  EXPECT_EQ(get("cpuset.cpus"), "0-1");
  EXPECT_EQ(get("memory.max"), "1048576");
  EXPECT_EQ(get("memory.swap.max"), "0");
  EXPECT_TRUE(cgroups_->freeze(group, true));
  EXPECT_EQ(get("cgroup.freeze"), "1");
  EXPECT_EQ(cgroups_->runs()->size(), 1U);
  put("test/job_7/cpu.stat", "usage_usec 9000\nuser_usec 7000\nsystem_usec 2000\n");
  put("test/job_7/memory.peak", "4096\n");
  put("test/job_7/memory.events", "oom 3\noom_kill 2\n");
  const auto usage = cgroups_->usage(group);
  EXPECT_EQ(usage->user_cpu, Millis(7));
  EXPECT_EQ(usage->system_cpu, Millis(2));
  EXPECT_EQ(usage->memory_peak, Bytes(4096));
  EXPECT_EQ(usage->oom_kills, 2);
}

// A v2 hierarchy beside v1 has no controllers, but processes, the freezer and the killing.
TEST(UnifiedBesideV1, HoldsFreezesAndKills) {
  const std::string folder = "/sys/fs/cgroup/unified/aliquot-test-" + std::to_string(getpid());
  if (mkdir(folder.c_str(), 0755) != 0) GTEST_SKIP() << "no v2 hierarchy beside v1 here";
  const GroupPaths paths{.folders = {{"", folder}}};
  const auto pid = spawn(shell("sleep 60 & sleep 60", paths));
  EXPECT_TRUE(pid) << pid.error().what;
  EXPECT_TRUE(test::eventually([&] { return group_processes(paths)->size() == 3; }));
  EXPECT_TRUE(freeze_group(paths, true));
  const auto killed = kill_group(paths, seconds(20));
  EXPECT_EQ(killed.count, 3);
  EXPECT_TRUE(killed.all_gone);
  if (pid) wait_for(*pid);
  EXPECT_TRUE(test::eventually([&] { return rmdir(folder.c_str()) == 0; }));
}

TEST(NoCgroups, DoNothingAndSayWhy) {
  const auto cgroups = no_cgroups("not root");
  EXPECT_EQ(cgroups->capabilities(), "none: not root");
  EXPECT_FALSE(cgroups->available());
  EXPECT_TRUE(cgroups->create({{JobId(1)}}, {})->empty());
  EXPECT_EQ(cgroups->freeze({{JobId(1)}}, true).error().code, Error::Code::unsupported);
  EXPECT_TRUE(cgroups->remove({{JobId(1)}}));
  EXPECT_TRUE(kill_group({}, seconds(1)).all_gone);
}

TEST(OpenCgroups, SayThatNothingIsMounted) {
  const test::Folder folder;
  ASSERT_TRUE(
      sys::write_whole(folder.path() / "mounts", "1 1 0:1 / / rw - ext4 /dev/x rw\n", 0644, false));
  EXPECT_THAT(open_cgroups("x", folder.path() / "mounts")->capabilities(), HasSubstr("none: "));
}

TEST(FakeCgroups, Remember) {
  FakeCgroups cgroups;
  EXPECT_FALSE(cgroups.create({{JobId(1)}, 0}, {}));
  EXPECT_TRUE(cgroups.create({{JobId(1)}}, {.memory = mib(1)}));
  EXPECT_TRUE(cgroups.create({{JobId(1)}, 0}, {}));
  EXPECT_TRUE(cgroups.add({{JobId(1)}}, Pid(5)));
  EXPECT_FALSE(cgroups.remove({{JobId(1)}}));
  EXPECT_EQ(cgroups.kill({{JobId(1)}}, seconds(1), {})->count, 1);
  EXPECT_TRUE(cgroups.remove({{JobId(1)}}));
  EXPECT_TRUE(cgroups.groups.empty());
}

TEST(NvidiaDevices, AreThoseThatExist) {
  const test::Folder folder;
  std::filesystem::create_symlink("/dev/null", folder.path() / "nvidia1");
  std::filesystem::create_symlink("/dev/zero", folder.path() / "nvidiactl");
  EXPECT_EQ(nvidia_devices({0, 1}, false, folder.path()),
            (std::vector<DeviceNumber>{{.major = 1, .minor = 3}}));
  EXPECT_EQ(nvidia_devices({1}, true, folder.path()).size(), 2U);
}

}  // namespace
}  // namespace aliquot::node
