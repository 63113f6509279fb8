#include "sys/process.hpp"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "sys/program.hpp"
#include "sys/testing.hpp"

namespace aliquot::sys {
namespace {

TEST(Process, ReadsItself) {
  const auto self = read_process(Pid(getpid()));
  ASSERT_TRUE(self);
  EXPECT_EQ(self->parent, Pid(getppid()));
  EXPECT_EQ(self->session, Pid(getsid(0)));
  EXPECT_TRUE(is_alive(self->ref));
  EXPECT_FALSE(is_alive({self->ref.pid, self->ref.start_time + 1})) << "another of that number";
  EXPECT_FALSE(open_process({self->ref.pid, self->ref.start_time + 1}));
  EXPECT_FALSE(read_process(Pid(0)));
  EXPECT_FALSE(boot_id().empty());
}

TEST(Process, NamesWithParenthesesDoNotConfuse) {
  const pid_t child = fork();
  if (child == 0) {
    prctl(PR_SET_NAME, "a) R 1 1", 0, 0, 0);
    pause();
    _exit(0);
  }
  EXPECT_TRUE(test::eventually(
      [&] { return test::read_text("/proc/" + std::to_string(child) + "/comm") == "a) R 1 1\n"; }));
  const auto info = read_process(Pid(child));
  kill(child, SIGKILL);
  ASSERT_TRUE(info);
  EXPECT_EQ(info->parent, Pid(getpid()));
  EXPECT_TRUE(test::eventually([&] { return !is_alive(info->ref); })) << "a zombie is dead";
  wait_for_child(Pid(child));
}

TEST(Process, WatchesAnEnd) {
  const auto pid = start_program({.file = "sleep", .argv = {"sleep", "0.2"}});
  ASSERT_TRUE(pid);
  const auto process = open_process(read_process(*pid)->ref);
  ASSERT_TRUE(process);
  EXPECT_FALSE(has_ended(*process, Millis(0)));
  EXPECT_TRUE(has_ended(*process, seconds(20)));
  EXPECT_EQ(wait_for_child(*pid), 0);
  EXPECT_EQ(wait_for_child(*pid), -1) << "it is nobody's child any more";
}

TEST(Process, KnowsWhoseItIs) {
  EXPECT_TRUE(runs_as(Pid(getpid()), Uid(getuid())));
  EXPECT_FALSE(runs_as(Pid(getpid()), Uid(getuid() + 1)));
  EXPECT_FALSE(runs_as(Pid(0x3fffffff), Uid(getuid())));
}

}  // namespace
}  // namespace aliquot::sys
