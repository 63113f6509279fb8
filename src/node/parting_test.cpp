#include "node/parting.hpp"

#include <gtest/gtest.h>
#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <fstream>
#include <functional>
#include <thread>

#include "node/testing.hpp"

namespace aliquot::node {
namespace {

// A child that has done something about its signals and waits.
class Child {
 public:
  explicit Child(const std::function<void()>& prepare) {
    std::array<int, 2> ready{};
    EXPECT_EQ(pipe(ready.data()), 0);
    pid_ = fork();
    if (pid_ == 0) {
      prepare();
      if (write(ready[1], "1", 1) != 1) _exit(1);
      while (true) pause();
    }
    char byte = 0;
    EXPECT_EQ(read(ready[0], &byte, 1), 1);
    close(ready[0]);
    close(ready[1]);
  }
  ~Child() {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;
  [[nodiscard]] bool dies_of(int number) const { return node::dies_of(Pid(pid_), number); }

 private:
  pid_t pid_ = -1;
};

void block(int number) {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, number);
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
}

TEST(DiesOf, WhatASignalDoesByItself) {
  const Child child([] {});
  for (const int number : {SIGKILL, SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGRTMIN + 3, 64}) {
    EXPECT_TRUE(child.dies_of(number)) << number;
  }
  for (const int number : {0, SIGSTOP, SIGTSTP, SIGCONT, SIGCHLD, SIGURG, SIGWINCH}) {
    EXPECT_FALSE(child.dies_of(number)) << number;
  }
}

TEST(DiesOf, WhoCatchesIgnoresOrBlocksIsSparedButNotFromSigkill) {
  const Child child([] {
    signal(SIGTERM, [](int) {});
    signal(SIGHUP, SIG_IGN);
    block(SIGINT);
  });
  EXPECT_FALSE(child.dies_of(SIGTERM));
  EXPECT_FALSE(child.dies_of(SIGHUP));
  EXPECT_FALSE(child.dies_of(SIGINT));
  EXPECT_TRUE(child.dies_of(SIGUSR1));
  EXPECT_TRUE(child.dies_of(SIGKILL));
}

TEST(DiesOf, OneThreadThatDoesNotBlockItIsEnough) {
  const Child child([] {
    std::thread([] {
      while (true) pause();
    }).detach();
    block(SIGTERM);
  });
  // A thread that is just being made blocks everything for a moment.
  EXPECT_TRUE(test::eventually([&] { return child.dies_of(SIGTERM); }));
}

TEST(Part, NobodyTwice) {
  const test::Folder folder;
  const auto program = folder.path() / "control";
  const auto ended = folder.path() / "ended";
  std::ofstream(program) << fmt::format(
      "#!/bin/bash\nwhile read -r line; do case $line in get_s*) echo 5;; get_c*) echo {};; "
      "*) echo \"$line\" >>{}; echo 0;; esac; done\n",
      getpid(), ended.string());
  std::filesystem::permissions(program, std::filesystem::perms::owner_all);
  const auto self = sys::read_process(Pid(getpid()));
  ASSERT_TRUE(self);
  const gpu::MpsPipe mps{program.string(), {}, folder.path().string()};
  EXPECT_EQ(part(mps, {self->ref, self->ref}, SIGKILL), "");
  EXPECT_EQ(test::read_text(ended), fmt::format("terminate_client 5 {}\n", getpid()));
}

TEST(DiesOf, NobodyDoesNot) { EXPECT_FALSE(dies_of(Pid(1 << 30), SIGTERM)); }

}  // namespace
}  // namespace aliquot::node
