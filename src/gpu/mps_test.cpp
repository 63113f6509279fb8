#include "gpu/mps.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <future>
#include <thread>

#include "gpu/fake_mps.hpp"
#include "sys/testing.hpp"

namespace aliquot::gpu {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;

class MpsTest : public testing::Test {
 protected:
  static MonoTime at(std::int64_t s) { return MonoTime(seconds(s)); }
  // What is done in lanes is done here and now.
  static Result<fs::path> acquire(MpsServers& servers, const char* job, const MpsKey& key,
                                  std::int64_t clients = 1, Bytes limit = Bytes(0)) {
    const fs::path pipes = servers.reserve({HolderId(job), key, clients, limit});
    TRY(servers.bring_up(HolderId(job), pipes));
    return pipes;
  }
  static Result<void> adopt(MpsServers& servers, const char* job, const MpsKey& key,
                            const fs::path& pipes) {
    TRY(servers.adopt({HolderId(job), key}, pipes));
    TRY(servers.bring_up(HolderId(job), pipes));
    return {};
  }
  static std::vector<std::string> run(const std::vector<MpsServers::Chore>& chores) {
    std::vector<std::string> all;
    for (const auto& chore : chores) {
      for (std::string& said : chore.run()) all.push_back(std::move(said));
    }
    return all;
  }
  static std::vector<std::string> tick(MpsServers& servers, MonoTime now) {
    return run(servers.tick(now));
  }

  const test::Folder root_;
  const fs::path folder_ = root_.path();
  FakeMps fake_;
  MpsKey alice_{GpuId("GPU-0"), Uid(1000)};
  MpsKey bob_{GpuId("GPU-0"), Uid(1001)};
};

TEST_F(MpsTest, OneServerForEachUserAndGpu) {
  MpsServers servers(fake_, folder_ / "mps");
  const auto first = acquire(servers, "1", alice_, 1);
  ASSERT_TRUE(first) << first.error().message;
  EXPECT_EQ(*acquire(servers, "2", alice_, 1), *first);
  EXPECT_NE(*acquire(servers, "3", bob_, 1), *first);
  EXPECT_NE(*acquire(servers, "4", {GpuId("GPU-1"), Uid(1000)}, 1), *first);
  EXPECT_EQ(fake_.daemons.size(), 3U);
  EXPECT_FALSE(fake_.daemons.begin()->second.all_users);
  ASSERT_TRUE(acquire(servers, "5", {GpuId("GPU-1"), std::nullopt}, 1));
  EXPECT_EQ(std::ranges::count_if(fake_.daemons, [](const auto& d) { return d.second.all_users; }),
            1);
  // To walk through for who knows the name, to write for nobody.
  struct stat info {};
  ASSERT_EQ(::stat(first->c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777U, ::geteuid() == 0 ? 0711U : 0700U);
}

TEST_F(MpsTest, TheFortyNinthClientGetsAFurtherServer) {
  MpsServers servers(fake_, folder_ / "mps");
  const auto first = acquire(servers, "1", alice_, 40);
  EXPECT_EQ(*acquire(servers, "2", alice_, 8), *first);
  const auto second = acquire(servers, "3", alice_, 1);
  ASSERT_TRUE(second);
  EXPECT_NE(*second, *first);
  servers.release(HolderId("2"), at(0));
  EXPECT_EQ(*acquire(servers, "4", alice_, 8), *first);
}

// One limit for all clients of a server: no job's own may be refused, and none may have more than
// the largest.
TEST_F(MpsTest, TheLimitIsTheLargestOfItsJobs) {
  MpsServers servers(fake_, folder_ / "mps");
  const fs::path folder = acquire(servers, "1", alice_, 1, gib(10))->parent_path();
  EXPECT_EQ(fake_.daemons[folder].limit, gib(10));
  ASSERT_TRUE(acquire(servers, "2", alice_, 1, gib(30)));
  ASSERT_TRUE(acquire(servers, "3", alice_, 1, gib(20)));
  EXPECT_EQ(fake_.daemons[folder].limit, gib(30));
  servers.release(HolderId("2"), at(0));
  EXPECT_TRUE(tick(servers, at(0)).empty());
  EXPECT_EQ(fake_.daemons[folder].limit, gib(20));
  // One that was started again has none until it is told.
  fake_.daemons.clear();
  ASSERT_EQ(tick(servers, at(1)).size(), 1U);
  EXPECT_EQ(fake_.daemons[folder].limit, gib(20));
}

TEST_F(MpsTest, AnEmptyServerStopsAfterAWhile) {
  MpsServers servers(fake_, folder_ / "mps");
  const auto pipes = acquire(servers, "1", alice_, 1);
  servers.release(HolderId("1"), at(10));
  EXPECT_TRUE(tick(servers, at(11)).empty());
  // Another job comes in time.
  EXPECT_EQ(*acquire(servers, "2", alice_, 1), *pipes);
  EXPECT_TRUE(tick(servers, at(100)).empty());
  servers.release(HolderId("2"), at(100));
  EXPECT_EQ(tick(servers, at(110)).size(), 1U);
  EXPECT_TRUE(fake_.daemons.empty());
  EXPECT_FALSE(fs::exists(pipes->parent_path()));
}

TEST_F(MpsTest, ADeadControlDaemonIsStartedAgainInItsPlace) {
  MpsServers servers(fake_, folder_ / "mps");
  const auto pipes = acquire(servers, "1", alice_, 1);
  fake_.daemons.clear();
  EXPECT_EQ(tick(servers, at(1)).size(), 1U);
  EXPECT_TRUE(fake_.alive(pipes->parent_path()));
  // But not for ever.
  fake_.daemons.clear();
  fake_.broken = "no";
  std::size_t tries = 0;
  for (int i = 0; i < 100; ++i) tries += tick(servers, at(2 + i)).size();
  EXPECT_EQ(tries, 4U);
}

TEST_F(MpsTest, WhatDoesNotStartLeavesNothing) {
  fake_.broken = "out of order";
  MpsServers servers(fake_, folder_ / "mps");
  const auto pipes = acquire(servers, "1", alice_, 1);
  ASSERT_FALSE(pipes);
  EXPECT_EQ(pipes.error().message, "out of order");
  EXPECT_TRUE(fs::is_empty(folder_ / "mps"));
}

TEST_F(MpsTest, ServersAreTakenUpAgain) {
  fs::path kept;
  fs::path lost;
  {
    MpsServers servers(fake_, folder_ / "mps");
    kept = *acquire(servers, "1", alice_, 1);
    lost = *acquire(servers, "2", bob_, 1);
  }
  fake_.daemons.erase(lost.parent_path());
  MpsServers servers(fake_, folder_ / "mps");
  ASSERT_TRUE(servers.recover());
  EXPECT_FALSE(fs::exists(lost));
  ASSERT_TRUE(adopt(servers, "1", alice_, kept));
  ASSERT_TRUE(adopt(servers, "2", bob_, lost));
  EXPECT_TRUE(fake_.alive(lost.parent_path()));
  EXPECT_EQ(fake_.starts, 3);
  EXPECT_FALSE(adopt(servers, "3", bob_, "/somewhere/else/p"));
  EXPECT_EQ(*acquire(servers, "4", alice_, 1), kept);
  // And those nobody asks for any more go.
  servers.release(HolderId("2"), at(1));
  run(servers.take_empty());
  EXPECT_EQ(fake_.daemons.size(), 1U);
}

TEST_F(MpsTest, ALimitThatWasNotTakenIsToldAndTriedAgain) {
  MpsServers servers(fake_, folder_ / "mps");
  const fs::path pipes = *acquire(servers, "1", alice_);
  fake_.broken = "no answer";
  ASSERT_EQ(servers.reserve({HolderId("2"), alice_, 1, gib(10)}), pipes);
  const auto up = servers.bring_up(HolderId("2"), pipes);
  ASSERT_TRUE(up);
  ASSERT_EQ(up->remarks.size(), 1U);
  EXPECT_NE(up->remarks[0].find("no answer"), std::string::npos) << up->remarks[0];
  // No job waits for it a second time.
  const auto once_more = servers.reserve({HolderId("3"), alice_, 1, gib(20)});
  EXPECT_TRUE(servers.bring_up(HolderId("3"), once_more)->remarks.empty());
  EXPECT_EQ(tick(servers, at(0)).size(), 1U);
  EXPECT_TRUE(tick(servers, at(0)).empty());
  fake_.broken.reset();
  servers.release(HolderId("1"), at(1));
  EXPECT_TRUE(tick(servers, at(2)).empty());
  EXPECT_EQ(fake_.daemons[pipes.parent_path()].limit, gib(20));
}

// It would have no more than the smaller one.
TEST_F(MpsTest, WhomItsServerWouldHoldToLessGoesWithoutIt) {
  MpsServers servers(fake_, folder_ / "mps");
  const fs::path pipes = *acquire(servers, "1", alice_, 1, gib(10));
  fake_.broken = "no answer";
  EXPECT_FALSE(acquire(servers, "2", alice_, 1, gib(20)));
  EXPECT_TRUE(acquire(servers, "3", alice_, 1, gib(5)));
  // One that runs there stays.
  ASSERT_TRUE(servers.adopt({HolderId("4"), alice_, 1, gib(30)}, pipes));
  EXPECT_TRUE(servers.bring_up(HolderId("4"), pipes));
  EXPECT_EQ(servers.view().at(0).jobs.size(), 3U);
  fake_.broken.reset();
  tick(servers, at(1));
  EXPECT_EQ(fake_.daemons[pipes.parent_path()].limit, gib(30));
  EXPECT_TRUE(acquire(servers, "2", alice_, 1, gib(20)));
}

// --- several at once

// Somebody who stands there until he is let go.
class Gate {
 public:
  void pass() {
    reached_.set_value();
    let_.get_future().wait_for(60s);
  }
  void wait() { EXPECT_EQ(reached_.get_future().wait_for(60s), std::future_status::ready); }
  void open() { let_.set_value(); }

 private:
  std::promise<void> reached_;
  std::promise<void> let_;
};
constexpr auto kReady = std::future_status::ready;

TEST_F(MpsTest, NobodyWaitsForAnothersServer) {
  MpsServers servers(fake_, folder_ / "mps");
  Gate starting;
  fake_.before_start = [&](const GpuId& gpu) {
    if (gpu == alice_.gpu) starting.pass();
  };
  auto alice = std::async(std::launch::async, [&] { return acquire(servers, "1", alice_); });
  starting.wait();
  const MpsKey beside{GpuId("GPU-1"), Uid(1001)};
  auto bob = std::async(std::launch::async, [&] {
    const bool done = acquire(servers, "2", beside).has_value();
    servers.release(HolderId("2"), at(0));
    return done && tick(servers, at(10)).size() == 1;
  });
  EXPECT_EQ(bob.wait_for(30s), kReady);
  EXPECT_EQ(alice.wait_for(0s), std::future_status::timeout);
  starting.open();
  EXPECT_TRUE(bob.get());
  EXPECT_TRUE(alice.get());

  // The same for one that does not end.
  Gate stopping;
  fake_.before_stop = [&] { stopping.pass(); };
  servers.release(HolderId("1"), at(20));
  auto chores = servers.tick(at(30));
  ASSERT_EQ(chores.size(), 1U);
  auto ends = std::async(std::launch::async, [&] { return run(chores); });
  stopping.wait();
  EXPECT_TRUE(servers.tick(at(40)).empty()) << "it is being done";
  EXPECT_TRUE(servers.view().front().leaving);
  fake_.before_start = nullptr;
  auto next = std::async(std::launch::async, [&] { return acquire(servers, "3", alice_); });
  EXPECT_EQ(next.wait_for(30s), kReady) << "not even its own user does";
  stopping.open();
  EXPECT_EQ(ends.get().size(), 1U);
  EXPECT_TRUE(next.get());
  EXPECT_EQ(servers.view().size(), 1U);
}

TEST_F(MpsTest, JobsThatComeTogetherStartOneServer) {
  MpsServers servers(fake_, folder_ / "mps");
  Gate starting;
  fake_.before_start = [&](const GpuId&) { starting.pass(); };
  auto first = std::async(std::launch::async, [&] { return acquire(servers, "1", alice_); });
  starting.wait();
  EXPECT_TRUE(servers.tick(at(0)).empty()) << "it is no dead one";
  const fs::path pipes = servers.reserve({HolderId("2"), alice_});
  auto second =
      std::async(std::launch::async, [&] { return servers.bring_up(HolderId("2"), pipes); });
  starting.open();
  EXPECT_EQ(*first.get(), pipes);
  EXPECT_TRUE(second.get());
  EXPECT_EQ(fake_.starts, 1);
}

TEST_F(MpsTest, WhoComesAfterAStartThatFailedTriesAgainInItsPlace) {
  MpsServers servers(fake_, folder_ / "mps");
  fake_.broken = "out of order";
  const fs::path pipes = servers.reserve({HolderId("1"), alice_});
  ASSERT_EQ(servers.reserve({HolderId("2"), alice_}), pipes);
  EXPECT_FALSE(servers.bring_up(HolderId("1"), pipes));
  fake_.broken.reset();
  EXPECT_TRUE(servers.bring_up(HolderId("2"), pipes));
  ASSERT_EQ(servers.view().size(), 1U);
  EXPECT_EQ(servers.view()[0].jobs, std::vector{HolderId("2")});
}

// Nobody else has the GPU when it begins.
TEST_F(MpsTest, WhatServesEverybodyStartsWhenTheOneBeforeItHasGone) {
  const MpsKey all{GpuId("GPU-0"), std::nullopt};
  MpsServers servers(fake_, folder_ / "mps");
  const fs::path before = *acquire(servers, "1", all);
  servers.release(HolderId("1"), at(0));
  const auto chores = servers.tick(at(10));
  bool alone = false;
  fake_.before_start = [&](const GpuId&) { alone = fake_.daemons.empty(); };
  EXPECT_NE(*acquire(servers, "2", all), before);
  EXPECT_TRUE(alone);
  run(chores);
  EXPECT_EQ(fake_.daemons.size(), 1U);
}

// --- the stand-in's own nvidia-cuda-mps-control

class StandinMpsTest : public MpsTest {
 protected:
  StandinMpsTest() {
    standin_ = {ALIQUOT_STANDIN_DIR, "h200:2", folder_ / "standin", false};
    program_ = *find_mps_control(standin_);
    extra_ = environment(standin_);
    extra_.push_back("LD_LIBRARY_PATH=" ALIQUOT_STANDIN_DIR);
    control_ = open_mps(program_, extra_);
  }

  std::string shell(const fs::path& pipes, const std::string& command) const {
    std::string line = "env";
    for (const auto& variable : extra_) line += " '" + variable + "'";
    line += " CUDA_MPS_PIPE_DIRECTORY='" + pipes.string() + "' CUDA_VISIBLE_DEVICES=" + gpu_ +
            " bash -c '" + command + "' 2>&1";
    FILE* pipe = ::popen(line.c_str(), "r");
    std::string said(4096, '\0');
    said.resize(std::fread(said.data(), 1, said.size(), pipe));
    ::pclose(pipe);
    return said;
  }
  std::string mps(const fs::path& pipes, const std::string& command) const {
    return shell(pipes, "echo " + command + " | " + program_.string());
  }
  // The pipes of a server for ourselves.
  fs::path acquire_own(MpsServers& servers) const {
    const auto pipes = acquire(servers, "1", key_);
    EXPECT_TRUE(pipes) << pipes.error().message;
    return pipes.value_or(fs::path());
  }
  static pid_t control_daemon(const fs::path& pipes) {
    pid_t pid = 0;
    std::ifstream(pipes / "nvidia-cuda-mps-control.pid") >> pid;
    if (pid <= 1) std::abort();  // nobody whom a test may signal
    return pid;
  }
  static void stop(MpsServers& servers) {
    servers.release(HolderId("1"), at(0));
    run(servers.take_empty());
  }

  StandIn standin_;
  fs::path program_;
  std::vector<std::string> extra_;
  std::unique_ptr<MpsControl> control_;
  std::string gpu_ = "0";
  const MpsKey key_{GpuId("0"), Uid(::geteuid())};
};

TEST_F(StandinMpsTest, ServesClientsAndStops) {
  MpsServers servers(*control_, folder_ / "mps");
  const fs::path pipes = acquire_own(servers);
  EXPECT_EQ(mps(pipes, "get_server_list"), "");
  const auto said = shell(pipes, ALIQUOT_BIN_DIR "/aliquot-load --mem 64M --json");
  EXPECT_NE(said.find("\"allocated\":67108864"), std::string::npos) << said;
  EXPECT_NE(mps(pipes, "get_server_list"), "");
  servers.release(HolderId("1"), at(0));
  EXPECT_EQ(tick(servers, at(60)).size(), 1U);
  EXPECT_EQ(mps(pipes, "get_server_list").find("Cannot find MPS"), 0U);
}

// It runs on for days, as a user's process where it serves one.
TEST_F(StandinMpsTest, HasNothingOfOursOpen) {
  const int ours = ::open("/etc/passwd", O_RDONLY);  // and no CLOEXEC
  MpsServers servers(*control_, folder_ / "mps");
  const fs::path pipes = acquire_own(servers);
  const pid_t pid = control_daemon(pipes);
  for (const auto& file : fs::directory_iterator("/proc/" + std::to_string(pid) + "/fd")) {
    EXPECT_NE(fs::read_symlink(file.path()), "/etc/passwd");
  }
  ::close(ours);
  stop(servers);
}

TEST_F(StandinMpsTest, IsFoundAgainByAnotherDaemonAndRestartedWhenKilled) {
  fs::path pipes;
  {
    MpsServers servers(*control_, folder_ / "mps");
    pipes = acquire_own(servers);
  }
  control_ = open_mps(program_, extra_);  // as a new process would
  MpsServers servers(*control_, folder_ / "mps");
  ASSERT_TRUE(servers.recover());
  ASSERT_TRUE(adopt(servers, "1", key_, pipes));
  EXPECT_TRUE(tick(servers, at(1)).empty());
  const pid_t pid = control_daemon(pipes);
  ASSERT_EQ(::kill(pid, SIGKILL), 0);
  for (int i = 0; i < 6000 && control_->alive(pipes.parent_path()); ++i) {
    std::this_thread::sleep_for(10ms);
  }
  EXPECT_EQ(tick(servers, at(2)).size(), 1U);
  EXPECT_TRUE(control_->alive(pipes.parent_path()));
  EXPECT_EQ(mps(pipes, "get_server_list"), "");
  servers.release(HolderId("1"), at(3));
  run(servers.take_empty());
  EXPECT_FALSE(control_->alive(pipes.parent_path()));
}

TEST_F(StandinMpsTest, AClientCannotLiftTheLimitOfItsServer) {
  MpsServers servers(*control_, folder_ / "mps");
  const auto pipes = acquire(servers, "1", key_, 1, gib(4));
  ASSERT_TRUE(pipes) << pipes.error().message;
  const std::string grow = ALIQUOT_BIN_DIR "/aliquot-load --mem 20G --step 1G --grow --json";
  const auto gibs = [&](const std::string& variable) {
    const auto said = shell(*pipes, variable + " " + grow);
    const auto found = said.find("\"allocated\":");
    EXPECT_NE(found, std::string::npos) << said;
    return found == std::string::npos ? -1 : std::atoll(said.c_str() + found + 12) / gib(1).value();
  };
  EXPECT_EQ(gibs(""), 3);
  EXPECT_EQ(gibs("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0=30G"), 3);
  // A larger job on the same server, which runs by now.
  ASSERT_TRUE(acquire(servers, "2", key_, 1, gib(6)));
  EXPECT_EQ(gibs("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0=30G"), 5);
  EXPECT_EQ(gibs("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0=2G"), 1);
  servers.release(HolderId("1"), at(0));
  servers.release(HolderId("2"), at(0));
  run(servers.take_empty());
}

// Killed in the middle of a long kernel it would take the neighbour along.
TEST_F(StandinMpsTest, WhoIsPartedFromItsServerIsKilledWithoutHarm) {
  MpsServers servers(*control_, folder_ / "mps");
  const fs::path pipes = acquire_own(servers);
  const std::string load = ALIQUOT_BIN_DIR "/aliquot-load --seconds ";
  const std::string said =
      shell(pipes, load + "600 --iterations 400000000 >/dev/null 2>&1 & echo $!; " + load +
                       "600 >/dev/null 2>&1 & echo $!");
  const auto pids = numbers(said);
  ASSERT_EQ(pids.size(), 2U) << said;
  const auto about_server = [&](const std::string& command) {
    const auto servers_there = numbers(mps(pipes, "get_server_list"));
    if (servers_there.empty()) return std::string();
    return mps(pipes, command + " " + std::to_string(servers_there.front()));
  };
  const auto clients = [&] { return numbers(about_server("get_client_list")).size(); };
  for (int i = 0; i < 6000 && clients() < 2; ++i) std::this_thread::sleep_for(10ms);
  std::this_thread::sleep_for(100ms);
  const MpsPipe pipe = control_->pipe(pipes.parent_path());
  const MpsPatience patient{.turn = seconds(60), .answer = seconds(60)};
  EXPECT_EQ(part_clients(pipe, {pids[0], ::getpid()}, patient), "");
  ::kill(pids[0], SIGKILL);
  for (int i = 0; i < 6000 && clients() > 1; ++i) std::this_thread::sleep_for(10ms);
  std::this_thread::sleep_for(200ms);
  EXPECT_EQ(clients(), 1U) << "the neighbour has gone";
  ::kill(pids[1], SIGKILL);
  stop(servers);
}

TEST_F(StandinMpsTest, AControlDaemonThatHangsIsNotWaitedForLong) {
  MpsServers servers(*control_, folder_ / "mps");
  const fs::path pipes = acquire_own(servers);
  const pid_t pid = control_daemon(pipes);
  ASSERT_EQ(::kill(pid, SIGSTOP), 0);
  const auto begin = std::chrono::steady_clock::now();
  const auto said = part_clients(control_->pipe(pipes.parent_path()), {::getpid()});
  EXPECT_NE(said.find("'get_server_list' was answered 'no answer in time'"), std::string::npos)
      << said;
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 120s);
  ::kill(pid, SIGCONT);
  stop(servers);
}

// A program in the place of nvidia-cuda-mps-control.
class MpsPipeTest : public MpsTest {
 protected:
  void write_program(const std::string& script) const {
    std::ofstream(folder_ / "control") << "#!/bin/bash\n" << script << "\n";
    fs::permissions(folder_ / "control", fs::perms::owner_all);
  }
  std::string part(const std::string& answers) {
    const fs::path program = folder_ / "control";
    const std::string one = (folder_ / "one").string();
    write_program("read line\nmkdir " + one + " || touch " + (folder_ / "two").string() +
                  "\ncase $line in\n" + answers + "\nesac\nsleep 0.02\nrmdir " + one +
                  "\nexit ${bad:-0}");
    std::vector<std::thread> threads;
    std::vector<std::string> said(4);
    for (auto& answer : said) {
      threads.emplace_back([&] {
        answer = part_clients({program.string(), {}, folder_.string()}, {77, 78},
                              {.turn = seconds(60), .answer = seconds(60)});
      });
    }
    for (auto& thread : threads) thread.join();
    EXPECT_EQ(said, std::vector<std::string>(4, said[0]));
    return said[0];
  }
};

TEST_F(MpsPipeTest, SilenceIsNoSuccess) {
  write_program("exec sleep 60");
  const auto limited = open_mps(folder_ / "control", {})->limit(folder_, gib(1));
  ASSERT_FALSE(limited);
  EXPECT_NE(limited.error().message.find("no answer in time"), std::string::npos)
      << limited.error().message;
  write_program("exit 0");
  EXPECT_TRUE(open_mps(folder_ / "control", {})->limit(folder_, gib(1)));
}

// The one that the first of them starts meanwhile must not stay at what was the default before.
TEST_F(MpsPipeTest, AServerThatStartsMeanwhileHasTheLimit) {
  const fs::path said = folder_ / "said";
  write_program("while read line; do echo $line >>" + said.string() +
                "; case $line in get_s*) echo 5;; esac; done");
  ASSERT_TRUE(open_mps(folder_ / "control", {})->limit(folder_, gib(1)));
  std::ifstream file(said);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  EXPECT_EQ(text,
            "set_default_device_pinned_mem_limit 0 1024M\nget_server_list\n"
            "set_device_pinned_mem_limit 5 0 1024M\n");
}

TEST_F(MpsPipeTest, WhoHasNotAnsweredIsAskedNoMore) {
  const fs::path asked = folder_ / "asked";
  write_program("read line; echo $line >>" + asked.string() +
                "\ncase $line in get_s*) echo 5;; *) exec sleep 60;; esac");
  const MpsPipe pipe{(folder_ / "control").string(), {}, folder_.string()};
  EXPECT_NE(part_clients(pipe, {77}, {.turn = seconds(1), .answer = seconds(10)}), "");
  std::ifstream file(asked);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  EXPECT_EQ(text, "get_server_list\nget_client_list 5\n");
}

TEST_F(MpsPipeTest, TurnsAreTaken) {
  EXPECT_EQ(part("get_s*) echo 5;; get_c*) echo \" 77 \"; echo 9;; 't'*' 5 77') echo 0;;"), "");
  EXPECT_FALSE(fs::exists(folder_ / "two")) << "two spoke at once";
}

// Somebody may keep the turn; what is over its limit is ended all the same.
TEST_F(MpsPipeTest, WhoseTurnDoesNotComeGoesOnWithoutIt) {
  write_program("read line; case $line in get_s*) echo 5;; get_c*) echo 77;; t*) echo 0;; esac");
  const sys::Fd turn(::open((folder_ / "turn").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  ASSERT_EQ(::flock(turn.get(), LOCK_EX | LOCK_NB), 0);
  const MpsPipe pipe{(folder_ / "control").string(), {}, folder_.string()};
  EXPECT_EQ(part_clients(pipe, {77}, {.turn = Millis(50), .answer = seconds(60)}), "");
}

TEST_F(MpsPipeTest, WhatIsNotDoneIsSaid) {
  const std::string lists = "get_s*) echo 5;; get_c*) echo 77;; ";
  EXPECT_NE(part(lists + "t*) echo 201;;").find("'terminate_client 5 77' was answered '201 '"),
            std::string::npos);
  EXPECT_NE(part(lists + "t*) echo nonsense;;").find("was answered 'nonsense '"),
            std::string::npos);
  EXPECT_NE(part("*) echo broken; bad=1;;").find("'get_server_list' was answered 'broken '"),
            std::string::npos);
  // A list that cannot be read: all are ended who can be.
  EXPECT_EQ(part("get_s*) echo 5;; get_c*) echo who;; t*) echo 201; echo 0;;"), "");
}

TEST_F(StandinMpsTest, TooLongAPathIsRefused) {
  const fs::path deep = folder_ / std::string(100, 'x');
  fs::create_directory(deep);
  fs::permissions(deep, fs::perms(0711));
  MpsServers servers(*control_, deep / "mps");
  const auto pipes = acquire(servers, "1", {GpuId("0"), Uid(::geteuid())}, 1);
  ASSERT_FALSE(pipes);
  EXPECT_NE(pipes.error().message.find("--run-dir"), std::string::npos) << pipes.error().message;
}

}  // namespace
}  // namespace aliquot::gpu
