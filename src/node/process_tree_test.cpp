#include "node/process_tree.hpp"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "node/spawn.hpp"
#include "node/testing.hpp"

namespace aliquot::node {
namespace {

SpawnSpec shell(const std::string& script, const std::string& mark) {
  SpawnSpec spec;
  spec.identity = test::me();
  spec.file = "/bin/bash";
  spec.argv = {"bash", "-c", script};
  spec.environment = {"PATH=/usr/bin:/bin", "ALIQUOT_JOB=" + mark};
  return spec;
}

void reap(Pid pid) { waitpid(pid.value(), nullptr, 0); }

// The first thread of a program may end while others run on: that is a live process.
TEST(ProcessTree, LivesOnWithoutItsFirstThread) {
  const auto mark = make_mark(JobId(7));
  const pid_t child = fork();
  if (child == 0) {
    setenv("ALIQUOT_JOB", mark.c_str(), 1);
    execl("/usr/bin/perl", "perl", "-e",
          // A second thread by clone(2), which sleeps; then the first one alone ends.
          "require threads; threads->create(sub { sleep 600 })->detach; sleep 1; syscall(60, 0);",
          nullptr);
    _exit(127);
  }
  EXPECT_TRUE(test::eventually([&] {
    const auto now = sys::read_process(Pid(child));
    return now && now->headless;
  }));
  const auto process = sys::read_process(Pid(child));
  ASSERT_TRUE(process);
  EXPECT_TRUE(sys::is_alive(process->ref));
  EXPECT_EQ(sys::environment_of(Pid(child), "ALIQUOT_JOB"), mark);
  Search search;
  search.mark = mark;
  EXPECT_EQ(find_processes(search).size(), 1U);
  EXPECT_TRUE(kill_tree(search, seconds(20)).all_gone);
  reap(Pid(child));
  EXPECT_FALSE(sys::is_alive(process->ref));
}

TEST(ProcessTree, ParentsAreFoundBeforeTheirChildren) {
  const auto mark = make_mark(JobId(7));
  const auto shell_pid = spawn(shell("(sleep 600 & wait) & sleep 600 & wait", mark));
  ASSERT_TRUE(shell_pid);
  Search search;
  search.mark = mark;
  ASSERT_TRUE(test::eventually([&] { return find_processes(search).size() == 4; }));
  EXPECT_EQ(find_processes(search)[0].pid, *shell_pid);
  EXPECT_TRUE(kill_tree(search, seconds(20)).all_gone);
  reap(*shell_pid);
}

TEST(ProcessTree, MarksAreUniqueAndFound) {
  const auto mark = make_mark(JobId(7));
  EXPECT_TRUE(mark.starts_with("7:"));
  EXPECT_NE(mark, make_mark(JobId(7)));
  // The second sleep gets away from its parent and its session.
  const auto pid = spawn(shell("(setsid sleep 61 &); sleep 60 & sleep 62", mark));
  ASSERT_TRUE(pid);
  const Search search{.mark = mark, .marked_uid = Uid(geteuid())};
  EXPECT_TRUE(test::eventually([&] { return find_processes(search).size() == 4; }));
  EXPECT_TRUE(find_processes({.mark = mark, .marked_uid = Uid(4711)}).empty());
  EXPECT_EQ(find_processes({.session = *pid}).size(), 3U);
  const auto killed = kill_tree(search, seconds(120));
  EXPECT_TRUE(killed.all_gone);
  EXPECT_GE(killed.count, 4);
  EXPECT_TRUE(find_processes(search).empty());
  reap(*pid);
}

TEST(ProcessTree, KillsWhatForksAllTheTime) {
  const auto mark = make_mark(JobId(8));
  const auto pid = spawn(shell(
      "f() { sleep 0.01; [ $1 -eq 0 ] || f $(($1 - 1)) & }; for i in 1 2 3; do f 900 & done; wait",
      mark));
  ASSERT_TRUE(pid);
  usleep(100'000);
  EXPECT_TRUE(kill_tree({.mark = mark}, seconds(120)).all_gone);
  usleep(50'000);
  EXPECT_TRUE(find_processes({.mark = mark}).empty());
  reap(*pid);
}

// A chain of processes, each of which starts the next and ends: a list of them is often wrong by
// the time it has been read.
TEST(ProcessTree, SaysGoneOnlyWhenNobodyIsLeft) {
  const test::Folder folder;
  const auto steps = folder.path() / "steps";
  const auto mark = make_mark(JobId(8));
  auto chain = shell(
      "exec perl -e 'until (-e \"stop\" || $n++ > 2000) { if (fork()) { exit } "
      "open(F, \">>\", \"steps\"); print F \"x\"; close F; select(undef, undef, undef, 0.02) }'",
      mark);
  chain.directory = folder.path();
  const auto length = [&] {
    std::error_code error;
    const auto size = std::filesystem::file_size(steps, error);
    return error ? 0 : size;
  };
  for (int round = 0; round < 8; ++round) {
    const auto pid = spawn(chain);
    ASSERT_TRUE(pid);
    reap(*pid);
    const auto begun = length();
    EXPECT_TRUE(test::eventually([&] { return length() > begun + 2; }));
    const auto killed = kill_tree({.mark = mark}, seconds(5));
    const auto after = length();
    usleep(100'000);
    EXPECT_TRUE(!killed.all_gone || length() == after) << "it goes on";
  }
  std::ofstream(folder.path() / "stop") << "";
}

TEST(ProcessTree, StepsAreWhatSrunStarted) {
  const auto mark = make_mark(JobId(9));
  const auto pid = spawn(shell("SLURM_STEP_ID=0 sleep 60; :", mark));
  ASSERT_TRUE(pid);
  EXPECT_TRUE(test::eventually(
      [&] { return find_processes({.mark = mark, .steps_only = true}).size() == 1; }));
  EXPECT_NE(find_processes({.mark = mark, .steps_only = true})[0].pid, *pid);
  kill_tree({.mark = mark}, seconds(20));
  reap(*pid);
}

}  // namespace
}  // namespace aliquot::node
