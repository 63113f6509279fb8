// aliquot-stepd from end to end: the real program, real scripts, real signals.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/ptrace.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include "node/cgroup.hpp"
#include "node/environment.hpp"
#include "node/hanging_file.hpp"
#include "node/job_directory.hpp"

#include "node/testing.hpp"
#include "sys/file.hpp"

namespace aliquot::node {
namespace {

using ::testing::ContainsRegex, ::testing::ElementsAre, ::testing::HasSubstr, ::testing::Not;

const std::filesystem::path kStepd = ALIQUOT_BIN_DIR "/aliquot-stepd";
constexpr const char* kTime = "[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}";

// Limits for who has come so far: one that is over, and one whose early signal is due.
const LimitCommand kPassed{Millis(1)};
const LimitCommand kInAnHour{Millis(3'600'001)};

class Stepd : public ::testing::Test {
 protected:
  Stepd() : job_(folder_.path(), {JobId(26)}), user_(test::me()) {
    work_ = folder_.path() / "work";
    std::filesystem::create_directory(work_);
    launch_.job_id = 26;
    launch_.node = "host1";
    launch_.mark = make_mark(JobId(26));
    launch_.kill_wait_ms = 1000;
    launch_.work_dir = work_.string();
    launch_.std_out = (work_ / "out").string();
    launch_.environment = {"PATH=/usr/bin:/bin", "ALIQUOT_JOB=" + launch_.mark};
  }
  ~Stepd() override {
    // Whatever a failed test left.
    kill_tree({.mark = launch_.mark}, seconds(5));
  }

  void become(const sys::Identity& user) {
    user_ = user;
    ASSERT_EQ(chown(work_.c_str(), user.uid.value(), user.gid.value()), 0);
  }

  void write(const std::string& script) {
    ASSERT_TRUE(job_.write_script(script, user_.uid, user_.gid));
    launch_.script = job_.script().string();
    launch_.uid = user_.uid.value();
    launch_.gid = user_.gid.value();
    launch_.groups.clear();
    for (const auto gid : user_.groups) launch_.groups.push_back(gid.value());
    const auto prepared = job_.prepare(launch_);
    ASSERT_TRUE(prepared) << prepared.error().message;
  }

  void start(const std::string& script) {
    write("#!/bin/bash\n" + script);
    const auto started = job_.start(kStepd);
    ASSERT_TRUE(started) << started.error().message;
    stepd_ = *started;
  }

  ExitRecord finish() {
    EXPECT_TRUE(test::eventually([&] { return job_.read_exit().has_value(); }));
    const auto record = job_.read_exit();
    EXPECT_TRUE(record) << record.error().message;
    return record.value_or(ExitRecord{});
  }

  ExitRecord run(const std::string& script) {
    start(script);
    return finish();
  }

  // The script has come so far that this file is there.
  bool reached(const char* file) {
    return test::eventually([&] { return std::filesystem::exists(work_ / file); });
  }
  [[nodiscard]] std::string output() const { return test::read_text(work_ / "out"); }

  test::Folder folder_;
  std::filesystem::path work_;
  JobDirectory job_;
  sys::Identity user_;
  Launch launch_;
  sys::ProcessRef stepd_;
};

TEST_F(Stepd, RunsTheScriptWithItsArgumentsAndEnvironment) {
  launch_.arguments = {"a", "b c"};
  launch_.environment.emplace_back("X=1 2");
  launch_.attempt = 2;
  const auto record =
      run("echo \"$0 $1 $2 $X\"; pwd; [ $SLURM_TASK_PID = $$ ] && echo pid; env | sort");
  EXPECT_EQ(record.exit_code, 0);
  EXPECT_EQ(record.exit_signal, 0);
  EXPECT_EQ(record.reason, EndReason::none);
  EXPECT_EQ(record.job_id, 26);
  EXPECT_EQ(record.attempt, 2);
  EXPECT_GT(record.start_ms, 0);
  EXPECT_GE(record.end_ms, record.start_ms);
  EXPECT_GT(record.max_rss, 0);
  EXPECT_EQ(record.leftovers, 0);
  EXPECT_THAT(output(),
              HasSubstr(job_.script().string() + " a b c 1 2\n" + work_.string() + "\npid\n"));
  EXPECT_THAT(output(), Not(HasSubstr("HOME="))) << "nothing of ours shows through";
}

TEST_F(Stepd, TellsExitCodesAndSignals) {
  EXPECT_EQ(run("exit 3").exit_code, 3);
  EXPECT_EQ(run("kill -SEGV $$").exit_signal, SIGSEGV);
}

TEST_F(Stepd, CountsCpuTime) {
  const auto record = run("for ((i = 0; i < 200000; i++)); do :; done");
  EXPECT_GT(record.user_cpu_ms, 50);
}

TEST_F(Stepd, KeepsOutputApartOrTogetherAndAppends) {
  launch_.std_err = (work_ / "err").string();
  run("echo out; echo err >&2");
  EXPECT_EQ(output(), "out\n");
  EXPECT_EQ(test::read_text(work_ / "err"), "err\n");
  launch_.std_err.clear();
  launch_.append = true;
  run("echo more; echo err >&2");
  EXPECT_EQ(output(), "out\nmore\nerr\n");
  launch_.append = false;
  run("echo new");
  EXPECT_EQ(output(), "new\n");
}

TEST_F(Stepd, ReadsStandardInput) {
  ASSERT_TRUE(sys::write_whole(work_ / "in", "hello", 0644, false));
  launch_.std_in = (work_ / "in").string();
  run("cat");
  EXPECT_EQ(output(), "hello");
}

TEST_F(Stepd, ADifferentFolderIfItsOwnIsGone) {
  launch_.work_dir = "/nonexistent/place";
  const auto record = run("pwd");
  EXPECT_EQ(record.exit_code, 0);
  EXPECT_EQ(output(),
            "slurmstepd-host1: error: couldn't chdir to `/nonexistent/place': No such file or "
            "directory: going to /tmp instead\n/tmp\n");
}

TEST_F(Stepd, SaysWhichFileCannotBeWritten) {
  launch_.std_out = "/proc/none/out";
  const auto record = run("touch " + (work_ / "ran").string());
  EXPECT_EQ(record.reason, EndReason::launch_failed);
  EXPECT_EQ(record.exit_signal, 53);
  EXPECT_EQ(record.detail, "Could not open stdout file /proc/none/out: No such file or directory");
  EXPECT_FALSE(std::filesystem::exists(work_ / "ran"));
}

TEST_F(Stepd, SaysThatTheInterpreterIsMissing) {
  write("#!/no/such/shell\n");
  ASSERT_TRUE(job_.start(kStepd));
  const auto record = finish();
  EXPECT_EQ(record.reason, EndReason::launch_failed);
  EXPECT_EQ(record.exit_code, ENOENT);
  EXPECT_EQ(output(), "slurmstepd-host1: error: execve(): " + job_.script().string() +
                          ": No such file or directory\n");
}

TEST_F(Stepd, EndsAJobAtItsTimeLimit) {
  launch_.time_limit_ms = 1000;
  const auto record = run("sleep 60");
  EXPECT_EQ(record.reason, EndReason::timeout);
  EXPECT_EQ(record.exit_signal, SIGTERM);
  EXPECT_GE(record.end_ms - record.start_ms, 990);
  EXPECT_LT(record.end_ms - record.start_ms, 50'000);
  EXPECT_THAT(output(), ::testing::MatchesRegex(
                            "slurmstepd-host1: error: \\*\\*\\* JOB 26 ON host1 CANCELLED AT " +
                            std::string(kTime) + " DUE TO TIME LIMIT \\*\\*\\*\n"));
}

TEST_F(Stepd, KillsWhatIgnoresTheEndAfterTheKillWait) {
  launch_.kill_wait_ms = 4000;  // enough for the shell to hear it
  start("trap 'echo got TERM' TERM; touch up; while :; do sleep 0.1; done");
  ASSERT_TRUE(reached("up"));
  const std::int64_t limited_ms = sys::wall_ms();
  ASSERT_TRUE(job_.send(kPassed));
  const auto record = finish();
  EXPECT_EQ(record.reason, EndReason::timeout);
  EXPECT_EQ(record.exit_signal, SIGKILL);
  EXPECT_GE(record.end_ms - limited_ms, 3990);
  EXPECT_GE(record.leftovers, 1);
  EXPECT_THAT(output(), HasSubstr("got TERM"));
}

TEST_F(Stepd, GivesChildrenTheirGraceEvenWhenTheShellIsGone) {
  launch_.kill_wait_ms = 100'000;
  start(
      "bash -c 'trap \"sleep 0.5; echo saved; exit 0\" TERM; touch up; "
      "while :; do sleep 0.1; done'");
  ASSERT_TRUE(reached("up"));
  ASSERT_TRUE(job_.send(kPassed));
  const auto record = finish();
  EXPECT_EQ(record.reason, EndReason::timeout);
  EXPECT_THAT(output(), HasSubstr("saved"));
  EXPECT_LT(record.end_ms - record.start_ms, 90'000) << "and no longer than they need";
}

TEST_F(Stepd, SendsTheEarlySignalToTheShell) {
  launch_.signal = EarlySignal{.number = SIGUSR1, .before_s = 3600, .batch_only = true};
  start("trap 'echo got USR1; exit 5' USR1; touch up; while :; do sleep 0.05; done");
  ASSERT_TRUE(reached("up"));
  ASSERT_TRUE(job_.send(kInAnHour));
  const auto record = finish();
  EXPECT_EQ(record.exit_code, 5);
  EXPECT_EQ(record.reason, EndReason::none);
  EXPECT_EQ(output(), "got USR1\n");
}

TEST_F(Stepd, SendsTheEarlySignalToTheStepsAlone) {
  // A step is what has SLURM_STEP_ID.
  launch_.signal = EarlySignal{.number = SIGUSR1, .before_s = 3600, .batch_only = false};
  start(
      "trap 'echo shell' USR1\n"
      "SLURM_STEP_ID=0 bash -c 'trap \"echo step; exit 0\" USR1; touch up; "
      "while :; do sleep 0.05; done'\n");
  ASSERT_TRUE(reached("up"));
  ASSERT_TRUE(job_.send(kInAnHour));
  const auto record = finish();
  EXPECT_EQ(record.exit_code, 0);
  // Its sleep got it too, and bash says so.
  EXPECT_THAT(output(), HasSubstr("step\n"));
  EXPECT_THAT(output(), Not(HasSubstr("shell")));
}

TEST_F(Stepd, WhoWasToldBeforeIsKilledSoon) {
  launch_.kill_wait_ms = 100'000;
  start("trap '' TERM; touch up; while :; do sleep 0.05; done");
  ASSERT_TRUE(reached("up"));
  ASSERT_TRUE(job_.send(CancelCommand{"DUE TO PREEMPTION", Millis(200)}));
  EXPECT_EQ(finish().exit_signal, SIGKILL);
  EXPECT_THAT(output(), HasSubstr(" DUE TO PREEMPTION ***"));
}

TEST_F(Stepd, CancelsOnCommandAndSaysWhy) {
  start("touch up; sleep 60");
  ASSERT_TRUE(reached("up"));
  ASSERT_TRUE(job_.send(CancelCommand{}));
  const auto record = finish();
  EXPECT_EQ(record.reason, EndReason::cancelled);
  EXPECT_EQ(record.exit_signal, SIGTERM);
  EXPECT_THAT(output(), ::testing::MatchesRegex(
                            "slurmstepd-host1: error: \\*\\*\\* JOB 26 ON host1 CANCELLED AT " +
                            std::string(kTime) + " \\*\\*\\*\n"));
  EXPECT_TRUE(test::eventually([&] { return !sys::is_alive(stepd_); }));
  EXPECT_EQ(job_.send(CancelCommand{}).error().code, Error::Code::failed_state);
}

TEST_F(Stepd, TakesATermSignalForCancel) {
  start("touch up; sleep 60");
  ASSERT_TRUE(reached("up"));
  kill(stepd_.pid.value(), SIGTERM);
  EXPECT_EQ(finish().reason, EndReason::cancelled);
}

TEST_F(Stepd, PassesSignalsOnToWhomTheyAreFor) {
  start("trap 'echo shell; exit 4' USR2\ntouch up\nwhile :; do sleep 0.05; done");
  ASSERT_TRUE(reached("up"));
  ASSERT_TRUE(job_.send(SignalCommand{SIGUSR2, Target::steps}));  // there are none
  ASSERT_TRUE(job_.send(SignalCommand{SIGUSR2, Target::batch}));
  EXPECT_EQ(finish().exit_code, 4);
  EXPECT_EQ(output(), "shell\n");
}

TEST_F(Stepd, SuspendsWithoutTheClockAndResumes) {
  start("touch up; while :; do date +%N > beat; sleep 0.02; done");
  ASSERT_TRUE(reached("beat"));
  ASSERT_TRUE(job_.send(SuspendCommand{}));
  EXPECT_TRUE(test::eventually([&] {
    const auto before = test::read_text(work_ / "beat");
    usleep(300'000);
    return test::read_text(work_ / "beat") == before;
  }));
  // Nor does a limit end it meanwhile.
  ASSERT_TRUE(job_.send(kPassed));
  usleep(300'000);
  EXPECT_FALSE(job_.read_exit().has_value());
  ASSERT_TRUE(job_.send(LimitCommand{}));
  ASSERT_TRUE(job_.send(ResumeCommand{}));
  const auto stopped_at = test::read_text(work_ / "beat");
  EXPECT_TRUE(test::eventually([&] { return test::read_text(work_ / "beat") != stopped_at; }));
  ASSERT_TRUE(job_.send(kPassed));
  const auto record = finish();
  EXPECT_EQ(record.reason, EndReason::timeout) << "a new limit that has passed ends it at once";
  EXPECT_GE(record.suspended_ms, 550);
}

TEST_F(Stepd, LeavesNoDaemonBehind) {
  const auto record =
      run("(setsid bash -c '(trap \"\" TERM HUP; exec sleep 300) & exit' &)\n"
          "sleep 0.3; echo done");
  EXPECT_EQ(record.exit_code, 0);
  EXPECT_EQ(record.reason, EndReason::none);
  EXPECT_GE(record.leftovers, 1);
  EXPECT_EQ(output(), "done\n");
  EXPECT_TRUE(find_processes({.mark = launch_.mark}).empty() ||
              test::eventually([&] { return find_processes({.mark = launch_.mark}).empty(); }));
}

TEST_F(Stepd, OutlivesWhoStartedIt) {
  write("#!/bin/bash\ntouch up; until [ -e go ]; do sleep 0.05; done; exit 7");
  const pid_t daemon = fork();
  if (daemon == 0) {
    static_cast<void>(job_.start(kStepd));
    pause();
    _exit(0);
  }
  ASSERT_TRUE(reached("up"));
  kill(daemon, SIGKILL);
  waitpid(daemon, nullptr, 0);

  // A new daemon finds it, watches it, and learns how it ended.
  const auto status = job_.inspect();
  ASSERT_TRUE(status) << status.error().message;
  const auto* running = std::get_if<sys::ProcessRef>(&*status);
  ASSERT_NE(running, nullptr);
  const auto watch = sys::open_process(*running);
  ASSERT_TRUE(watch);
  ASSERT_TRUE(sys::write_whole(work_ / "go", "", 0644, false));
  pollfd ended{watch->get(), POLLIN, 0};
  EXPECT_EQ(poll(&ended, 1, 120'000), 1);
  const auto after = job_.inspect();
  ASSERT_TRUE(after);
  ASSERT_TRUE(std::holds_alternative<ExitRecord>(*after));
  EXPECT_EQ(std::get<ExitRecord>(*after).exit_code, 7);
}

TEST_F(Stepd, IsStartedOnceAndNeverAfterItWasGivenUp) {
  start("sleep 60");
  EXPECT_THAT(job_.start(kStepd).error().message, HasSubstr("started already"));
  ASSERT_TRUE(job_.send(CancelCommand{}));
  finish();

  write("#!/bin/bash\ntouch ran");
  const auto status = job_.inspect();
  ASSERT_TRUE(status);
  EXPECT_TRUE(std::holds_alternative<JobDirectory::NeverStarted>(*status));
  EXPECT_FALSE(job_.start(kStepd)) << "a stepd that comes late finds nothing to run";
  EXPECT_FALSE(std::filesystem::exists(work_ / "ran"));
}

TEST_F(Stepd, IsMissedWhenItWasKilled) {
  start("touch up; sleep 60");
  ASSERT_TRUE(reached("up"));
  kill(stepd_.pid.value(), SIGKILL);
  ASSERT_TRUE(test::eventually([&] { return !sys::is_alive(stepd_); }));
  const auto status = job_.inspect();
  ASSERT_TRUE(status);
  EXPECT_TRUE(std::holds_alternative<JobDirectory::Lost>(*status));
  // Its processes are found by their mark.
  const auto left = find_processes({.mark = launch_.mark, .marked_uid = user_.uid});
  EXPECT_GE(left.size(), 1U);
  EXPECT_TRUE(kill_tree({.mark = launch_.mark, .marked_uid = user_.uid}, seconds(10)).all_gone);
}

TEST_F(Stepd, WritesItsExitWholeOrNotAtAll) {
  start("exit 9");
  // Whoever reads while it is written gets nothing or all of it.
  EXPECT_TRUE(test::eventually([&] {
    const auto text = sys::read_whole(job_.path() / "exit.json");
    if (!text) return false;
    const auto record = exit_from_json(*text);
    EXPECT_TRUE(record);
    return record && record->exit_code == 9;
  }));
  for (const auto& entry : std::filesystem::directory_iterator(job_.path())) {
    EXPECT_THAT(entry.path().string(), Not(HasSubstr(".tmp")));
  }
}

TEST_F(Stepd, RefusesNonsense) {
  write("#!/bin/bash\n");
  ASSERT_TRUE(sys::write_whole(job_.path() / "launch.json", "{\"job_id\": 26", 0600, false));
  EXPECT_THAT(job_.start(kStepd).error().message, HasSubstr("launch.json"));
  EXPECT_FALSE(job_.start("/no/such/program"));
}

TEST_F(Stepd, CancelsAJobThatWaitsForAFifo) {
  ASSERT_EQ(mkfifo((work_ / "fifo").c_str(), 0666), 0);
  launch_.std_in = (work_ / "fifo").string();
  start("cat");
  ASSERT_TRUE(job_.send(CancelCommand{}));
  EXPECT_EQ(finish().reason, EndReason::cancelled);
}

TEST_F(Stepd, RunsAsTheUserWithTheirFiles) {
  const auto user = test::someone();
  if (!user) GTEST_SKIP() << "needs root and the user games";
  become(*user);
  const auto record = run("id -u; id -g; id -G; umask; echo x > mine; kill -0 $PPID 2>&1 | wc -l");
  EXPECT_EQ(record.exit_code, 0);
  EXPECT_THAT(output(), ContainsRegex(fmt::format("^{}\n{}\n", user->uid, user->gid)));
  EXPECT_THAT(output(), HasSubstr("0022\n1\n")) << "and cannot touch its stepd";
  struct stat info {};
  ASSERT_EQ(stat((work_ / "out").c_str(), &info), 0);
  EXPECT_EQ(info.st_uid, user->uid.value());
}

TEST_F(Stepd, OpensFilesAsTheUserOnly) {
  const auto user = test::someone();
  if (!user) GTEST_SKIP() << "needs root and the user games";
  become(*user);
  const auto secret = folder_.path() / "secret";
  ASSERT_TRUE(sys::write_whole(secret, "root's", 0600, false));
  // By name, and by a link the user put where the output goes.
  launch_.std_out = secret.string();
  auto record = run("echo owned");
  EXPECT_EQ(record.reason, EndReason::launch_failed);
  EXPECT_THAT(record.detail, HasSubstr("Permission denied"));
  std::filesystem::create_symlink(secret, work_ / "out");
  launch_.std_out = (work_ / "out").string();
  record = run("echo owned");
  EXPECT_EQ(record.reason, EndReason::launch_failed);
  launch_.std_out = (work_ / "other").string();
  launch_.std_in = secret.string();
  record = run("cat");
  EXPECT_THAT(record.detail, HasSubstr("Could not open stdin file"));
  EXPECT_EQ(test::read_text(secret), "root's");
}

TEST_F(Stepd, KeepsScriptAndEnvironmentFromOthers) {
  const auto user = test::someone();
  if (!user) GTEST_SKIP() << "needs root and the user games";
  become(*user);
  write("#!/bin/bash\n");
  struct stat info {};
  ASSERT_EQ(stat(job_.script().c_str(), &info), 0);
  // The user's file in our folder could grow without end.
  EXPECT_EQ(info.st_uid, 0U);
  EXPECT_EQ(info.st_mode & 0227, 0U);
  const auto may = [&](Uid who, int what) {
    const pid_t child = ::fork();
    if (child == 0) {
      const auto id = who.value();
      if (syscall(SYS_setgroups, 0, nullptr) != 0 || syscall(SYS_setresgid, id, id, id) != 0 ||
          syscall(SYS_setresuid, id, id, id) != 0) {
        ::_exit(2);
      }
      ::_exit(::access(job_.script().c_str(), what) == 0 ? 0 : 1);
    }
    int status = 0;
    ::waitpid(child, &status, 0);
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
  };
  EXPECT_TRUE(may(user->uid, R_OK | X_OK));
  EXPECT_FALSE(may(user->uid, W_OK));
  EXPECT_FALSE(may(Uid(user->uid.value() + 1), R_OK));
  EXPECT_FALSE(may(Uid(user->uid.value() + 1), X_OK));
  ASSERT_EQ(stat((job_.path() / "launch.json").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600U);
  EXPECT_EQ(info.st_uid, 0U);
}

// In a group of its own, where there are any.
class StepdInGroup : public Stepd {
 protected:
  void SetUp() override {
    if (!cgroups_->available()) GTEST_SKIP() << cgroups_->capabilities();
    const auto paths = cgroups_->create(group_, {.memory = mib(64)});
    ASSERT_TRUE(paths) << paths.error().message;
    launch_.group = *paths;
  }
  void TearDown() override { EXPECT_TRUE(cgroups_->remove(group_)); }

  const std::unique_ptr<Cgroups> cgroups_ = open_cgroups("aliquot-test");
  const Group group_{{JobId(getpid())}};  // tests run side by side
};

TEST_F(StepdInGroup, RunsInsideIt) {
  const auto record = run("cat /proc/self/cgroup; (setsid sleep 300 &); sleep 0.1");
  EXPECT_THAT(output(), HasSubstr(fmt::format("/aliquot-test/job_{}", getpid())));
  EXPECT_GE(record.leftovers, 1);
  EXPECT_TRUE(group_processes(launch_.group)->empty());
}

TEST_F(StepdInGroup, SaysThatMemoryRanOut) {
  const auto record = run("tail -n 1 /dev/zero; exit 1");
  EXPECT_EQ(record.reason, EndReason::oom);
  EXPECT_GE(record.oom_kills, 1);
  EXPECT_THAT(output(), HasSubstr("oom_kill event"));
}

// Words come after the signals, and from somebody who may wait for the file as long as it takes.
// One that SIGKILL does not end, as in the driver: its tracer does not let it go.
TEST_F(Stepd, DoesNotWaitForAControlProgramThatHangs) {
  const auto program = folder_.path() / "control";
  const auto asked = folder_.path() / "asked";
  std::ofstream(program) << "#!/bin/bash\necho $$ >>" << asked.string() << "\nexec sleep 600\n";
  std::filesystem::permissions(program, std::filesystem::perms::owner_all);
  launch_.mps = {program.string(), {}, folder_.path().string()};
  start("sleep 600 & exit 0");
  ASSERT_TRUE(test::eventually([&] { return test::read_text(asked).ends_with('\n'); }));
  const pid_t pid = std::stoi(test::read_text(asked));
  if (ptrace(PTRACE_SEIZE, pid, nullptr, PTRACE_O_TRACEEXIT) != 0) GTEST_SKIP() << "no ptrace";
  const bool ended = test::eventually([&] { return job_.read_exit().has_value(); });
  EXPECT_TRUE(sys::is_alive(sys::read_process(Pid(pid))->ref)) << "it was to hang";
  EXPECT_EQ(test::read_text(asked), std::to_string(pid) + "\n");
  waitpid(pid, nullptr, __WALL);
  ptrace(PTRACE_DETACH, pid, nullptr, nullptr);
  ASSERT_TRUE(ended);
  const auto record = finish();
  EXPECT_EQ(record.leftovers, 1);
  EXPECT_THAT(record.detail, HasSubstr("no answer in time"));
}

TEST_F(Stepd, EndsAJobWhoseStderrHangs) {
  const test::HangingFile file(folder_.path() / "away");
  if (!file.mounted()) GTEST_SKIP() << "needs root and FUSE";
  launch_.std_err = file.path().string();
  launch_.time_limit_ms = 500;
  EXPECT_EQ(run("sleep 300").reason, EndReason::timeout);
  EXPECT_TRUE(file.somebody_hangs());
}

TEST_F(Stepd, EndsAJobWhoseStderrNobodyReads) {
  const auto pipe = work_ / "pipe";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0666), 0);
  const sys::Fd reader(open(pipe.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  launch_.std_err = pipe.string();
  start("head -c 65530 /dev/zero >&2; touch up; exec sleep 300");
  ASSERT_TRUE(reached("up"));
  ASSERT_TRUE(job_.send(kPassed));
  EXPECT_EQ(finish().reason, EndReason::timeout);
  // Whoever says it is the user's process now: it has the pipe, and the end of it that we hear.
  const auto open_in_speaker = [&] {
    std::set<std::string> open;
    for (const auto& process : std::filesystem::directory_iterator("/proc")) {
      if (test::read_text(process.path() / "comm") != "aliquot-say\n") continue;
      std::error_code gone;
      if (std::filesystem::read_symlink(process.path() / "fd/0", gone) != pipe) continue;
      for (const auto& file : std::filesystem::directory_iterator(process.path() / "fd", gone)) {
        open.insert(file.path().filename());
      }
    }
    return open;
  };
  const std::set<std::string> wanted = {"0", "1"};
  EXPECT_TRUE(test::eventually([&] { return open_in_speaker() == wanted; }));
}

}  // namespace
}  // namespace aliquot::node
