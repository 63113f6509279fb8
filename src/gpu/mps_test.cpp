#include "gpu/mps.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <thread>

#include "gpu/fake_mps.hpp"

namespace aliquot::gpu {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;

class MpsTest : public testing::Test {
 protected:
  MpsTest() {
    std::string pattern = testing::TempDir() + "mps-XXXXXX";
    folder_ = ::mkdtemp(pattern.data());
    fs::permissions(folder_, fs::perms(0711));
  }
  ~MpsTest() override {
    std::error_code error;
    fs::remove_all(folder_, error);
  }
  static MonoTime at(std::int64_t s) { return MonoTime(seconds(s)); }

  fs::path folder_;
  FakeMps fake_;
  MpsKey alice_{GpuId("GPU-0"), Uid(1000)};
  MpsKey bob_{GpuId("GPU-0"), Uid(1001)};
};

TEST_F(MpsTest, OneServerForEachUserAndGpu) {
  MpsServers servers(fake_, folder_ / "mps");
  const auto first = servers.acquire(HolderId("1"), alice_, 1);
  ASSERT_TRUE(first) << first.error().message;
  EXPECT_EQ(*servers.acquire(HolderId("2"), alice_, 1), *first);
  EXPECT_NE(*servers.acquire(HolderId("3"), bob_, 1), *first);
  EXPECT_NE(*servers.acquire(HolderId("4"), {GpuId("GPU-1"), Uid(1000)}, 1), *first);
  EXPECT_EQ(fake_.daemons.size(), 3U);
  EXPECT_FALSE(fake_.daemons.begin()->second.all_users);
  ASSERT_TRUE(servers.acquire(HolderId("5"), {GpuId("GPU-1"), std::nullopt}, 1));
  EXPECT_EQ(std::ranges::count_if(fake_.daemons, [](const auto& d) { return d.second.all_users; }),
            1);
  // To walk through for who knows the name, to write for nobody.
  struct stat info {};
  ASSERT_EQ(::stat(first->c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777U, ::geteuid() == 0 ? 0711U : 0700U);
}

TEST_F(MpsTest, TheFortyNinthClientGetsAFurtherServer) {
  MpsServers servers(fake_, folder_ / "mps");
  const auto first = servers.acquire(HolderId("1"), alice_, 40);
  EXPECT_EQ(*servers.acquire(HolderId("2"), alice_, 8), *first);
  const auto second = servers.acquire(HolderId("3"), alice_, 1);
  ASSERT_TRUE(second);
  EXPECT_NE(*second, *first);
  servers.release(HolderId("2"), at(0));
  EXPECT_EQ(*servers.acquire(HolderId("4"), alice_, 8), *first);
}

// One limit for all clients of a server: no job's own may be refused, and none may have more than
// the largest.
TEST_F(MpsTest, TheLimitIsTheLargestOfItsJobs) {
  MpsServers servers(fake_, folder_ / "mps");
  const fs::path folder = servers.acquire(HolderId("1"), alice_, 1, gib(10))->parent_path();
  EXPECT_EQ(fake_.daemons[folder].limit, gib(10));
  ASSERT_TRUE(servers.acquire(HolderId("2"), alice_, 1, gib(30)));
  ASSERT_TRUE(servers.acquire(HolderId("3"), alice_, 1, gib(20)));
  EXPECT_EQ(fake_.daemons[folder].limit, gib(30));
  servers.release(HolderId("2"), at(0));
  EXPECT_EQ(fake_.daemons[folder].limit, gib(20));
  // One that was started again has none until it is told.
  fake_.daemons.clear();
  ASSERT_EQ(servers.tick(at(1)).size(), 1U);
  EXPECT_EQ(fake_.daemons[folder].limit, gib(20));
}

TEST_F(MpsTest, AnEmptyServerStopsAfterAWhile) {
  MpsServers servers(fake_, folder_ / "mps");
  const auto pipes = servers.acquire(HolderId("1"), alice_, 1);
  servers.release(HolderId("1"), at(10));
  EXPECT_TRUE(servers.tick(at(11)).empty());
  // Another job comes in time.
  EXPECT_EQ(*servers.acquire(HolderId("2"), alice_, 1), *pipes);
  EXPECT_TRUE(servers.tick(at(100)).empty());
  servers.release(HolderId("2"), at(100));
  EXPECT_EQ(servers.tick(at(110)).size(), 1U);
  EXPECT_TRUE(fake_.daemons.empty());
  EXPECT_FALSE(fs::exists(pipes->parent_path()));
}

TEST_F(MpsTest, ADeadControlDaemonIsStartedAgainInItsPlace) {
  MpsServers servers(fake_, folder_ / "mps");
  const auto pipes = servers.acquire(HolderId("1"), alice_, 1);
  fake_.daemons.clear();
  EXPECT_EQ(servers.tick(at(1)).size(), 1U);
  EXPECT_TRUE(fake_.alive(pipes->parent_path()));
  // But not for ever.
  fake_.daemons.clear();
  fake_.broken = "no";
  std::size_t tries = 0;
  for (int i = 0; i < 100; ++i) tries += servers.tick(at(2 + i)).size();
  EXPECT_EQ(tries, 4U);
}

TEST_F(MpsTest, WhatDoesNotStartLeavesNothing) {
  fake_.broken = "out of order";
  MpsServers servers(fake_, folder_ / "mps");
  const auto pipes = servers.acquire(HolderId("1"), alice_, 1);
  ASSERT_FALSE(pipes);
  EXPECT_EQ(pipes.error().message, "out of order");
  EXPECT_TRUE(fs::is_empty(folder_ / "mps"));
}

TEST_F(MpsTest, ServersAreTakenUpAgain) {
  fs::path kept;
  fs::path lost;
  {
    MpsServers servers(fake_, folder_ / "mps");
    kept = *servers.acquire(HolderId("1"), alice_, 1);
    lost = *servers.acquire(HolderId("2"), bob_, 1);
  }
  fake_.daemons.erase(lost.parent_path());
  MpsServers servers(fake_, folder_ / "mps");
  ASSERT_TRUE(servers.recover());
  EXPECT_FALSE(fs::exists(lost));
  ASSERT_TRUE(servers.adopt(HolderId("1"), alice_, kept, 1));
  ASSERT_TRUE(servers.adopt(HolderId("2"), bob_, lost, 1));
  EXPECT_TRUE(fake_.alive(lost.parent_path()));
  EXPECT_EQ(fake_.starts, 3);
  EXPECT_FALSE(servers.adopt(HolderId("3"), bob_, "/somewhere/else/p", 1));
  EXPECT_EQ(*servers.acquire(HolderId("4"), alice_, 1), kept);
  // And those nobody asks for any more go.
  servers.release(HolderId("2"), at(1));
  servers.stop_empty();
  EXPECT_EQ(fake_.daemons.size(), 1U);
}

// --- the stand-in's own nvidia-cuda-mps-control

TEST_F(MpsTest, ALimitThatWasNotTakenIsToldAndTriedAgain) {
  MpsServers servers(fake_, folder_ / "mps");
  const fs::path folder = servers.acquire(HolderId("1"), alice_, 1)->parent_path();
  fake_.broken = "no answer";
  ASSERT_TRUE(servers.acquire(HolderId("2"), alice_, 1, gib(10)));
  fake_.broken.reset();
  const auto said = servers.tick(at(0));
  ASSERT_EQ(said.size(), 1U);
  EXPECT_NE(said[0].find("no answer"), std::string::npos) << said[0];
  servers.release(HolderId("1"), at(1));
  EXPECT_EQ(fake_.daemons[folder].limit, gib(10));
  EXPECT_TRUE(servers.tick(at(2)).empty());
}

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

  StandIn standin_;
  fs::path program_;
  std::vector<std::string> extra_;
  std::unique_ptr<MpsControl> control_;
  std::string gpu_ = "0";
};

TEST_F(StandinMpsTest, ServesClientsAndStops) {
  MpsServers servers(*control_, folder_ / "mps");
  const auto pipes = servers.acquire(HolderId("1"), {GpuId("0"), Uid(::geteuid())}, 1);
  ASSERT_TRUE(pipes) << pipes.error().message;
  EXPECT_EQ(mps(*pipes, "get_server_list"), "");
  const auto said = shell(*pipes, ALIQUOT_BIN_DIR "/aliquot-load --mem 64M --json");
  EXPECT_NE(said.find("\"allocated\":67108864"), std::string::npos) << said;
  EXPECT_NE(mps(*pipes, "get_server_list"), "");
  servers.release(HolderId("1"), at(0));
  EXPECT_EQ(servers.tick(at(60)).size(), 1U);
  EXPECT_EQ(mps(*pipes, "get_server_list").find("Cannot find MPS"), 0U);
}

// It runs on for days, as a user's process where it serves one.
TEST_F(StandinMpsTest, HasNothingOfOursOpen) {
  const int ours = ::open("/etc/passwd", O_RDONLY);  // and no CLOEXEC
  MpsServers servers(*control_, folder_ / "mps");
  const auto pipes = servers.acquire(HolderId("1"), {GpuId("0"), Uid(::geteuid())}, 1);
  ASSERT_TRUE(pipes) << pipes.error().message;
  pid_t pid = 0;
  std::ifstream(*pipes / "nvidia-cuda-mps-control.pid") >> pid;
  ASSERT_GT(pid, 1);
  for (const auto& file : fs::directory_iterator("/proc/" + std::to_string(pid) + "/fd")) {
    EXPECT_NE(fs::read_symlink(file.path()), "/etc/passwd");
  }
  ::close(ours);
  servers.release(HolderId("1"), at(0));
  servers.stop_empty();
}

TEST_F(StandinMpsTest, IsFoundAgainByAnotherDaemonAndRestartedWhenKilled) {
  fs::path pipes;
  {
    MpsServers servers(*control_, folder_ / "mps");
    pipes = *servers.acquire(HolderId("1"), {GpuId("0"), Uid(::geteuid())}, 1);
  }
  control_ = open_mps(program_, extra_);  // as a new process would
  MpsServers servers(*control_, folder_ / "mps");
  ASSERT_TRUE(servers.recover());
  ASSERT_TRUE(servers.adopt(HolderId("1"), {GpuId("0"), Uid(::geteuid())}, pipes, 1));
  EXPECT_TRUE(servers.tick(at(1)).empty());
  pid_t pid = 0;
  std::ifstream(pipes / "nvidia-cuda-mps-control.pid") >> pid;
  ASSERT_GT(pid, 1);
  ASSERT_EQ(::kill(pid, SIGKILL), 0);
  for (int i = 0; i < 6000 && control_->alive(pipes.parent_path()); ++i) {
    std::this_thread::sleep_for(10ms);
  }
  EXPECT_EQ(servers.tick(at(2)).size(), 1U);
  EXPECT_TRUE(control_->alive(pipes.parent_path()));
  EXPECT_EQ(mps(pipes, "get_server_list"), "");
  servers.release(HolderId("1"), at(3));
  servers.stop_empty();
  EXPECT_FALSE(control_->alive(pipes.parent_path()));
}

TEST_F(StandinMpsTest, AClientCannotLiftTheLimitOfItsServer) {
  MpsServers servers(*control_, folder_ / "mps");
  const MpsKey key{GpuId("0"), Uid(::geteuid())};
  const auto pipes = servers.acquire(HolderId("1"), key, 1, gib(4));
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
  ASSERT_TRUE(servers.acquire(HolderId("2"), key, 1, gib(6)));
  EXPECT_EQ(gibs("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0=30G"), 5);
  EXPECT_EQ(gibs("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0=2G"), 1);
  servers.release(HolderId("1"), at(0));
  servers.release(HolderId("2"), at(0));
  servers.stop_empty();
}

// Killed in the middle of a long kernel it would take the neighbour along.
TEST_F(StandinMpsTest, WhoIsPartedFromItsServerIsKilledWithoutHarm) {
  MpsServers servers(*control_, folder_ / "mps");
  const auto pipes = servers.acquire(HolderId("1"), {GpuId("0"), Uid(::geteuid())}, 1);
  ASSERT_TRUE(pipes) << pipes.error().message;
  const std::string load = ALIQUOT_BIN_DIR "/aliquot-load --seconds ";
  const std::string said =
      shell(*pipes, load + "600 --iterations 400000000 >/dev/null 2>&1 & echo $!; " + load +
                        "600 >/dev/null 2>&1 & echo $!");
  const auto pids = numbers(said);
  ASSERT_EQ(pids.size(), 2U) << said;
  const auto about_server = [&](const std::string& command) {
    const auto servers_there = numbers(mps(*pipes, "get_server_list"));
    if (servers_there.empty()) return std::string();
    return mps(*pipes, command + " " + std::to_string(servers_there.front()));
  };
  const auto clients = [&] { return numbers(about_server("get_client_list")).size(); };
  for (int i = 0; i < 6000 && clients() < 2; ++i) std::this_thread::sleep_for(10ms);
  std::this_thread::sleep_for(100ms);
  const MpsPipe pipe = control_->pipe(pipes->parent_path());
  EXPECT_EQ(part_clients(pipe, {pids[0], ::getpid()}), "");
  ::kill(pids[0], SIGKILL);
  for (int i = 0; i < 6000 && clients() > 1; ++i) std::this_thread::sleep_for(10ms);
  std::this_thread::sleep_for(200ms);
  EXPECT_EQ(clients(), 1U) << "the neighbour has gone";
  ::kill(pids[1], SIGKILL);
  servers.release(HolderId("1"), at(0));
  servers.stop_empty();
}

TEST_F(StandinMpsTest, AControlDaemonThatHangsIsNotWaitedForLong) {
  MpsServers servers(*control_, folder_ / "mps");
  const auto pipes = servers.acquire(HolderId("1"), {GpuId("0"), Uid(::geteuid())}, 1);
  ASSERT_TRUE(pipes) << pipes.error().message;
  pid_t pid = 0;
  std::ifstream(*pipes / "nvidia-cuda-mps-control.pid") >> pid;
  ASSERT_GT(pid, 1);
  ASSERT_EQ(::kill(pid, SIGSTOP), 0);
  const auto begin = std::chrono::steady_clock::now();
  const auto said = part_clients(control_->pipe(pipes->parent_path()), {::getpid()});
  EXPECT_NE(said.find("'get_server_list' was answered 'no answer in time'"), std::string::npos)
      << said;
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 60s);
  ::kill(pid, SIGCONT);
  servers.release(HolderId("1"), at(0));
  servers.stop_empty();
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
        answer = part_clients({program.string(), {}, folder_.string()}, {77, 78});
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

TEST_F(MpsPipeTest, WhoHasNotAnsweredIsAskedNoMore) {
  const fs::path asked = folder_ / "asked";
  write_program("read line; echo $line >>" + asked.string() +
                "\ncase $line in get_s*) echo 5;; *) exec sleep 60;; esac");
  const MpsPipe pipe{(folder_ / "control").string(), {}, folder_.string()};
  EXPECT_NE(part_clients(pipe, {77}, {.turn = seconds(1), .answer = seconds(3)}), "");
  std::ifstream file(asked);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  EXPECT_EQ(text, "get_server_list\nget_client_list 5\n");
}

TEST_F(MpsPipeTest, TurnsAreTaken) {
  EXPECT_EQ(part("get_s*) echo 5;; get_c*) echo \" 77 \"; echo 9;; 't'*' 5 77') echo 0;;"), "");
  EXPECT_FALSE(fs::exists(folder_ / "two")) << "two spoke at once";
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
  const auto pipes = servers.acquire(HolderId("1"), {GpuId("0"), Uid(::geteuid())}, 1);
  ASSERT_FALSE(pipes);
  EXPECT_NE(pipes.error().message.find("--run-dir"), std::string::npos) << pipes.error().message;
}

}  // namespace
}  // namespace aliquot::gpu
