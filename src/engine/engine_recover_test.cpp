// What runs and is not on record: the database was lost, or is an older one.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <filesystem>

#include "engine/daemon_fixture.hpp"
#include "engine/engine_fixture.hpp"
#include "gpu/mps_pipe.hpp"

namespace aliquot::engine {
namespace {

class EngineRecoverTest : public EngineFixture, public testing::Test {
 protected:
  // As after a disk that was replaced; what runs goes on.
  void lose_record() {
    engine.reset();
    for (const char* end : {"", "-wal", "-shm"}) std::filesystem::remove(database() + end);
    open();
  }
};

TEST_F(EngineRecoverTest, WhatRunsWithoutARecordIsEndedBeforeItsGpuIsGivenAgain) {
  const auto running = submit(spec("gpu:4"));
  const auto requeued = submit(spec());
  ASSERT_TRUE(engine->runs().requeue({Uid(1000)}, std::to_string(requeued), false));
  end(requeued);
  ASSERT_EQ(job(requeued).restarts, 1);
  lose_record();
  const auto next = engine->queue().submit({Uid(1001)}, spec("gpu:4"));
  ASSERT_TRUE(next);
  EXPECT_GT(next->value(), requeued) << "nor is its number";
  engine->settle();
  EXPECT_EQ(state(next->value()), "PENDING") << "nobody knows what they hold";
  settle();
  EXPECT_EQ(state(next->value()), "RUNNING");
  EXPECT_EQ(
      executor.forgotten_runs,
      (std::vector<node::Run>{{JobId(requeued), 0}, {JobId(running), 0}, {JobId(requeued), 1}}));
  end(next->value());
  lose_record();
  EXPECT_EQ(state(submit(spec("gpu:4"))), "RUNNING") << "where nothing is left nobody waits";
}

TEST_F(EngineRecoverTest, WhatKeepsTheQueueFromStartingIsNamed) {
  const auto running = submit(spec());
  lose_record();
  const auto next = engine->queue().submit({Uid(1001)}, spec());
  ASSERT_TRUE(next);
  engine->runs().on_stuck(JobId(running), 0, "process 9 was killed and does not die");
  engine->settle();
  const std::string words = "of job 1, process 9 was killed and does not die: nothing starts until";
  EXPECT_EQ(state(next->value()), "PENDING");
  EXPECT_EQ(job(next->value()).reason_detail, words + " it does");
  const auto why = engine->views().why({Uid(1001)}, std::to_string(next->value()));
  ASSERT_TRUE(why);
  EXPECT_EQ(why->sentences, std::vector<std::string>{"O" + words.substr(1) + " it does."});
  settle();
  EXPECT_EQ(state(next->value()), "RUNNING");
}

TEST_F(EngineRecoverTest, NumbersThatWereSeenStaySeen) {
  submit(spec());
  const auto last = submit(spec());
  lose_record();
  settle();
  ASSERT_TRUE(executor.runs.empty());
  crash();
  EXPECT_GT(submit(spec()), last);
}

TEST_F(EngineRecoverTest, AnEndThatWasNotClearedAwayIsNoJobs) {
  const auto id = submit(spec());
  const auto run = executor.runs;
  end(id);
  executor.runs = run;
  crash();
  settle();
  EXPECT_TRUE(executor.runs.empty());
  EXPECT_EQ(state(id), "COMPLETED");
  EXPECT_EQ(state(submit(spec("gpu:4"))), "RUNNING");
}

class LostRecordTest : public DaemonTest {
 protected:
  LostRecordTest() : DaemonTest("", "h200:1") {}

  void lose_record() {
    stop(SIGKILL);
    for (const char* end : {"", "-wal", "-shm"}) fs::remove(folder_ + "/state/state.db" + end);
    fs::remove(folder_ + "/s");
    start();
  }

  // Instead of this process.
  [[noreturn]] void load(std::vector<const char*> arguments) const {
    for (const auto& variable : standin()) ::putenv(::strdup(variable.c_str()));
    ::setenv("CUDA_VISIBLE_DEVICES", "0", 1);
    arguments.insert(arguments.begin(), {"aliquot-load", "--seconds", "600"});
    arguments.push_back(nullptr);
    ::freopen("/dev/null", "w", stdout);
    ::execv(ALIQUOT_BIN_DIR "/aliquot-load", const_cast<char**>(arguments.data()));
    ::_exit(127);
  }
  [[nodiscard]] std::vector<std::string> standin() const {
    return {"LD_LIBRARY_PATH=" ALIQUOT_BIN_DIR "/../standin",
            "ALIQUOT_STANDIN_STATE=" + folder_ + "/state/standin"};
  }
  // Of the MPS server.
  [[nodiscard]] std::ptrdiff_t clients(const fs::path& pipes) const {
    const gpu::MpsPipe pipe{ALIQUOT_BIN_DIR "/../standin/nvidia-cuda-mps-control", standin(),
                            pipes.parent_path().string()};
    return std::ranges::count(gpu::tell(pipe, "ps\n", seconds(2)).text, '\n') - 1;
  }
};

TEST_F(LostRecordTest, NobodyGetsAGpuOnWhichAnotherRuns) {
  auto first = spec(
      "trap 'sleep 0.3; echo ended >>order; exit' TERM; echo runs >>order; "
      "while :; do sleep 0.1; done");
  first.gpus = "1";
  const auto lost = submit(first);
  for (int i = 0; i < 2000 && read(folder_ + "/order").empty(); ++i) {
    std::this_thread::sleep_for(10ms);
  }
  lose_record();
  auto second = spec("echo next >>order");
  second.gpus = "1";
  const auto next = submit(second);
  EXPECT_GT(next, lost);
  EXPECT_EQ(wait(next).state, "COMPLETED");
  EXPECT_EQ(read(folder_ + "/order"), "runs\nended\nnext\n");
  EXPECT_NE(read(folder_ + "/log").find("is not on record and may run"), std::string::npos);
}

// On the same MPS server, in the middle of long kernels: killed as they are they would take it
// along.
TEST_F(LostRecordTest, TheNeighbourOfWhatIsEndedLivesOn) {
  auto wanted = spec("");
  wanted.batch = false;
  wanted.detached = true;
  wanted.gpu_mem = "10G";
  const std::string pipes = folder_ + "/pipes";
  // Whoever asks is moved into the job's group.
  const pid_t child = ::fork();
  if (child == 0) {
    const auto response = post("/v1/allocations", api::to_json(wanted));
    const auto allocation = api::from_json<api::Allocation>(response.body);
    if (!allocation) ::_exit(1);
    for (const std::string& variable : allocation->environment) {
      ::putenv(::strdup(variable.c_str()));
    }
    std::ofstream(pipes) << ::getenv("CUDA_MPS_PIPE_DIRECTORY") << std::flush;
    load({"--iterations", "400000000"});
  }
  const auto eventually = [](const auto& condition) {
    for (int i = 0; i < 1000 && !condition(); ++i) std::this_thread::sleep_for(50ms);
    return condition();
  };
  ASSERT_TRUE(eventually([&] { return !read(pipes).empty(); })) << read(folder_ + "/log");
  const pid_t neighbour = ::fork();
  if (neighbour == 0) {
    ::setenv("CUDA_MPS_PIPE_DIRECTORY", read(pipes).c_str(), 1);
    load({});
  }
  EXPECT_TRUE(eventually([&] { return clients(read(pipes)) == 2; }));
  lose_record();
  int status = 0;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFSIGNALED(status) || WEXITSTATUS(status) != 127) << status;
  // A slow machine proves less with this; it cannot fail of it.
  std::this_thread::sleep_for(500ms);
  EXPECT_EQ(::waitpid(neighbour, nullptr, WNOHANG), 0) << read(folder_ + "/log");
  ::kill(neighbour, SIGKILL);
  ::waitpid(neighbour, nullptr, 0);
}

}  // namespace
}  // namespace aliquot::engine
