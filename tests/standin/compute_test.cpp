// The compute model against the figures measured on an H200, with a clock of its own: nothing here
// waits.
#include "standin/state/compute_model.hpp"

#include <gtest/gtest.h>

#include <memory>
#include <random>
#include <vector>

namespace aliquot::standin {
namespace {

constexpr double kSecond = 1e9;

class Compute : public testing::Test {
 protected:
  // A client that always has work: as matmul does, filling the GPU.
  int endless(int client, int group, double cap) {
    const int lane = open_lane(*gpu_, client, group, cap);
    submit(*gpu_, lane, 1e15, 1);
    return lane;
  }

  // Work done per second, as a fraction of what a lane alone would do.
  double rate(int lane) const { return gpu_->lanes[lane].done / elapsed_; }

  void run(double seconds) {
    elapsed_ = seconds * kSecond;
    advance(*gpu_, 1);
    advance(*gpu_, 1 + elapsed_);
  }

  std::unique_ptr<GpuCompute> gpu_ = std::make_unique<GpuCompute>();
  double elapsed_ = 0;
};

TEST_F(Compute, AloneGetsEverything) {
  const int lane = endless(1, 1, 1);
  run(2);
  EXPECT_NEAR(rate(lane), 1, 1e-6);
  EXPECT_NEAR(gpu_->utilized, 1, 1e-6);
}

TEST_F(Compute, PlainProcessesAlternateEqualSlicesAtASmallLoss) {
  for (const int count : {2, 4}) {
    *gpu_ = GpuCompute{};
    std::vector<int> lanes;
    for (int i = 0; i < count; ++i) lanes.push_back(endless(i, i, 1));
    run(1);
    double sum = 0;
    for (const int lane : lanes) {
      EXPECT_NEAR(rate(lane), 0.95 / count, 1e-6);
      sum += rate(lane);
    }
    EXPECT_NEAR(sum, 4517.0 / 4750, 0.02);
  }
}

TEST_F(Compute, PercentagesHoldWithinOneServer) {
  const int quarter = endless(1, 9, 0.25);
  const int rest = endless(2, 9, 0.75);
  run(1);
  EXPECT_NEAR(rate(quarter), 1182.0 / 4750, 0.03);
  EXPECT_NEAR(rate(rest), 3300.0 / 4750, 0.03);
  EXPECT_NEAR(rate(quarter) / (rate(quarter) + rate(rest)), 0.25, 0.02);
}

TEST_F(Compute, AQuarterAloneIsALittleMoreThanAQuarter) {
  const int lane = endless(1, 9, 0.25);
  run(1);
  EXPECT_NEAR(rate(lane), 1617.0 / 4750, 0.02);
}

TEST_F(Compute, PercentagesOnlyWasteAcrossServers) {
  const int quarter = endless(1, 8, 0.25);
  const int rest = endless(2, 9, 0.75);
  run(1);
  EXPECT_NEAR(rate(quarter), 843.0 / 4750, 0.03);
  EXPECT_NEAR(rate(rest), 1692.0 / 4750, 0.03);
}

TEST_F(Compute, UncappedClientsOfOneServerShareEvenly) {
  const int a = endless(1, 9, 1);
  const int b = endless(2, 9, 1);
  run(1);
  EXPECT_NEAR(rate(a), 0.5, 1e-6);
  EXPECT_NEAR(rate(b), 0.5, 1e-6);
}

// 12 ms kernels beside 0.2 ms kernels: 82.4 of 83.3 and 350 of 5160 a second.
TEST_F(Compute, LongKernelsWinWithinOneServer) {
  const int lane = open_lane(*gpu_, 1, 9, 1);
  const int other = open_lane(*gpu_, 2, 9, 1);
  for (int i = 0; i < 100; ++i) submit(*gpu_, lane, 12e6, 1);
  for (int i = 0; i < 6000; ++i) submit(*gpu_, other, 0.2e6, 1);
  run(1);
  EXPECT_NEAR(rate(lane), 0.99, 0.03);
  EXPECT_NEAR(rate(other), 0.07, 0.06);
}

TEST_F(Compute, CopyEnginesWorkBesideEverything) {
  const int kernels = endless(1, 1, 1);
  const int other = endless(2, 2, 1);
  const int copies = open_lane(*gpu_, 3, 3, 1);
  submit(*gpu_, copies, 1e15, 0);
  run(1);
  EXPECT_NEAR(rate(copies), 1, 1e-6);
  EXPECT_NEAR(rate(kernels), 0.475, 1e-6);
  EXPECT_NEAR(rate(other), 0.475, 1e-6);
}

TEST_F(Compute, AClientThatEndsGivesItsSliceBack) {
  const int lane = endless(1, 1, 1);
  endless(2, 2, 1);
  advance(*gpu_, 1);
  advance(*gpu_, 1 + kSecond);
  drop_client(*gpu_, 2);
  advance(*gpu_, 1 + 2 * kSecond);
  EXPECT_NEAR(gpu_->lanes[lane].done / kSecond, 0.475 + 1, 1e-6);
}

// The training step of the MNIST example: 1.18 ms on the CPU, then 0.41 ms on 44 % of the GPU.
double mnist_steps(GpuCompute& gpu, int jobs, int servers) {
  struct Job {
    int lane;
    double ready_at;  // when its next step may be launched; < 0 while one runs
    double mark;
  };
  constexpr double kThink = 1.176e6;
  constexpr double kWork = 0.411e6;
  std::vector<Job> all;
  for (int i = 0; i < jobs; ++i) {
    const int group = servers == 0 ? i : 100 + i % servers;
    all.push_back({open_lane(gpu, i, group, 1), 1 + i * 1e5, 0});
  }
  // Real jobs drift apart; identical ones that move in step would leave the GPU idle together.
  std::mt19937 random(1);
  std::uniform_real_distribution<double> jitter(0.5, 1.5);
  unsigned steps = 0;
  for (double now = 1; now < kSecond; now += 1e4) {
    advance(gpu, now);
    for (Job& job : all) {
      if (job.ready_at < 0 && finished(gpu, job.lane, job.mark)) {
        ++steps;
        job.ready_at = now + kThink * jitter(random);
      }
      if (job.ready_at >= 0 && now >= job.ready_at) {
        job.mark = submit(gpu, job.lane, kWork, 0.44);
        job.ready_at = -1;
      }
    }
  }
  return steps;
}

TEST_F(Compute, ManySmallJobsGainFromMpsAsMeasured) {
  const auto steps = [&](int jobs, int servers) {
    *gpu_ = GpuCompute{};
    return mnist_steps(*gpu_, jobs, servers);
  };
  EXPECT_NEAR(steps(1, 0), 630, 630 * 0.1);
  EXPECT_NEAR(steps(12, 0), 2311, 2311 * 0.15);
  EXPECT_NEAR(steps(12, 1), 5296, 5296 * 0.15);
  const double four_servers = steps(12, 4);
  EXPECT_GT(four_servers, 2311 * 1.1);
  EXPECT_LT(four_servers, 5296);
}

TEST_F(Compute, AProbeKnowsWhenItsWorkWasDone) {
  advance(*gpu_, 1);
  const int lane = open_lane(*gpu_, 1, 1, 1);
  submit(*gpu_, lane, 1e6, 1);
  const auto first = add_probe(*gpu_, lane);
  submit(*gpu_, lane, 2e6, 1);
  const auto second = add_probe(*gpu_, lane);
  EXPECT_EQ(probe_time(*gpu_, lane, first), 0);
  advance(*gpu_, 1e7);
  EXPECT_NEAR(probe_time(*gpu_, lane, first), 1 + 1e6, 1);
  EXPECT_NEAR(probe_time(*gpu_, lane, second), 1 + 3e6, 1);
}

TEST_F(Compute, UtilisationIsThatOfTheLastWholeWindow) {
  advance(*gpu_, 1);
  const int lane = open_lane(*gpu_, 1, 1, 1);
  submit(*gpu_, lane, kWindowNs / 2, 1);
  advance(*gpu_, 1 + 1.5 * kWindowNs);
  EXPECT_NEAR(gpu_->utilized, 0.5, 0.01);
  EXPECT_NEAR(gpu_->use[1].utilized, 0.5, 0.01);
  advance(*gpu_, 1 + 100 * kWindowNs);
  EXPECT_EQ(gpu_->utilized, 0);
}

}  // namespace
}  // namespace aliquot::standin
