#include "node/last_words.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fmt/format.h>

#include <array>
#include <cstdlib>
#include <filesystem>

#include "node/testing.hpp"

namespace aliquot::node {
namespace {

class LastWordsTest : public ::testing::Test {
 protected:
  ~LastWordsTest() override {
    for (const pid_t child : children_) {
      ::kill(child, SIGKILL);
      ::waitpid(child, nullptr, 0);
    }
  }
  // The process whose number the command prints first.
  sys::ProcessRef start(const std::string& command) {
    std::array<int, 2> ready{};
    EXPECT_EQ(::pipe2(ready.data(), O_CLOEXEC), 0);
    const pid_t child = ::fork();
    if (child == 0) {
      ::dup2(ready[1], STDOUT_FILENO);
      ::execl("/bin/sh", "sh", "-c", command.c_str(), nullptr);
      ::_exit(127);
    }
    ::close(ready[1]);
    std::string word;
    for (char c = 0; ::read(ready[0], &c, 1) == 1 && c != '\n';) word += c;
    ::close(ready[0]);
    children_.push_back(child);
    const auto process = sys::read_process(Pid(static_cast<pid_t>(std::atoi(word.c_str()))));
    EXPECT_TRUE(process) << word;
    return process ? process->ref : sys::ProcessRef{Pid(0), 0};
  }
  bool says(const std::string& text) const {
    return test::eventually([&] { return test::read_text(path_) == text; }, 10);
  }

  Uid uid_{::geteuid()};
  Gid gid_{::getegid()};
  const test::Folder folder_;
  const std::string path_ = folder_.path() / "err";
  std::vector<pid_t> children_;
};

TEST_F(LastWordsTest, AreReadWhereTheProcessWroteItsErrors) {
  const auto process = start("exec 2>" + path_ + "; echo before >&2; echo $$; exec sleep 600 >&2");
  tell_process(process, uid_, gid_, "it was killed\n");
  sys::signal_processes({process}, SIGKILL);
  EXPECT_TRUE(says("before\nit was killed\n"));
}

TEST_F(LastWordsTest, GoToItsParentWhereItReadsNothing) {
  const auto process = start("exec 2>" + path_ + "; sleep 600 >/dev/null 2>&1 & echo $!; wait");
  tell_process(process, uid_, gid_, "words\n");
  EXPECT_TRUE(says("words\n"));
  sys::signal_processes({process}, SIGKILL);
}

TEST_F(LastWordsTest, AnotherUsersAreNotTouched) {
  const auto process = start("exec 2>" + path_ + "; echo $$; exec sleep 600 >&2");
  tell_process(process, Uid(uid_.value() + 1), gid_, "words\n");
  tell_process(process, uid_, gid_, "others\n");
  EXPECT_TRUE(says("others\n"));
}

TEST_F(LastWordsTest, NobodyWaitsForAPipeThatNobodyReads) {
  std::array<int, 2> pipe{};
  ASSERT_EQ(::pipe2(pipe.data(), O_NONBLOCK), 0);
  while (::write(pipe[1], "x", 1) == 1) {
  }
  ::fcntl(pipe[1], F_SETFL, 0);
  ::fcntl(pipe[0], F_SETFD, FD_CLOEXEC);
  const auto process =
      start("echo $$; exec sleep 600 2>&" + std::to_string(pipe[1]) + " >/dev/null");
  ASSERT_TRUE(test::eventually([&] {
    std::error_code error;
    const auto link = fmt::format("/proc/{}/fd/2", process.pid.value());
    return std::filesystem::read_symlink(link, error).string().starts_with("pipe:");
  }));
  std::array<int, 2> ours{};
  ASSERT_EQ(::pipe(ours.data()), 0);
  tell_process(process, uid_, gid_, "words\n");  // or this test never ends
  sys::signal_processes({process}, SIGKILL);
  // Who writes there is the user: while it waits nothing of ours is open in it.
  ::close(ours[1]);
  ::close(pipe[1]);
  char byte = 0;
  EXPECT_EQ(::read(ours[0], &byte, 1), 0);
  pollfd writers{pipe[0], POLLIN, 0};
  EXPECT_EQ(::poll(&writers, 1, 0), 1);
  EXPECT_EQ(writers.revents & POLLHUP, 0) << "it has given up";
  ::close(ours[0]);
  ::close(pipe[0]);
}

}  // namespace
}  // namespace aliquot::node
