#include "sim/replay.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <chrono>
#include <thread>

#include "sim/experiment.hpp"
#include "sim/synthetic.hpp"

namespace aliquot::sim {
namespace {

using ::testing::ElementsAre;

Workload small(std::int64_t nodes = 20, std::int64_t pods = 200, Compute limit = kWholeGpu) {
  SyntheticKnobs knobs;
  knobs.nodes = nodes;
  knobs.pods = pods;
  const auto trace = generate_trace(knobs).value();
  return make_workload(trace.nodes, trace.pods, 1, limit).value();
}

// Nodes with `gpus` GPUs and plenty of everything else, and one kind of pod.
Workload uniform(std::int64_t nodes, std::int64_t gpus, TracePod pod, Compute limit = kWholeGpu) {
  std::vector<TraceNode> list;
  for (std::int64_t i = 0; i < nodes; ++i) {
    list.push_back({fmt::format("n{}", i), CpuMilli(1'000'000), gib(1000), gpus, "T4"});
  }
  return make_workload(list, {std::move(pod)}, 1, limit).value();
}

ReplayResult run(const Workload& workload, std::string_view policy, std::uint64_t seed = 1,
                 std::int64_t arrived = 130) {
  Progress progress;
  const auto order = draw_order(workload, Draw::own, seed, arrived);
  return replay(workload, policy, order, arrived, progress).value();
}

TEST(Replay, ReportsThePublishedPointsAndItsEnd) {
  EXPECT_THAT(points_up_to(130), ElementsAre(90, 95, 100, 110, 120, 130));
  EXPECT_THAT(points_up_to(105), ElementsAre(90, 95, 100, 105));
  EXPECT_THAT(points_up_to(50), ElementsAre(50));
  EXPECT_THAT(points_up_to(140), ElementsAre(90, 95, 100, 110, 120, 130, 140));
}

// Shares of 600 m leave 400 m on every GPU: exactly 60 % can be allocated, whoever places them.
TEST(Replay, CountsWhatIsAllocated) {
  const auto workload = uniform(10, 10, {"p", CpuMilli(1), mib(1), 1, 600, {}});
  for (const auto& policy : known_policies()) {
    const auto result = run(workload, policy.name);
    EXPECT_EQ(result.placed, 100) << policy.name;
    EXPECT_EQ(result.decisions, 217) << policy.name;
    for (const auto& point : result.points) EXPECT_DOUBLE_EQ(point.allocated, 60) << policy.name;
  }
}

// Step by step: when half of the pods have come, half of the GPUs are allocated.
TEST(Replay, AveragesOverTheStepsThatRoundToAPoint) {
  const auto workload = uniform(10, 10, {"p", CpuMilli(1), mib(1), 1, 100, {}});
  const auto result = run(workload, "best-fit", 1, 100);
  // From 89.5 to 90.4 in steps of 0.1.
  EXPECT_NEAR(result.points[0].allocated, 89.95, 1e-9);
}

TEST(Replay, OverCommitIsForSharesOnly) {
  const TracePod half{"p", CpuMilli(1), mib(1), 1, 500, {}};
  EXPECT_EQ(run(uniform(10, 10, half), "fgd").placed, 200);
  EXPECT_EQ(run(uniform(10, 10, half, Compute(15'000)), "fgd").placed, 260);
  const TracePod whole{"p", CpuMilli(1), mib(1), 1, 1000, {}};
  const auto result = run(uniform(10, 10, whole, Compute(15'000)), "fgd");
  EXPECT_EQ(result.placed, 100);
  EXPECT_DOUBLE_EQ(result.points.back().allocated, 100);
}

TEST(Replay, PodsThatCanRunNowhereAreRefused) {
  EXPECT_EQ(run(uniform(2, 4, {"p", CpuMilli(1), mib(1), 1, 500, {"K80"}}), "aliquot").placed, 0);
  EXPECT_EQ(run(uniform(2, 4, {"p", CpuMilli(1), mib(1), 500, 1000, {}}), "aliquot").placed, 0);
}

TEST(Replay, OnePodMayJumpOverPoints) {
  const auto result = run(uniform(1, 8, {"p", CpuMilli(1), mib(1), 8, 1000, {}}), "aliquot");
  for (const auto& point : result.points) EXPECT_DOUBLE_EQ(point.allocated, 100);
}

// The published order leaves out the pod that would be too much, so its end may fall short.
TEST(Replay, APointThatIsNotReachedIsWhatTheLastPodLedTo) {
  const auto workload = uniform(1, 8, {"p", CpuMilli(1), mib(1), 1, 1000, {}});
  const auto order = draw_order(workload, Draw::published, 1, 130);
  EXPECT_EQ(order.arrivals.size(), 10U);
  Progress progress;
  const auto result = replay(workload, "aliquot", order, 130, progress).value();
  EXPECT_EQ(result.points.back().arrived, 130);
  EXPECT_DOUBLE_EQ(result.points.back().allocated, 100);
}

TEST(Replay, StopsWhenTold) {
  Progress progress;
  progress.stop = true;
  const auto workload = small(100, 1000);
  const auto order = draw_order(workload, Draw::own, 1, 130);
  EXPECT_TRUE(replay(workload, "best-fit", order, 130, progress).value().stopped);
}

TEST(Replay, AnUnknownPolicyIsAnError) {
  Progress progress;
  const auto workload = small();
  const auto order = draw_order(workload, Draw::own, 1, 130);
  EXPECT_FALSE(replay(workload, "none", order, 130, progress).has_value());
}

RC_GTEST_PROP(Replay, NeverAllocatesMoreThanArrivedOrThereIs, ()) {
  const auto workload = small(*rc::gen::inRange(1, 30), *rc::gen::inRange(20, 200));
  const auto policies = known_policies();
  const auto& policy = policies[*rc::gen::inRange<std::size_t>(0, policies.size())];
  const auto result = run(workload, policy.name, *rc::gen::arbitrary<std::uint64_t>());
  RC_ASSERT(result.placed <= result.decisions);
  for (const auto& point : result.points) {
    RC_ASSERT(point.allocated <= 100.0);
    RC_ASSERT(point.allocated >= 0.0);
  }
}

TEST(Experiment, ThreadsChangeNothing) {
  const auto workload = small();
  const Plan one{.policies = {"fgd", "aliquot"}, .seeds = {1, 2, 3}};
  Plan three = one;
  three.jobs = 3;
  const auto watch = [](std::int64_t) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return true;
  };
  const auto a = run_plan(workload, one, watch).value();
  const auto b = run_plan(workload, three, watch).value();
  ASSERT_EQ(a.policies.size(), 2U);
  for (std::size_t p = 0; p < 2; ++p) {
    EXPECT_EQ(a.policies[p].placed, b.policies[p].placed);
    for (std::size_t i = 0; i < a.policies[p].points.size(); ++i) {
      EXPECT_EQ(a.policies[p].points[i].mean, b.policies[p].points[i].mean);
      EXPECT_EQ(a.policies[p].points[i].deviation, b.policies[p].points[i].deviation);
    }
  }
}

TEST(Experiment, TheWatcherMayStopIt) {
  const Plan plan{.policies = {"fgd"}, .seeds = std::vector<std::uint64_t>(500, 1)};
  const auto outcome = run_plan(small(200, 2000), plan, [](std::int64_t) { return false; }).value();
  EXPECT_TRUE(outcome.stopped);
}

}  // namespace
}  // namespace aliquot::sim
