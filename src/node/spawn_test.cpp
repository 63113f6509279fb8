#include "node/spawn.hpp"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/capability.h>
#include <linux/keyctl.h>
#include <sched.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdint>
#include <fstream>

#include "node/testing.hpp"
#include "sys/file.hpp"

namespace aliquot::node {
namespace {

using ::testing::HasSubstr;

class Spawn : public ::testing::Test {
 protected:
  Spawn() {
    spec_.identity = test::me();
    spec_.file = "/bin/sh";
    spec_.out = ToFile{(folder_.path() / "out").string()};
    spec_.err = LikeStdout{};
    spec_.environment = {"PATH=/usr/bin:/bin"};
    spec_.directory = folder_.path().string();
  }

  int run(const std::string& script) {
    spec_.argv = {"sh", "-c", script};
    const auto pid = spawn(spec_);
    if (!pid) {
      failure_ = pid.error();
      return -1;
    }
    int status = 0;
    waitpid(pid->value(), &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }
  [[nodiscard]] std::string output() const { return test::read_text(folder_.path() / "out"); }

  test::Folder folder_;
  SpawnSpec spec_;
  SpawnFailure failure_;
};

TEST_F(Spawn, MakesTheFoldersOfItsOutput) {
  spec_.out = ToFile{(folder_.path() / "a/b//c/out").string()};
  spec_.err = ToFile{"beside/err"};
  EXPECT_EQ(run("echo here; echo there >&2"), 0) << failure_.what;
  EXPECT_EQ(test::read_text(folder_.path() / "a/b/c/out"), "here\n");
  EXPECT_EQ(test::read_text(folder_.path() / "beside/err"), "there\n");
}

TEST_F(Spawn, MakesTheFoldersOfItsOutputAsTheUser) {
  const auto user = test::someone();
  if (!user) GTEST_SKIP() << "needs root and the user games";
  ASSERT_EQ(chown(folder_.path().c_str(), user->uid.value(), user->gid.value()), 0);
  spec_.identity = *user;
  spec_.out = ToFile{(folder_.path() / "mine/out").string()};
  EXPECT_EQ(run("true"), 0) << failure_.what;
  struct stat info {};
  ASSERT_EQ(stat((folder_.path() / "mine").c_str(), &info), 0);
  EXPECT_EQ(info.st_uid, user->uid.value());
  spec_.out = ToFile{"/aliquot-not-for-games/out"};
  EXPECT_EQ(run("true"), -1);
  EXPECT_NE(stat("/aliquot-not-for-games", &info), 0);
}

TEST_F(Spawn, HandsOverNothingButWhatIsAskedFor) {
  const sys::Fd leak(open("/dev/null", O_RDONLY));  // NOLINT: not close-on-exec, on purpose
  setenv("DAEMON_SECRET", "1", 1);
  spec_.environment = {"A=1", "PATH=/usr/bin:/bin"};
  EXPECT_EQ(run("env -u PWD -u _ -u OLDPWD -u SHLVL; ls /proc/self/fd | wc -l"), 0);
  // 0, 1, 2 and the one ls reads the folder with.
  EXPECT_EQ(output(), "A=1\nPATH=/usr/bin:/bin\n4\n");
}

// A child that opens a file of a user's may be there for as long as it likes.
TEST_F(Spawn, HoldsNothingOfOursWhileItHangs) {
  const auto fifo = (folder_.path() / "fifo").string();
  ASSERT_EQ(mkfifo(fifo.c_str(), 0600), 0);
  std::array<int, 2> ends{};
  ASSERT_EQ(pipe2(ends.data(), O_CLOEXEC), 0);
  const sys::Fd reading(ends[0]);
  sys::Fd writing(ends[1]);
  spec_.in = FromFile{fifo};
  spec_.argv = {"sh", "-c", "exit 3"};
  auto starting = begin_spawn(spec_);
  ASSERT_TRUE(starting);
  writing.reset();
  char byte = 0;
  EXPECT_EQ(read(reading.get(), &byte, 1), 0) << "the child has a copy";
  const sys::Fd other_end(open(fifo.c_str(), O_WRONLY | O_CLOEXEC));
  while (*advance(&*starting, spec_) != Progress::running) {
  }
  int status = 0;
  waitpid(starting->pid.value(), &status, 0);
  EXPECT_EQ(WEXITSTATUS(status), 3);
}

TEST_F(Spawn, WaitsForWhoeverStillHasTheFileOpenForWriting) {
  const auto file = folder_.path() / "script";
  ASSERT_TRUE(sys::write_whole(file, "#!/bin/sh\nexit 3\n", 0700, false));
  sys::Fd writing(open(file.c_str(), O_WRONLY | O_CLOEXEC));
  ASSERT_TRUE(writing);
  spec_.file = file.string();
  spec_.argv = {"script"};
  auto starting = begin_spawn(spec_);
  ASSERT_TRUE(starting);
  // Its stderr comes just before exec, which then fails for as long as we write.
  ASSERT_EQ(*advance(&*starting, spec_), Progress::pending);
  // A slow machine proves less with this; it cannot fail of it.
  usleep(50'000);
  writing.reset();
  const auto progress = advance(&*starting, spec_);
  ASSERT_TRUE(progress) << progress.error().what;
  int status = 0;
  waitpid(starting->pid.value(), &status, 0);
  EXPECT_EQ(WEXITSTATUS(status), 3);
}

TEST_F(Spawn, ResetsSignals) {
  signal(SIGUSR1, SIG_IGN);
  // One of those that glibc's signal() refuses: a careless parent may ignore it all the same.
  const std::array<std::uintptr_t, 4> ignore{reinterpret_cast<std::uintptr_t>(SIG_IGN), 0, 0, 0};
  syscall(SYS_rt_sigaction, SIGRTMIN - 1, ignore.data(), nullptr, sizeof(std::uint64_t));
  sigset_t set;
  sigset_t before;
  sigemptyset(&set);
  sigaddset(&set, SIGUSR2);
  sigprocmask(SIG_BLOCK, &set, &before);
  EXPECT_EQ(run("grep -E 'Sig(Blk|Ign)' /proc/self/status"), 0);
  sigprocmask(SIG_SETMASK, &before, nullptr);
  signal(SIGUSR1, SIG_DFL);
  EXPECT_EQ(output(), "SigBlk:\t0000000000000000\nSigIgn:\t0000000000000000\n");
}

TEST_F(Spawn, SetsUmaskLimitsSessionAndPid) {
  spec_.umask = 0077;
  spec_.limits = {{.resource = RLIMIT_NOFILE, .soft = 100, .hard = 200},
                  {.resource = RLIMIT_CORE, .soft = 0, .hard = 0}};
  spec_.pid_variable = "MY_PID";
  EXPECT_EQ(run("umask; ulimit -n; ulimit -c; [ $MY_PID = $$ ] && echo pid; "
                "[ $(cut -d' ' -f6 /proc/$$/stat) = $$ ] && echo session"),
            0);
  EXPECT_EQ(output(), "0077\n100\n0\npid\nsession\n");
  struct stat info {};
  ASSERT_EQ(stat((folder_.path() / "out").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600U);
}

TEST_F(Spawn, DiesWithItsParentWhereAsked) {
  spec_.death_signal = SIGKILL;
  spec_.argv = {"sh", "-c", "echo $$; exec sleep 60"};
  const pid_t parent = fork();
  if (parent == 0) {
    static_cast<void>(spawn(spec_));
    test::eventually([&] { return output().ends_with('\n'); });
    _exit(0);
  }
  waitpid(parent, nullptr, 0);
  EXPECT_TRUE(test::eventually([&] {
    const auto text = output();
    if (text.empty()) return false;
    const auto process = sys::read_process(Pid(std::stoi(text)));
    return !process || process->state == 'Z';
  }));
}

TEST_F(Spawn, SaysWhatFailed) {
  spec_.file = "/no/such/program";
  spec_.message_prefix = "me: ";
  EXPECT_EQ(run(""), -1);
  EXPECT_EQ(failure_.stage, SpawnStage::exec);
  EXPECT_EQ(failure_.error, ENOENT);
  EXPECT_EQ(output(), "me: execve(): /no/such/program: No such file or directory\n");
  spec_.file = "/bin/sh";
  spec_.directory = "/no/such/folder";
  EXPECT_EQ(run(""), -1);
  EXPECT_EQ(failure_.stage, SpawnStage::directory);
  spec_.directory = "/";
  spec_.err = ToFile{"/proc/none/err"};
  EXPECT_EQ(run(""), -1);
  EXPECT_EQ(failure_.what, "Could not open stderr file /proc/none/err: No such file or directory");
  EXPECT_EQ(waitpid(-1, nullptr, WNOHANG), -1) << "failed children have been waited for";
}

TEST_F(Spawn, WorksWithClosedStandardFiles) {
  const pid_t child = fork();
  if (child == 0) {
    close(0);
    close(1);
    close(2);
    _exit(run("echo fine; ls /proc/self/fd | wc -l"));
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(WEXITSTATUS(status), 0);
  EXPECT_EQ(output(), "fine\n4\n");
}

TEST_F(Spawn, BecomesTheUserForGood) {
  const auto user = test::someone();
  if (!user) GTEST_SKIP() << "needs root and the user games";
  ASSERT_EQ(chown(folder_.path().c_str(), user->uid.value(), user->gid.value()), 0);
  spec_.identity = *user;
  EXPECT_EQ(run("grep -E '^(Uid|Gid|Groups|CapEff|CapPrm)' /proc/self/status; cat /etc/shadow"), 1);
  EXPECT_THAT(output(), HasSubstr(fmt::format("Uid:\t{0}\t{0}\t{0}\t{0}\n", user->uid)));
  EXPECT_THAT(output(), HasSubstr(fmt::format("Gid:\t{0}\t{0}\t{0}\t{0}\n", user->gid)));
  EXPECT_THAT(output(), HasSubstr("CapPrm:\t0000000000000000\nCapEff:\t0000000000000000\n"));
  EXPECT_THAT(output(), HasSubstr("Permission denied"));
}

// Root's daemon is often started with what no job may have.
TEST_F(Spawn, HasWhatALoginHas) {
  const auto user = test::someone();
  if (!user) GTEST_SKIP() << "needs root and the user games";
  ASSERT_EQ(chown(folder_.path().c_str(), user->uid.value(), user->gid.value()), 0);
  spec_.identity = *user;
  cpu_set_t all;
  ASSERT_EQ(sched_getaffinity(0, sizeof all, &all), 0);
  const pid_t child = fork();
  if (child == 0) {
    for (const char* score : {"500", "-500"}) std::ofstream("/proc/self/oom_score_adj") << score;
    setpriority(PRIO_PROCESS, 0, -5);
    cpu_set_t one;
    CPU_ZERO(&one);
    for (std::size_t cpu = 0; cpu < CPU_SETSIZE && CPU_COUNT(&one) == 0; ++cpu) {
      if (CPU_ISSET(cpu, &all)) CPU_SET(cpu, &one);
    }
    sched_setaffinity(0, sizeof one, &one);
    // A key of ours, and capabilities that programs would inherit.
    syscall(SYS_keyctl, KEYCTL_JOIN_SESSION_KEYRING, nullptr);
    syscall(SYS_add_key, "user", "aliquot-test-secret", "x", 1, KEY_SPEC_SESSION_KEYRING);
    __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
    std::array<__user_cap_data_struct, _LINUX_CAPABILITY_U32S_3> sets{};
    syscall(SYS_capget, &header, sets.data());
    for (auto& set : sets) set.inheritable = set.permitted;
    syscall(SYS_capset, &header, sets.data());
    _exit(
        run("cat /proc/self/oom_score_adj; nice; nproc; "
            "grep -c aliquot-test-secret /proc/keys; grep -E '^Cap(Inh|Amb)' /proc/self/status"));
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(WEXITSTATUS(status), 0);
  EXPECT_EQ(output(), fmt::format("0\n0\n{}\n0\nCapInh:\t0000000000000000\n"
                                  "CapAmb:\t0000000000000000\n",
                                  CPU_COUNT(&all)));
}

TEST_F(Spawn, AnotherUserNeedsRoot) {
  const auto user = test::someone();
  const auto other = test::someone("news");
  if (!user || !other) GTEST_SKIP() << "needs root and the users games and news";
  // A child that is games asks for news.
  const pid_t child = fork();
  if (child == 0) {
    if (setgid(user->gid.value()) != 0 || setuid(user->uid.value()) != 0) _exit(2);
    spec_.identity = *other;
    spec_.out = Null{};
    _exit(run("") == -1 && failure_.stage == SpawnStage::identity ? 0 : 1);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

}  // namespace
}  // namespace aliquot::node
