// The real thing end to end: aliquotd, aliquot-stepd and the stand-in's GPUs, spoken to through
// net::Client as the commands do.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <map>
#include <random>
#include <thread>

#include "engine/daemon_fixture.hpp"

namespace aliquot::engine {
namespace {

TEST_F(DaemonTest, RunsAScriptWithItsGpu) {
  auto wanted = spec(
      "echo $SLURM_JOB_ID $SPECIAL $SLURM_JOB_GPUS; echo \"gpu=$CUDA_VISIBLE_DEVICES\"; exit 3");
  wanted.gres = "gpu:1";
  const auto id = submit(wanted);
  const auto info = wait(id);
  EXPECT_EQ(info.state, "FAILED") << info.reason << ": " << info.reason_detail;
  EXPECT_EQ(info.exit_code, 3);
  ASSERT_EQ(info.gpus.size(), 1U);
  const std::string out = read(folder_ + "/slurm-1.out");
  EXPECT_NE(out.find("1 value"), std::string::npos) << out;
  EXPECT_NE(out.find("1 value 0\ngpu=0\n"), std::string::npos) << out;
  const auto cluster = get<api::ClusterInfo>("/v1/cluster");
  ASSERT_TRUE(cluster);
  EXPECT_TRUE(cluster->simulated);
  EXPECT_EQ(cluster->node.gpus.size(), 4U);
}

TEST_F(DaemonTest, CancelsAndTimesOut) {
  const auto cancelled = submit(spec("sleep 1000"));
  auto limited = spec("sleep 1000");
  limited.time_limit_ms = 1'000;
  const auto timed_out = submit(limited);
  for (int i = 0; i < 100; ++i) {
    if (get<api::JobInfo>("/v1/jobs/1")->state == "RUNNING") break;
    std::this_thread::sleep_for(20ms);
  }
  EXPECT_EQ(post("/v1/jobs/1/cancel").status, 200);
  EXPECT_EQ(wait(cancelled).state, "CANCELLED");
  const auto info = wait(timed_out);
  EXPECT_EQ(info.state, "TIMEOUT");
  EXPECT_EQ(info.reason, "TimeLimit");
  EXPECT_EQ(post("/v1/jobs/1/cancel").status, 409);
  EXPECT_EQ(post("/v1/jobs/77/cancel").status, 404);
}

// A class that submits at once: it spreads evenly, and no GPU is promised more than it has.
TEST_F(DaemonTest, ABurstOfSharesIsSpreadEvenlyWithinTheMemory) {
  constexpr int kJobs = 200;
  auto share = spec("sleep 600");
  share.gpu_mem = "2G";
  for (int i = 0; i < kJobs; ++i) submit(share);
  // Submitted is not started, on a busy machine.
  for (int id = 1; id <= kJobs; ++id) {
    const auto path = "/v1/jobs/" + std::to_string(id);
    while (get<api::JobInfo>(path)->state == "PENDING") std::this_thread::sleep_for(20ms);
  }
  const auto jobs_of_gpus = [&] {
    std::vector<std::size_t> counts;
    const auto cluster = get<api::ClusterInfo>("/v1/cluster").value();
    for (const auto& gpu : cluster.node.gpus) {
      EXPECT_LE(gpu.memory_granted, gpu.memory);
      counts.push_back(gpu.jobs.size());
    }
    return counts;
  };
  EXPECT_EQ(jobs_of_gpus(), std::vector<std::size_t>(4, kJobs / 4));
  for (int id = 1; id <= kJobs; ++id) post("/v1/jobs/" + std::to_string(id) + "/cancel");

  // More than fits: now memory is what counts, at every moment.
  std::mt19937 random(1);
  for (int i = 0; i < kJobs; ++i) {
    auto big = spec("sleep 0." + std::to_string(random() % 5));
    big.gpu_mem = std::to_string(5 + random() % 60) + "G";
    submit(big);
    if (i % 5 == 0) jobs_of_gpus();
  }
  while (busy()) {
    jobs_of_gpus();
    std::this_thread::sleep_for(20ms);
  }
  for (int id = kJobs + 1; id <= 2 * kJobs; ++id) EXPECT_EQ(wait(id).state, "COMPLETED");
  EXPECT_EQ(jobs_of_gpus(), std::vector<std::size_t>(4, 0));
}

TEST_F(DaemonTest, AnAllocationEndsWithItsConnection) {
  auto wanted = spec("");
  wanted.batch = false;
  wanted.gres = "gpu:4";
  // In a child: whoever asks is moved into the job's group, and ends with it.
  const pid_t child = ::fork();
  if (child == 0) {
    auto client = net::Client::connect(folder_ + "/s");
    const auto response = client->send("POST", "/v1/allocations", api::to_json(wanted));
    if (!response || response->status != 200) ::_exit(1);
    if (get<api::JobInfo>("/v1/jobs/1")->state != "RUNNING") ::_exit(2);
    const auto step = client->send("POST", "/v1/jobs/1/steps", R"({"name":"x"})");
    if (!step || step->status != 200) ::_exit(3);
    const auto end = client->send("POST", "/v1/jobs/1/steps/0/end", R"({"exit_code":5})");
    if (!end || end->status != 200) ::_exit(4);
    if (client->send("POST", "/v1/jobs/1/end", R"({"exit_code":4})")->status != 200) ::_exit(5);
    ::_exit(0);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  const auto info = wait(1);
  EXPECT_EQ(info.exit_code, 4);
  EXPECT_EQ(info.derived_exit_code, 5);
  EXPECT_EQ(info.state, "FAILED");
}

TEST_F(DaemonTest, ASecondDaemonIsRefused) {
  const std::string command = std::string(ALIQUOT_BIN_DIR "/aliquotd --foreground --socket ") +
                              folder_ + "/other --state-dir " + folder_ + "/state 2>&1";
  FILE* pipe = ::popen(command.c_str(), "r");
  std::string said(512, '\0');
  said.resize(std::fread(said.data(), 1, said.size(), pipe));
  EXPECT_NE(::pclose(pipe), 0);
  EXPECT_NE(said.find("another daemon (pid " + std::to_string(daemon_)), std::string::npos) << said;
}

TEST_F(DaemonTest, StopsCleanlyAndTheJobsGoOn) {
  const auto id = submit(spec("sleep 1; exit 9"));
  for (int i = 0; i < 5000 && get<api::JobInfo>("/v1/jobs/1")->state != "RUNNING"; ++i) {
    std::this_thread::sleep_for(20ms);
  }
  EXPECT_EQ(stop(SIGTERM), 0);
  EXPECT_FALSE(fs::exists(folder_ + "/s"));
  start();
  const auto info = wait(id);
  EXPECT_EQ(info.state, "FAILED");
  EXPECT_EQ(info.exit_code, 9);
}

// ALIQUOT_SOAK=200 for the long run (make soak).
TEST_F(DaemonTest, NothingIsLostWhenItIsKilledAtRandom) {
  const char* soak = std::getenv("ALIQUOT_SOAK");
  const int kills = soak == nullptr ? 5 : std::atoi(soak);
  std::mt19937 random(static_cast<unsigned>(std::time(nullptr)));
  std::map<std::int64_t, int> expected;
  for (int i = 0; i < kills; ++i) {
    const auto until = std::chrono::steady_clock::now() + std::chrono::milliseconds(random() % 400);
    while (std::chrono::steady_clock::now() < until) {
      const int code = static_cast<int>(random() % 4);
      auto wanted = spec("echo run >> " + folder_ + "/ran-$SLURM_JOB_ID; sleep 0.0" +
                         std::to_string(random() % 10) + "; exit " + std::to_string(code));
      wanted.gres = "mps:40";
      wanted.std_out = "/dev/null";
      wanted.requeue = false;
      const auto response = post("/v1/jobs", api::to_json(wanted));
      if (response.status == 200) {
        expected[api::from_json<api::Submitted>(response.body)->job_id] = code;
      }
    }
    stop(SIGKILL);
    start();
  }
  ASSERT_FALSE(expected.empty());
  for (const auto& [id, code] : expected) {
    const auto info = wait(id);
    EXPECT_EQ(info.exit_code, code) << id << " " << info.state << " " << info.reason;
    EXPECT_EQ(read(folder_ + "/ran-" + std::to_string(id)), "run\n") << id;
  }
  const auto cluster = get<api::ClusterInfo>("/v1/cluster");
  ASSERT_TRUE(cluster);
  for (const auto& gpu : cluster->node.gpus) EXPECT_EQ(gpu.memory_granted, 0);
}

}  // namespace
}  // namespace aliquot::engine
