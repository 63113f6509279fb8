#include "node/enforcer.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <fstream>
#include <future>

#include "gpu/fake_devices.hpp"
#include "gpu/fake_mps.hpp"
#include "node/testing.hpp"

namespace aliquot::node {
namespace {

class EnforcerTest : public ::testing::Test {
 protected:
  // With MPS: nobody can speak to its servers.
  explicit EnforcerTest(bool mps = false) : mps_(mps) {
    start();
    job_ = {.holder = HolderId("7"),
            .owner = Uid(::geteuid()),
            .group = Gid(::getegid()),
            .gpus = {{GpuId(uuid_), {gib(10), Compute(1'000)}}}};
    const auto enforced = enforcer_->grant(job_);
    EXPECT_TRUE(enforced) << enforced.error().message;
    std::array<int, 2> ends{};
    EXPECT_EQ(::pipe(ends.data()), 0);
    child_ = ::fork();
    if (child_ == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      ::close_range(3, ~0U, 0);
      ::pause();
      ::_exit(0);
    }
    // Once it has nothing of ours open.
    ::close(ends[1]);
    char byte = 0;
    EXPECT_EQ(::read(ends[0], &byte, 1), 0);
    ::close(ends[0]);
    view_.sample.id = GpuId(uuid_);
    GpuProcess process;
    process.pid = child_;
    process.memory = gib(60);
    process.holder = HolderId("7");
    view_.processes = {process};
  }
  ~EnforcerTest() override {
    ::kill(child_, SIGKILL);
    ::waitpid(child_, nullptr, 0);
  }

  void start() {
    const auto library = folder_.path() / "libaliquot.so";
    std::ofstream(library) << "";
    EnforcerOptions options{.run = folder_.path() / "run",
                            .library = library,
                            .facts = {.driver_version = "550", .no_mps = "none here"},
                            .mps = nullptr,
                            .clock = &clock_};
    if (mps_) {
      const auto control = folder_.path() / "control";
      std::ofstream(control) << "#!/bin/bash\nexec sleep 60\n";
      std::filesystem::permissions(control, std::filesystem::perms::owner_all);
      auto mps = std::make_unique<gpu::FakeMps>();
      mps->program = control;
      mps->before_stop = [this] {
        if (!holds_stops_) return;
        stopping_.set_value();
        let_stop_.get_future().wait_for(std::chrono::seconds(60));
      };
      options.mps = std::move(mps);
      options.facts.no_mps.clear();
      options.ending = {.turn = minutes(3), .answer = Millis(100)};
      options.silence = minutes(10);
    }
    auto made = Enforcer::create(std::move(options));
    ASSERT_TRUE(made) << made.error().message;
    enforcer_ = std::move(*made);
  }
  void adopt() {
    start();
    enforcer_->adopt(job_);
    enforcer_->recovered();
  }
  void expect_condemned() {
    EXPECT_TRUE(enforcer_->inspect({view_}).empty());
    ASSERT_EQ(enforcer_->inspect({view_}).size(), 1U);
    int status = 0;
    ASSERT_EQ(::waitpid(child_, &status, 0), child_);
    EXPECT_EQ(WTERMSIG(status), SIGKILL);
  }

  const bool mps_;
  ManualClock clock_;
  std::atomic<bool> holds_stops_ = false;  // until they are let go
  std::promise<void> stopping_;
  std::promise<void> let_stop_;
  const std::string uuid_ = "GPU-00000000-0000-0000-0000-000000000001";
  test::Folder folder_;
  core::Grant job_;
  std::unique_ptr<Enforcer> enforcer_;
  pid_t child_ = 0;
  GpuView view_;
  // With the usual time between them, until the time of strangers is over.
  static constexpr std::int64_t kLooks = core::kStrangerTime / core::kWatchInterval;
};

TEST_F(EnforcerTest, WhatIsOverIsEndedInTheSampleAfterItIsSeen) { expect_condemned(); }

// Its user may see to it that `usage` cannot be opened again.
TEST_F(EnforcerTest, AfterARestartAJobIsHeldWhateverBecameOfItsUsage) {
  const auto grant = folder_.path() / "run/grants/7";
  enforcer_.reset();
  // The kernel tells the holder that somebody wants to open it.
  const auto before = ::signal(SIGIO, SIG_IGN);
  sys::Fd leased(::open((grant / "usage").c_str(), O_RDWR | O_CLOEXEC));
  ASSERT_EQ(::fcntl(leased.get(), F_SETLEASE, F_WRLCK), 0);
  adopt();
  EXPECT_TRUE(std::filesystem::exists(grant / "limits"));
  expect_condemned();
  // It is heard again as soon as it can be.
  leased.reset();
  ::signal(SIGIO, before);
  (void)enforcer_->measure(HolderId("7"));
  EXPECT_EQ(::fcntl(sys::Fd(::open((grant / "usage").c_str(), O_RDWR | O_CLOEXEC)).get(),
                    F_SETLEASE, F_WRLCK),
            -1);
}

TEST_F(EnforcerTest, AfterARestartAJobIsHeldWithoutItsFolder) {
  enforcer_.reset();
  std::filesystem::remove_all(folder_.path() / "run/grants/7");
  adopt();
  EXPECT_FALSE(enforcer_->measure(HolderId("7")));
  expect_condemned();
}

TEST_F(EnforcerTest, AfterARestartAJobIsHeldAsItWasStarted) {
  const core::EnforcementFacts strict{
      .driver_version = "550", .domain = core::FaultDomain::gpu, .strict = true};
  core::EnforcementFacts lax = strict;
  lax.strict = false;
  core::EnforcementFacts off{.enabled = false, .driver_version = "550"};
  const auto begin = [&](const core::EnforcementFacts& facts) {
    enforcer_.reset();
    enforcer_ = std::move(*Enforcer::create({.run = folder_.path() / "run",
                                             .library = folder_.path() / "libaliquot.so",
                                             .facts = facts,
                                             .mps = std::make_unique<gpu::FakeMps>()}));
  };
  for (const auto& [first, then] : {std::pair(strict, lax), std::pair(lax, strict),
                                    std::pair(strict, off), std::pair(lax, off)}) {
    begin(first);
    const auto started = enforcer_->grant(job_);
    ASSERT_TRUE(started) << started.error().message;
    begin(then);
    enforcer_->adopt(job_);
    enforcer_->recovered();
    const auto now = enforcer_->of(job_, false);
    ASSERT_TRUE(now);
    EXPECT_EQ(now->environment, started->environment);
    EXPECT_EQ(now->preload, started->preload);
    EXPECT_EQ(now->words, started->words);
  }
}

// It lies on the daemon's disk, and what is written is the user's.
TEST_F(EnforcerTest, WhoMakesItsUsageLargerIsEnded) {
  const auto usage = folder_.path() / "run/grants/7/usage";
  const auto size = std::filesystem::file_size(usage);
  view_.processes.clear();
  const JobMembers members = [&](const HolderId&) {
    return std::vector<sys::ProcessRef>{sys::read_process(Pid(child_))->ref};
  };
  EXPECT_TRUE(enforcer_->inspect({view_}, members).empty());
  // Behind the end nobody sees it in the size.
  sys::Fd open(::open(usage.c_str(), O_RDWR | O_CLOEXEC));
  constexpr off_t kMuch = 16 << 20;
  if (::fallocate(open.get(), FALLOC_FL_KEEP_SIZE, static_cast<off_t>(size), kMuch) != 0) {
    GTEST_SKIP() << "this file system cannot set room aside";
  }
  EXPECT_EQ(enforcer_->inspect({view_}).size(), 1U);
  struct stat info {};
  ASSERT_EQ(::fstat(open.get(), &info), 0);
  EXPECT_LT(info.st_blocks * 512, kMuch);
  ASSERT_EQ(::ftruncate(open.get(), kMuch), 0);
  EXPECT_EQ(enforcer_->inspect({view_}, members).size(), 1U);
  ASSERT_EQ(std::filesystem::file_size(usage), size);
  int status = 0;
  ASSERT_EQ(::waitpid(child_, &status, 0), child_);
  EXPECT_EQ(WTERMSIG(status), SIGKILL);
}

TEST_F(EnforcerTest, WhoMakesItsUsageLargerIsEndedWhetherItCanBeOpenedOrNot) {
  const auto usage = folder_.path() / "run/grants/7/usage";
  const auto size = std::filesystem::file_size(usage);
  view_.processes.clear();
  const JobMembers members = [&](const HolderId&) {
    return std::vector<sys::ProcessRef>{sys::read_process(Pid(child_))->ref};
  };
  enforcer_.reset();
  const auto before = ::signal(SIGIO, SIG_IGN);
  sys::Fd leased(::open(usage.c_str(), O_RDWR | O_CLOEXEC));
  ASSERT_EQ(::fcntl(leased.get(), F_SETLEASE, F_WRLCK), 0);
  adopt();
  EXPECT_TRUE(enforcer_->inspect({view_}, members).empty());
  ASSERT_EQ(::ftruncate(leased.get(), 16 << 20), 0);
  ASSERT_EQ(enforcer_->inspect({view_}, members).size(), 1U);
  int status = 0;
  ASSERT_EQ(::waitpid(child_, &status, 0), child_);
  EXPECT_EQ(WTERMSIG(status), SIGKILL);
  // Its lease ends with it, and what is too much goes.
  leased.reset();
  ::signal(SIGIO, before);
  (void)enforcer_->inspect({view_});
  EXPECT_EQ(std::filesystem::file_size(usage), size);
}

TEST_F(EnforcerTest, WhoIsOnAGpuThatItsJobHasNothingOfIsEnded) {
  view_.processes[0].holder = HolderId("8");
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(enforcer_->inspect({view_}).empty());
  view_.processes[0].memory = mib(1);
  const Trespasser one{child_, HolderId("8"), Uid(::geteuid()), Gid(::getegid())};
  view_.trespassers = {one};
  EXPECT_TRUE(enforcer_->inspect({view_}).empty());
  // Gone meanwhile: from the beginning.
  view_.trespassers.clear();
  EXPECT_TRUE(enforcer_->inspect({view_}).empty());
  view_.trespassers = {one};
  EXPECT_TRUE(enforcer_->inspect({view_}).empty());
  const auto escapes = enforcer_->inspect({view_});
  ASSERT_EQ(escapes.size(), 1U);
  EXPECT_EQ(escapes[0].job, HolderId("8"));
  EXPECT_NE(escapes[0].what.find("granted nothing"), std::string::npos) << escapes[0].what;
  int status = 0;
  ASSERT_EQ(::waitpid(child_, &status, 0), child_);
  EXPECT_EQ(WTERMSIG(status), SIGKILL);
}

// Neither has the library, and both compute: how much of the GPU's time each of them takes nobody
// can tell.
TEST_F(EnforcerTest, WhoTakesTimeWithoutTheLibraryBesideAnotherJobIsEnded) {
  view_.processes[0].memory = mib(500);
  const auto look_long = [&] {
    std::vector<Escape> all;
    for (std::int64_t i = 0; i < kLooks + 5; ++i) {
      clock_.advance(core::kWatchInterval);
      for (Escape& escape : enforcer_->inspect({view_})) all.push_back(std::move(escape));
    }
    return all;
  };
  EXPECT_EQ(look_long().size(), 1U);  // by itself it is told of, and goes on
  core::Grant neighbour = job_;
  neighbour.holder = HolderId("8");
  ASSERT_TRUE(enforcer_->grant(neighbour));
  const pid_t beside = ::fork();
  if (beside == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    ::pause();
    ::_exit(0);
  }
  view_.processes.push_back(view_.processes[0]);
  view_.processes[1].pid = beside;
  view_.processes[1].holder = HolderId("8");
  // What is suspended takes no time.
  enforcer_->suspend(HolderId("8"), true);
  EXPECT_EQ(look_long().size(), 1U);
  enforcer_->suspend(HolderId("7"), true);
  enforcer_->suspend(HolderId("8"), false);
  EXPECT_EQ(look_long().size(), 0U);
  EXPECT_EQ(::waitpid(child_, nullptr, WNOHANG), 0);
  EXPECT_EQ(::waitpid(beside, nullptr, WNOHANG), 0);
  enforcer_->suspend(HolderId("7"), false);
  const auto escapes = look_long();
  ASSERT_EQ(escapes.size(), 2U);
  EXPECT_NE(escapes[0].what.find("beside another job"), std::string::npos) << escapes[0].what;
  for (const pid_t pid : {child_, beside}) {
    int status = 0;
    ASSERT_EQ(::waitpid(pid, &status, 0), pid);
    EXPECT_EQ(WTERMSIG(status), SIGKILL);
  }
}

// Descriptors of exported memory outlive whoever made it, and the driver names nobody.
TEST_F(EnforcerTest, MemoryThatNobodyHoldsIsToldOnce) {
  view_.processes.clear();
  const auto said = [&] {  // in the log
    ::testing::internal::CaptureStdout();
    for (std::int64_t i = 0; i < 2 * kLooks; ++i) {
      clock_.advance(core::kWatchInterval);
      (void)enforcer_->inspect({view_});
    }
    return ::testing::internal::GetCapturedStdout();
  };
  view_.sample.memory_used = mib(500);
  EXPECT_EQ(said(), "");
  view_.sample.memory_used = gib(60);
  view_.sample.processes = {{.pid = 1, .memory = gib(60)}};  // somebody's
  EXPECT_EQ(said(), "");
  view_.sample.processes.clear();
  EXPECT_NE(said().find("60.0 GiB of its memory is in use and held by no process"),
            std::string::npos);
  EXPECT_EQ(said(), "");
}

class SilentMpsTest : public EnforcerTest {
 protected:
  SilentMpsTest() : EnforcerTest(true) {}
};

// Its user can stop it, and so can everybody who holds its turn.
TEST_F(SilentMpsTest, HoldsUpItsOwnJobsAlone) {
  const auto mps = enforcer_->mps_of(HolderId("7"));
  ASSERT_TRUE(mps);
  const sys::Fd turn(::open((mps->folder + "/turn").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  ASSERT_EQ(::flock(turn.get(), LOCK_EX), 0);
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_TRUE(enforcer_->inspect({view_}).empty());
  EXPECT_EQ(enforcer_->inspect({view_}).size(), 1U);
  EXPECT_TRUE(enforcer_->inspect({view_}).empty()) << "it is as good as gone";
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::minutes(1))
      << "none waited for the turn";
  ::usleep(200'000);
  EXPECT_EQ(::waitpid(child_, nullptr, WNOHANG), 0) << "it was not even tried to part it";
  ASSERT_EQ(::flock(turn.get(), LOCK_UN), 0);
  int status = 0;
  const auto ended = [&] { return ::waitpid(child_, &status, WNOHANG) == child_; };
  ASSERT_TRUE(test::eventually(ended)) << "the server has not answered, and it goes on";
  EXPECT_EQ(WTERMSIG(status), SIGKILL);
  ASSERT_EQ(::flock(turn.get(), LOCK_EX), 0);
  // From now on it is not asked: who did would wait for three minutes.
  child_ = ::fork();
  if (child_ == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    ::pause();
    ::_exit(0);
  }
  view_.processes[0].pid = child_;
  (void)enforcer_->inspect({view_});
  (void)enforcer_->inspect({view_});
  EXPECT_TRUE(test::eventually(ended)) << "it is asked again";
}

TEST_F(SilentMpsTest, WhatDoesNotEndHoldsUpNobody) {
  holds_stops_ = true;
  enforcer_->release(HolderId("7"), 0);
  clock_.advance(seconds(10));
  enforcer_->tick();
  auto stopping = stopping_.get_future();
  for (int i = 0; i < 600; ++i) {
    if (stopping.wait_for(std::chrono::milliseconds(100)) == std::future_status::ready) break;
    enforcer_->tick();  // the one before may not have been done
  }
  ASSERT_EQ(stopping.wait_for(std::chrono::seconds(0)), std::future_status::ready);
  EXPECT_TRUE(enforcer_->busy());
  auto others = std::async(std::launch::async, [&] {
    core::Grant other = job_;
    other.holder = HolderId("8");
    const auto enforced = enforcer_->grant(other);
    enforcer_->release(HolderId("8"), 0);
    return enforced && enforced->words.find("mps") != std::string::npos;
  });
  EXPECT_EQ(others.wait_for(std::chrono::seconds(30)), std::future_status::ready);
  holds_stops_ = false;
  let_stop_.set_value();
  EXPECT_TRUE(others.get());
}

TEST_F(SilentMpsTest, IsKnownOfAJobThatNobodyAdopts) {
  const auto mps = enforcer_->mps_of(HolderId("7"));
  ASSERT_TRUE(mps);
  start();
  enforcer_->recovered();
  EXPECT_EQ(enforcer_->mps_of(HolderId("7")), mps);
  enforcer_->release(HolderId("7"), 0);
  EXPECT_FALSE(enforcer_->mps_of(HolderId("7")));
}

// The driver shows what a process held until it has cleaned up after it.
TEST_F(EnforcerTest, WhoIsOnItsWayOutIsNoEscape) {
  ::kill(child_, SIGKILL);
  siginfo_t ended{};
  ASSERT_EQ(::waitid(P_PID, static_cast<id_t>(child_), &ended, WEXITED | WNOWAIT), 0);
  for (int i = 0; i < 5; ++i) EXPECT_TRUE(enforcer_->inspect({view_}).empty());
}

}  // namespace
}  // namespace aliquot::node
