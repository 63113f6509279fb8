#include "node/monitor.hpp"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>

#include "gpu/fake_devices.hpp"
#include "node/process.hpp"

namespace aliquot::node {
namespace {

// A process of a job, by the mark in its environment, that starts another without any.
class MonitorTest : public ::testing::Test {
 protected:
  MonitorTest() : devices_(gpu::fake_gpus(1, "h200", gib(140))) {
    std::array<int, 2> ready{};
    EXPECT_EQ(::pipe(ready.data()), 0);
    const std::string mark = std::string(kMarkVariable) + "=" + mark_;
    parent_ = ::fork();
    if (parent_ == 0) {
      ::setpgid(0, 0);
      ::dup2(ready[1], STDOUT_FILENO);
      ::execl("/usr/bin/env", "env", "-i", mark.c_str(), "/bin/sh", "-c",
              "/usr/bin/env -i /bin/sleep 600 & echo $!; wait", nullptr);
      ::_exit(127);
    }
    ::close(ready[1]);
    for (char c = 0; ::read(ready[0], &c, 1) == 1 && c != '\n';) child_ = child_ * 10 + (c - '0');
    ::close(ready[0]);
    devices_.samples()[0].processes = {{.pid = child_, .memory = gib(60)}};
  }
  ~MonitorTest() override {
    ::kill(-parent_, SIGKILL);
    ::waitpid(parent_, nullptr, 0);
  }
  std::optional<HolderId> job(const FencedJob& fenced, Uid owner = Uid(::geteuid())) {
    const auto views = look_at_gpus(devices_, {{HolderId("7"), owner, mark_}}, fenced, true);
    return views->at(0).processes.at(0).holder;
  }

  const std::string mark_ = make_mark(JobId(7));
  gpu::FakeDevices devices_;
  pid_t parent_ = 0;
  std::int64_t child_ = 0;
};

TEST_F(MonitorTest, WhoThrewItsEnvironmentAwayHasParents) {
  const auto outside = [](Pid) { return std::optional<HolderId>(); };
  EXPECT_EQ(job(outside), HolderId("7"));
  // A mark in the environment of somebody else is no job's.
  EXPECT_EQ(job(outside, Uid(::geteuid() + 1)), std::nullopt);
}

TEST_F(MonitorTest, WhoIsOnAGpuThatItsJobHasNothingOfTrespasses) {
  const GpuId gpu = devices_.samples()[0].id;
  FencedJob fenced = [](Pid) { return std::optional(HolderId("7")); };
  const auto trespassers = [&](std::optional<std::vector<GpuId>> granted) {
    const RunningJob running{HolderId("7"), Uid(::geteuid()), mark_, 0, std::move(granted)};
    return look_at_gpus(devices_, {running}, fenced, true)->at(0).trespassers;
  };
  ASSERT_EQ(trespassers(std::vector<GpuId>{}).size(), 1U);
  EXPECT_EQ(trespassers(std::vector<GpuId>{})[0].pid, child_);
  EXPECT_EQ(trespassers({{GpuId("GPU-of-others")}}).size(), 1U);
  EXPECT_TRUE(trespassers({{gpu}}).empty());
  EXPECT_TRUE(trespassers(std::nullopt).empty());  // whose GPUs nobody has told us
  fenced = [](Pid) { return std::optional<HolderId>(); };
  EXPECT_TRUE(trespassers(std::vector<GpuId>{}).empty()) << "it only carries the mark";
}

TEST_F(MonitorTest, WhereThereAreGroupsNobodysEnvironmentIsRead) {
  const auto outside = [](Pid) { return std::optional<HolderId>(); };
  const RunningJob running{HolderId("7"), Uid(::geteuid()), mark_};
  EXPECT_EQ(look_at_gpus(devices_, {running}, outside, false)->at(0).processes.at(0).holder,
            std::nullopt);
}

TEST_F(MonitorTest, TheControlGroupDecidesBeforeAnythingAProcessSays) {
  EXPECT_EQ(job([](Pid) { return std::optional(HolderId("8")); }), HolderId("8"));
}

}  // namespace
}  // namespace aliquot::node
