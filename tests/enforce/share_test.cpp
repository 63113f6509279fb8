// Shares of compute from end to end: the daemon's arbiter and the library in the jobs, on the
// stand-in's GPU. What counts is the simulated GPU's own time: a busy machine makes everything
// slower, not unfair.
#include <gtest/gtest.h>

#include <fcntl.h>
#include <unistd.h>

#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "enforce/job.hpp"
#include "node/arbiter.hpp"
#include "node/grant_folder.hpp"
#include "node/lease_board.hpp"
#include "standin/state/compute_model.hpp"

namespace aliquot::enforce::test {
namespace {

namespace fs = std::filesystem;
using standin::test::Machine;
using Clock = std::chrono::steady_clock;

constexpr double kNsPerIteration = 2;  // of the stand-in's "spin"
// Long kernels: a test machine needs a while to notice that one is over.
constexpr double kKernelMs = 8;

class Shares : public testing::Test {
 protected:
  Shares() {
    char name[] = "/tmp/aliquot-shares-XXXXXX";
    root_ = mkdtemp(name);
    arbiter_ = std::make_unique<node::Arbiter>(root_);
  }
  ~Shares() override {
    victims_.clear();
    if (!pipes_.empty()) control("echo quit | ", "");
    arbiter_.reset();
    fs::remove_all(root_);
  }

  // The jobs to come are clients of one MPS server.
  void use_server() {
    pipes_ = root_ / "mps";
    fs::create_directories(pipes_);
    control("", " -d");
  }

  // A job with that many processes, each of which does what it is told for a long time.
  void add(int percent, const std::string& what, int processes = 1,
           const std::vector<unsigned>& gpus = {0}) {
    const auto slot = static_cast<std::uint32_t>(jobs_.size()) + 1;
    core::Grant grant{
        .holder = HolderId(std::to_string(slot)), .owner = Uid(getuid()), .group = Gid(getgid())};
    std::vector<std::optional<node::LeasePlace>> leases;
    for (const unsigned gpu : gpus) {
      const fs::path board = root_ / ("board" + std::to_string(gpu));
      ASSERT_TRUE(node::LeaseBoard::open(board));
      grant.gpus.push_back({GpuId(uuid(gpu)), {gib(10), Compute(100) * percent}});
      leases.emplace_back(node::LeasePlace{board, slot});
    }
    const auto folder = node::GrantFolder::create(root_, grant, leases, {});
    ASSERT_TRUE(folder) << folder.error().message;
    arbiter_->add(grant.holder, pipes_.empty() ? 0 : 1);
    jobs_.emplace_back();
    for (int i = 0; i < processes; ++i) {
      Victim::Settings settings{{ALIQUOT_GRANT_VARIABLE, folder->path()}};
      if (!pipes_.empty()) settings["CUDA_MPS_PIPE_DIRECTORY"] = pipes_;
      victims_.push_back(std::make_unique<Victim>(nullptr, "dlsym", settings));
      // The driver counts the GPUs of the machine; the job works on the first of its own.
      ASSERT_EQ(victims_.back()->begin(static_cast<int>(gpus[0])), 0);
      jobs_.back().push_back(victims_.back().get());
    }
    whats_.push_back(what);
  }

  // Whether it fits what each job got of the GPU time that was used, once things have settled.
  using Parts = std::vector<double>;
  void expect_parts(const std::function<bool(const Parts&)>& fits, double settle_s = 1.5,
                    double seconds = 3) {
    std::vector<pid_t> processes;
    for (std::size_t i = 0; i < jobs_.size(); ++i) {
      for (Victim* victim : jobs_[i]) {
        victim->send(whats_[i]);
        processes.push_back(victim->pid());
      }
    }
    use_up(settle_s);
    Parts parts;
    // Who is kept from the CPU asks for no GPU, and an arbiter that is holds nobody back.
    EXPECT_TRUE(holds_in_calm(processes, [&] {
      const auto before = used();
      use_up(seconds);
      parts = used();
      double all = 0;
      for (std::size_t i = 0; i < parts.size(); ++i) all += parts[i] -= before[i];
      for (double& one : parts) one /= all;
      return fits(parts);
    })) << testing::PrintToString(parts);
  }
  static auto near(double part, double by) {
    return [part, by](const Parts& parts) { return std::abs(parts[0] - part) <= by; };
  }

  bool is_closed(unsigned gpu, std::uint32_t slot) {
    aliquot_gate gate{};
    const int fd = open((root_ / ("board" + std::to_string(gpu))).c_str(), O_RDONLY | O_CLOEXEC);
    const auto offset = static_cast<off_t>(offsetof(aliquot_board, gates) + slot * sizeof gate);
    EXPECT_EQ(pread(fd, &gate, sizeof gate, offset), static_cast<ssize_t>(sizeof gate));
    close(fd);
    return gate.word == 1;
  }
  std::function<void()> watch_;  // now and then

  static std::string kernels(int batch, const std::string& bursts = "") {
    return "work 600000 " +
           std::to_string(static_cast<std::uint64_t>(kKernelMs * 1e6 / kNsPerIteration)) + " " +
           std::to_string(batch) + " " + bursts;
  }

 private:
  void control(const std::string& before, const std::string& options) {
    const std::string folder = "'" + pipes_.string() + "'";
    const std::string command =
        before + "LD_LIBRARY_PATH=" ALIQUOT_STANDIN_DIR " CUDA_MPS_PIPE_DIRECTORY=" + folder +
        " CUDA_MPS_LOG_DIRECTORY=" + folder + " " ALIQUOT_STANDIN_DIR "/nvidia-cuda-mps-control" +
        options;
    EXPECT_EQ(std::system(command.c_str()), 0);
  }

  std::string uuid(unsigned gpu) {
    std::string text = "GPU-";
    for (const unsigned char byte : machine_.state().gpu(gpu).uuid) {
      char digits[3];
      std::snprintf(digits, sizeof digits, "%02x", byte);
      text += digits;
    }
    return text;
  }

  // Nanoseconds of the whole first GPU, for each job.
  std::vector<double> used() {
    standin::State& state = machine_.state();
    const standin::State::Guard guard(state);
    standin::GpuCompute& compute = state.gpu(0).compute;
    standin::advance(compute, state.now());
    std::vector<double> all;
    for (const auto& job : jobs_) {
      double sum = 0;
      for (const Victim* victim : job) sum += compute.use[state.find_pid(victim->pid())].sm;
      all.push_back(sum);
    }
    return all;
  }
  double used_in_all() {
    double all = 0;
    for (const double one : used()) all += one;
    return all;
  }
  void use_up(double seconds) {
    const double end = used_in_all() + seconds * 1e9;
    const auto limit = Clock::now() + std::chrono::seconds(60);
    while (used_in_all() < end && Clock::now() < limit) {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      if (watch_) watch_();
    }
  }

  Machine machine_{"h200:2"};
  fs::path root_;
  fs::path pipes_;
  std::unique_ptr<node::Arbiter> arbiter_;
  std::vector<std::unique_ptr<Victim>> victims_;
  std::vector<std::vector<Victim*>> jobs_;
  std::vector<std::string> whats_;
};

TEST_F(Shares, hold_for_who_waits_once_a_second) {
  add(25, kernels(125));
  add(75, kernels(125));
  // The first second was queued before the other came, and is paid back.
  expect_parts(near(0.25, 0.08), 4);
}

TEST_F(Shares, hold_for_copies) {
  add(75, "copies 600000 4000000000 8");  // 2 ms each
  add(25, kernels(4));
  expect_parts(near(0.75, 0.08));
}

TEST_F(Shares, are_of_the_job_not_of_its_processes) {
  add(50, kernels(4), 4);
  add(50, kernels(4));
  expect_parts(near(0.5, 0.1));
}

TEST_F(Shares, hold_for_nearly_equal_ones) {
  add(40, kernels(4));
  add(60, kernels(4));
  expect_parts(near(0.4, 0.06));
}

// It wants half of the GPU, in quarters of a second, and has a right to it.
TEST_F(Shares, serve_bursts) {
  add(80, kernels(2, "250 250"));
  add(20, kernels(4));
  expect_parts([](const Parts& parts) { return parts[0] > 0.42; });
}

// Side by side in one server the longer kernels would have nearly everything.
TEST_F(Shares, hold_for_short_kernels_beside_long_ones) {
  use_server();
  add(50, kernels(4));
  add(50, "work 600000 250000 200");  // half a millisecond each
  expect_parts(near(0.5, 0.12));
}

// The neighbours are on one GPU each; the first job needs both of its own.
TEST_F(Shares, of_several_gpus_open_together) {
  add(30, kernels(4), 1, {0, 1});
  add(70, kernels(4));
  add(70, kernels(4), 1, {1});
  int closed = 0;
  int apart = 0;
  watch_ = [&] {
    const bool first = is_closed(0, 1);
    const bool second = is_closed(1, 1);
    if (first != is_closed(0, 1)) return;  // it is being changed
    closed += first ? 1 : 0;
    apart += first == second ? 0 : 1;
  };
  expect_parts([&](const Parts& parts) {
    const bool together = closed > 20 && apart < closed / 10;
    if (!together) std::printf("closed %d times, %d times one of them alone\n", closed, apart);
    closed = apart = 0;
    return together && near(0.3, 0.08)({parts[0] / (parts[0] + parts[1])});
  });
}

}  // namespace
}  // namespace aliquot::enforce::test
