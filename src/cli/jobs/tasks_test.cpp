#include "cli/jobs/tasks.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "cli/jobs/task_io.hpp"
#include "sys/fd.hpp"

namespace aliquot::cli {
namespace {

class Tasks : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = (std::filesystem::temp_directory_path() / "tasks.XXXXXX").string();
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    folder_ = name;
    voice_.set_level(-1);
    plan_.folder = folder_;
    plan_.names.host = "here";
    plan_.names.job = JobId(7);
    plan_.names.step = 0;
    plan_.std_in = "none";
    plan_.std_err = "none";
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  void add(const std::string& script) {
    Task task;
    task.command = {"sh", "-c", script};
    task.environment.set("PATH=/usr/bin:/bin");
    task.environment.set("SLURM_PROCID", std::to_string(plan_.tasks.size()));
    plan_.tasks.push_back(std::move(task));
  }
  [[nodiscard]] std::string read(const std::string& name) const {
    std::ifstream file(folder_ + "/" + name);
    std::ostringstream text;
    text << file.rdbuf();
    return text.str();
  }
  // All of them, in one file.
  void expect_written(const std::string& text) {
    plan_.std_out = "out";
    EXPECT_EQ(run_tasks(plan_, voice_).status, 0);
    EXPECT_EQ(read("out"), text);
  }

  std::string folder_;
  Voice voice_{"srun"};
  StepPlan plan_;
};

TEST_F(Tasks, EndAsTheWorstOfThem) {
  struct Case {
    std::vector<std::string> scripts;
    int status, exit_code, exit_signal;
  };
  for (const auto& [scripts, status, exit_code, exit_signal] :
       {Case{{"exit 3", "exit 7", "true"}, 7, 7, 0}, Case{{"kill -9 $$"}, 137, 0, 9}}) {
    plan_.tasks.clear();
    for (const auto& script : scripts) add(script);
    const auto outcome = run_tasks(plan_, voice_);
    EXPECT_EQ(outcome.status, status) << scripts.front();
    EXPECT_EQ(outcome.end.exit_code, exit_code) << scripts.front();
    EXPECT_EQ(outcome.end.exit_signal, exit_signal) << scripts.front();
  }
}

TEST_F(Tasks, AMissingCommandIs2) {
  add("true");
  plan_.tasks[0].command = {"no-such-command"};
  EXPECT_EQ(run_tasks(plan_, voice_).status, 2);
}

TEST_F(Tasks, WriteEachToItsFile) {
  for (int i = 0; i < 2; ++i) add("echo $SLURM_PROCID in $(pwd)");
  plan_.std_out = "out-%t";
  EXPECT_EQ(run_tasks(plan_, voice_).status, 0);
  EXPECT_EQ(read("out-0"), "0 in " + folder_ + "\n");
  EXPECT_EQ(read("out-1"), "1 in " + folder_ + "\n");
}

TEST_F(Tasks, AreLabelledLineByLine) {
  add("printf 'a\\nb'");
  plan_.label = true;
  expect_written("0: a\n0: b\n");
}

TEST_F(Tasks, KeepTheEndOfAFileWhenAppending) {
  add("echo more");
  std::ofstream(folder_ + "/out") << "first\n";
  plan_.append = true;
  expect_written("first\nmore\n");
}

TEST_F(Tasks, EndTogetherWhenOneFails) {
  add("exec sleep 60");
  add("exit 3");
  plan_.kill_on_bad_exit = true;
  const auto outcome = run_tasks(plan_, voice_);
  EXPECT_EQ(outcome.status, 3);
}

TEST_F(Tasks, KnowTheirProcess) {
  add("test \"$SLURM_TASK_PID\" = $$");
  EXPECT_EQ(run_tasks(plan_, voice_).status, 0);
}

TEST_F(Tasks, AreNotHeldUpByWhatTheyLeaveBehind) {
  add("sleep 5 & exit 4");
  plan_.std_out = "out";
  plan_.label = true;
  EXPECT_EQ(run_tasks(plan_, voice_).status, 4);
}

// salloc's shell: what its user had open goes on, what we opened does not.
TEST(UsersFiles, AreKeptAndNoOthers) {
  const sys::Fd theirs(::open("/dev/null", O_RDONLY));
  const UsersFiles files;
  const sys::Fd ours(::open("/dev/null", O_RDONLY));
  files.keep_only();
  EXPECT_EQ(::fcntl(theirs.get(), F_GETFD), 0);
  EXPECT_EQ(::fcntl(ours.get(), F_GETFD), FD_CLOEXEC);
}

}  // namespace
}  // namespace aliquot::cli
