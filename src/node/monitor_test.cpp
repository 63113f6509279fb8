#include "node/monitor.hpp"

#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <filesystem>
#include <set>

#include "gpu/fake_devices.hpp"
#include "node/fake_cgroups.hpp"
#include "node/process_tree.hpp"
#include "sys/identity.hpp"
#include "sys/process.hpp"
#include "sys/program.hpp"
#include "sys/testing.hpp"

namespace aliquot::node {
namespace {

// A process of a job, by the mark in its environment, that starts another without any.
class MonitorTest : public ::testing::Test {
 protected:
  MonitorTest() : devices_(gpu::fake_gpus(1, "h200", gib(140))) {
    sys::Pipe pipe = sys::make_pipe();
    const auto started =
        sys::start_program({.file = "/bin/sh",
                            .argv = {"sh", "-c", "/usr/bin/env -i /bin/sleep 600 & echo $!; wait"},
                            .environment = {{std::string(kMarkVariable) + "=" + mark_}},
                            .out = pipe.write.get(),
                            .new_session = true});
    EXPECT_TRUE(started);
    parent_ = started.value_or(Pid());
    for (char c = 0; ::read(pipe.read.get(), &c, 1) == 1 && c != '\n';) {
      child_ = child_ * 10 + (c - '0');
    }
    devices_.samples()[0].processes = {{.pid = child_, .memory = gib(60)}};
  }
  ~MonitorTest() override {
    ::kill(-parent_.value(), SIGKILL);
    sys::wait_for_child(parent_);
  }
  std::optional<HolderId> job(const FencedJob& fenced, Uid owner = Uid(::geteuid())) {
    const auto views = look_at_gpus(devices_, {{HolderId("7"), owner, mark_}}, fenced, true);
    return views->at(0).processes.at(0).holder;
  }

  const std::string mark_ = make_mark(JobId(7));
  gpu::FakeDevices devices_;
  Pid parent_;
  std::int64_t child_ = 0;
};

// The database of names may be slow, and a look is not to wait for it.
TEST_F(MonitorTest, NamesAreForWhoShowsThem) {
  const auto outside = [](Pid) { return std::optional<HolderId>(); };
  const auto process = [&](const UserName& name) {
    return look_at_gpus(devices_, {}, outside, true, name)->at(0).processes.at(0);
  };
  EXPECT_EQ(process({}).uid, Uid(::geteuid()));
  EXPECT_EQ(process({}).user, "");
  EXPECT_EQ(process([](Uid) { return "ann"; }).user, "ann");
}

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

TEST_F(MonitorTest, SaysWhoseEachProcessIsAndWhatItHolds) {
  devices_.samples().push_back(devices_.samples()[0]);
  devices_.samples()[1].processes = {{.pid = child_, .memory = gib(2)},
                                     {.pid = ::getpid(), .memory = gib(1)},
                                     {.pid = 0x3fffffff, .memory = gib(3)}};
  const FencedJob outside = [](Pid) { return std::optional<HolderId>(); };
  const RunningJob running{HolderId("7"), Uid(::geteuid()), mark_};
  const auto views = look_at_gpus(devices_, {running}, outside, true);
  ASSERT_EQ(views->size(), 2U);
  EXPECT_EQ(views->at(0).processes.at(0).memory, gib(60));
  const auto& processes = views->at(1).processes;
  ASSERT_EQ(processes.size(), 3U);
  EXPECT_EQ(processes[0].memory, gib(2)) << "on each GPU what it holds there";
  EXPECT_EQ(processes[0].holder, HolderId("7"));
  EXPECT_NE(processes[0].command, "");
  EXPECT_EQ(processes[0].user, sys::user_name(Uid(::geteuid())));
  EXPECT_EQ(processes[1].holder, std::nullopt) << "it is foreign";
  EXPECT_EQ(processes[2].command, "") << "it has gone";
  devices_.break_with(Error{Error::Code::unavailable, "lost"});
  EXPECT_FALSE(look_at_gpus(devices_, {running}, outside, true));
}

// Anybody can take the name, but not the parent.
TEST_F(MonitorTest, AProcessThatIsCalledAsAServerIsSeen) {
  const test::Folder folder;
  const auto program = folder.path() / "nvidia-cuda-mps-server";
  std::filesystem::copy_file("/bin/sleep", program);
  const auto fake = sys::start_program({.file = program, .argv = {"sleep", "600"}});
  ASSERT_TRUE(fake);
  devices_.samples()[0].processes = {{.pid = fake->value(), .memory = gib(1)}};
  const FencedJob outside = [](Pid) { return std::optional<HolderId>(); };
  const auto views = look_at_gpus(devices_, {}, outside, true);
  EXPECT_EQ(views->at(0).processes.size(), 1U);
  ::kill(fake->value(), SIGKILL);
  sys::wait_for_child(*fake);
}

TEST_F(MonitorTest, AJobHasItsGroupOrElseItsMark) {
  FakeCgroups cgroups;
  const std::vector<RunningJob> running = {{HolderId("7"), Uid(::geteuid()), mark_}};
  const auto members = [&](bool by_mark) {
    const FencedJob fenced = fenced_by(cgroups, running);
    std::set<Pid> pids;
    for (const auto& one : members_by(running, fenced, by_mark)(HolderId("7"))) {
      pids.insert(one.pid);
    }
    return pids;
  };
  EXPECT_TRUE(members(false).empty());
  EXPECT_EQ(members(true), (std::set<Pid>{parent_, Pid(static_cast<pid_t>(child_))}));
  ASSERT_TRUE(cgroups.create({{JobId(7)}}, {}));
  ASSERT_TRUE(cgroups.add({{JobId(7)}}, Pid(::getpid())));
  EXPECT_EQ(members(true), std::set<Pid>{Pid(::getpid())});
  EXPECT_EQ(members_by(running, fenced_by(cgroups, running), true)(HolderId("8")).size(), 0U);
}

TEST_F(MonitorTest, TheControlGroupDecidesBeforeAnythingAProcessSays) {
  EXPECT_EQ(job([](Pid) { return std::optional(HolderId("8")); }), HolderId("8"));
}

}  // namespace
}  // namespace aliquot::node
