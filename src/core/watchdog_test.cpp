#include "core/watchdog.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>

namespace aliquot::core {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

const JobId kJob(7);
const std::string kGpu = "GPU-0";

WatchedProcess stranger(std::int64_t pid, Bytes memory) { return {.pid = pid, .memory = memory}; }
WatchedProcess honest(std::int64_t pid, Bytes memory) {
  return {.pid = pid, .memory = memory, .registered = true, .charged = memory};
}

TEST(Watchdog, WhatFitsStays) {
  EXPECT_THAT(over_the_limit(gib(10), {}), IsEmpty());
  EXPECT_THAT(over_the_limit(gib(10), {honest(1, gib(10))}), IsEmpty());
  EXPECT_THAT(over_the_limit(gib(10), {stranger(1, gib(9))}), IsEmpty());
  // What the driver took by itself is nobody's fault, for each process.
  EXPECT_THAT(over_the_limit(gib(10), {{1, gib(5) + mib(200), true, gib(5)},
                                       {2, gib(5) + mib(200), true, gib(5)}}),
              IsEmpty());
}

TEST(Watchdog, OnlyWhoIsOverGoes) {
  EXPECT_THAT(over_the_limit(gib(10), {stranger(1, gib(60))}), ElementsAre(1));
  // Not its honest sibling, and not a small stranger that fits beside it.
  EXPECT_THAT(
      over_the_limit(gib(10), {honest(1, gib(9)), stranger(2, gib(60)), stranger(3, mib(500))}),
      ElementsAre(2));
  // What the honest ones have is not left for strangers.
  EXPECT_THAT(over_the_limit(gib(10), {honest(1, gib(9)), stranger(2, gib(5))}), ElementsAre(2));
}

TEST(Watchdog, ARegisteredOneThatHoldsMoreThanItSaysIsOver) {
  EXPECT_THAT(over_the_limit(gib(10), {honest(1, gib(4)), {2, gib(60), true, gib(1)}}),
              ElementsAre(2));
  // And one that says whatever suits it.
  EXPECT_THAT(over_the_limit(gib(10), {{1, gib(60), true, gib(60)}}), ElementsAre(1));
}

TEST(Watchdog, ActsInTheLookAfterItIsSeenAndEveryTime) {
  Watchdog watchdog;
  const std::vector<WatchedProcess> greedy = {stranger(1, gib(60))};
  EXPECT_THAT(watchdog.look(kJob, kGpu, gib(10), greedy).condemned, IsEmpty());
  EXPECT_THAT(watchdog.look(kJob, kGpu, gib(10), greedy).condemned, ElementsAre(1));
  EXPECT_THAT(watchdog.look(kJob, kGpu, gib(10), {}).condemned, IsEmpty());
  // It comes back under another number.
  const auto again = watchdog.look(kJob, kGpu, gib(10), {stranger(2, gib(60))});
  EXPECT_THAT(again.condemned, ElementsAre(2));
  EXPECT_EQ(again.times, 2);
  // The next job of that number is another one.
  watchdog.forget(kJob);
  EXPECT_THAT(watchdog.look(kJob, kGpu, gib(10), greedy).condemned, IsEmpty());
}

TEST(Watchdog, AMomentsOverlapIsNothing) {
  Watchdog watchdog;
  EXPECT_THAT(
      watchdog.look(kJob, kGpu, gib(10), {honest(1, gib(9)), stranger(2, gib(9))}).condemned,
      IsEmpty());
  EXPECT_THAT(watchdog.look(kJob, kGpu, gib(10), {stranger(2, gib(9))}).condemned, IsEmpty());
  EXPECT_THAT(watchdog.look(kJob, kGpu, gib(10), {stranger(3, gib(12))}).condemned, IsEmpty());
}

TEST(Watchdog, AStrangerIsToldOfOnceAndNotAtFirstSight) {
  Watchdog watchdog;
  // The driver shows a process a moment before it has registered.
  EXPECT_THAT(watchdog.look(kJob, kGpu, gib(10), {stranger(1, mib(500))}).strangers, IsEmpty());
  EXPECT_THAT(watchdog.look(kJob, kGpu, gib(10), {honest(1, mib(500))}).strangers, IsEmpty());
  EXPECT_THAT(watchdog.look(kJob, kGpu, gib(10), {stranger(2, mib(500))}).strangers, IsEmpty());
  EXPECT_THAT(watchdog.look(kJob, kGpu, gib(10), {stranger(2, mib(500))}).strangers,
              ElementsAre(2));
  EXPECT_THAT(watchdog.look(kJob, kGpu, gib(10), {stranger(2, mib(500))}).strangers, IsEmpty());
}

RC_GTEST_PROP(Watchdog, WhatStaysFitsAndTheHonestStay, ()) {
  const Bytes limit = mib(*rc::gen::inRange(1, 100'000));
  std::vector<WatchedProcess> processes;
  Bytes left = limit;
  std::int64_t pid = 1;
  for (int i = *rc::gen::inRange(0, 5); i > 0; --i) {
    const Bytes charged = mib(*rc::gen::inRange<std::int64_t>(0, left / mib(1) + 1));
    left -= charged;
    const Bytes driver = mib(*rc::gen::inRange(0, 257));
    processes.push_back({pid++, charged + driver, true, charged});
  }
  const std::int64_t honest_ones = pid;
  for (int i = *rc::gen::inRange(0, 5); i > 0; --i) {
    processes.push_back(stranger(pid++, mib(*rc::gen::inRange(0, 200'000))));
  }
  const auto over = over_the_limit(limit, processes);
  Bytes stays(0);
  for (const WatchedProcess& process : processes) {
    const bool goes = std::ranges::find(over, process.pid) != over.end();
    if (!goes) stays += process.memory;
    RC_ASSERT(!goes || process.pid >= honest_ones);
  }
  RC_ASSERT(stays <= limit + kDriverSlack * std::max<std::int64_t>(honest_ones - 1, 1));
}

}  // namespace
}  // namespace aliquot::core
