#include "sys/program.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "sys/fd.hpp"
#include "sys/process.hpp"

namespace aliquot::sys {
namespace {

Program shell(const std::string& script) {
  return {.file = "bash", .argv = {"bash", "-c", script}};
}

TEST(Program, SaysHowItEndedAndWhatItSaid) {
  const auto ended =
      run_program(shell("read line; echo $line; echo two >&2; exit 3"), Streams::apart, "one\n");
  EXPECT_EQ(ended.status, 3);
  EXPECT_EQ(ended.out, "one\n");
  EXPECT_EQ(ended.err, "two\n");
  EXPECT_EQ(run_program(shell("echo one; echo two >&2; echo three"), Streams::together).out,
            "one\ntwo\nthree\n");
}

TEST(Program, ThatDoesNotStartIsAnError) {
  const auto started = start_program({.file = "/no/such/program", .argv = {"x"}});
  ASSERT_FALSE(started);
  EXPECT_EQ(started.error().message, "cannot run /no/such/program: No such file or directory");
  EXPECT_EQ(run_program({.file = "/no/such/program", .argv = {"x"}}, Streams::apart).status, -1);
}

TEST(Program, ThatTakesTooLongIsKilled) {
  EXPECT_EQ(run_program(shell("exec sleep 600"), Streams::apart, "", Millis(50)).status, -1);
  EXPECT_EQ(run_program(shell("kill -9 $$"), Streams::apart).status, -1);
}

TEST(Program, ThatIsLeftBehindLeavesNoZombie) {
  const auto child = start_program({.file = "sleep", .argv = {"sleep", "600"}});
  ASSERT_TRUE(child);
  wait_in_background(*child);
  EXPECT_TRUE(read_process(*child));
  ASSERT_EQ(kill(child->value(), SIGKILL), 0);
  for (int i = 0; i < 6000 && read_process(*child); ++i) usleep(10'000);
  EXPECT_FALSE(read_process(*child));
}

// What it leaves running keeps its files open.
TEST(Program, IsNotWaitedForByItsOutput) {
  const auto ended = run_program(shell("sleep 600 & echo $!"), Streams::apart);
  EXPECT_EQ(ended.status, 0);
  EXPECT_EQ(kill(std::stoi(ended.out), SIGKILL), 0);
}

TEST(Program, HasNothingOfOurs) {
  const Fd leak(open("/dev/null", O_RDONLY));  // NOLINT: not close-on-exec, on purpose
  auto program = shell(
      "ls /proc/self/fd | wc -l; pwd; env | grep -v ^_ | sort; "
      "[ $(ps -o sid= $$) -eq $$ ] && echo leads its session");
  program.environment = {"PATH=/usr/bin:/bin", "A=b"};
  program.directory = "/usr";
  program.new_session = true;
  const auto ended = run_program(program, Streams::apart);
  EXPECT_TRUE(ended.out.starts_with("4\n/usr\nA=b\nPATH=/usr/bin:/bin\nPWD=/usr\nSHLVL="))
      << ended.out;
  EXPECT_TRUE(ended.out.ends_with("\nleads its session\n")) << ended.out;
}

// Where our own are closed, its files are not to overwrite each other.
TEST(Program, StartsWithoutStandardFiles) {
  const pid_t child = fork();
  if (child == 0) {
    close_range(0, 2, 0);
    const auto ended =
        run_program(shell("read line; echo $line; echo two >&2"), Streams::apart, "one\n");
    _exit(ended.out == "one\n" && ended.err == "two\n" ? 0 : 1);
  }
  EXPECT_EQ(wait_for_child(Pid(child)), 0);
}

TEST(Program, KnowsItsOwnFile) { EXPECT_EQ(own_program().filename(), "sys_test"); }

}  // namespace
}  // namespace aliquot::sys
