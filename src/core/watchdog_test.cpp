#include "core/watchdog.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>

namespace aliquot::core {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

const HolderId kJob("7");
const Uid kOwner(1000);
const std::string kGpu = "GPU-0";

WatchedProcess stranger(std::int64_t pid, Bytes memory) { return {.pid = pid, .memory = memory}; }
WatchedProcess honest(std::int64_t pid, Bytes memory) {
  return {.pid = pid, .memory = memory, .registered = true, .charged = memory};
}

TEST(Watchdog, WhatFitsStays) {
  EXPECT_THAT(over_the_limit(gib(10), {}), IsEmpty());
  EXPECT_THAT(over_the_limit(gib(10), {honest(1, gib(10))}), IsEmpty());
  EXPECT_THAT(over_the_limit(gib(10), {stranger(1, gib(9))}), IsEmpty());
  // What the driver took by itself is nobody's fault.
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

TEST(Watchdog, TheSlackIsTheJobsHoweverManyProcessesItHas) {
  std::vector<WatchedProcess> liars;
  for (std::int64_t pid = 1; pid <= 150; ++pid) liars.push_back({pid, mib(518), true, mib(266)});
  liars.push_back(honest(151, mib(700)));
  const Bytes limit = gib(40);
  const auto over = over_the_limit(limit, liars);
  EXPECT_FALSE(over.empty());
  EXPECT_EQ(std::ranges::count(over, 151), 0);
  const auto left = mib(518) * (150 - static_cast<std::int64_t>(over.size())) + mib(700);
  EXPECT_LE(left, limit + mib(512));
  EXPECT_GT(left + mib(518), limit + mib(512));  // and no more of them than that takes
}

TEST(Watchdog, ActsInTheLookAfterItIsSeenAndEveryTime) {
  Watchdog watchdog;
  const std::vector<WatchedProcess> greedy = {stranger(1, gib(60))};
  EXPECT_THAT(watchdog.look(kJob, kOwner, kGpu, gib(10), greedy).condemned, IsEmpty());
  EXPECT_THAT(watchdog.look(kJob, kOwner, kGpu, gib(10), greedy).condemned, ElementsAre(1));
  EXPECT_THAT(watchdog.look(kJob, kOwner, kGpu, gib(10), {}).condemned, IsEmpty());
  // It comes back under another number.
  const auto again = watchdog.look(kJob, kOwner, kGpu, gib(10), {stranger(2, gib(60))});
  EXPECT_THAT(again.condemned, ElementsAre(2));
  EXPECT_EQ(again.times, 2);
  // The next job of that number is another one.
  watchdog.forget(kJob);
  EXPECT_THAT(watchdog.look(kJob, kOwner, kGpu, gib(10), greedy).condemned, IsEmpty());
}

TEST(Watchdog, AMomentsOverlapIsNothing) {
  Watchdog watchdog;
  EXPECT_THAT(watchdog.look(kJob, kOwner, kGpu, gib(10), {honest(1, gib(9)), stranger(2, gib(9))})
                  .condemned,
              IsEmpty());
  EXPECT_THAT(watchdog.look(kJob, kOwner, kGpu, gib(10), {stranger(2, gib(9))}).condemned,
              IsEmpty());
  EXPECT_THAT(watchdog.look(kJob, kOwner, kGpu, gib(10), {stranger(3, gib(12))}).condemned,
              IsEmpty());
}

TEST(Watchdog, AStrangerIsToldOfOnceAndNotAtFirstSight) {
  Watchdog watchdog;
  // The driver shows a process a moment before it has registered.
  EXPECT_THAT(watchdog.look(kJob, kOwner, kGpu, gib(10), {stranger(1, mib(500))}).strangers,
              IsEmpty());
  EXPECT_THAT(watchdog.look(kJob, kOwner, kGpu, gib(10), {honest(1, mib(500))}).strangers,
              IsEmpty());
  EXPECT_THAT(watchdog.look(kJob, kOwner, kGpu, gib(10), {stranger(2, mib(500))}).strangers,
              IsEmpty());
  EXPECT_THAT(watchdog.look(kJob, kOwner, kGpu, gib(10), {stranger(2, mib(500))}).strangers,
              ElementsAre(2));
  EXPECT_THAT(watchdog.look(kJob, kOwner, kGpu, gib(10), {stranger(2, mib(500))}).strangers,
              IsEmpty());
}

RC_GTEST_PROP(Watchdog, WhatStaysFitsAndTheHonestStay, ()) {
  const Bytes limit = mib(*rc::gen::inRange(1, 100'000));
  std::vector<WatchedProcess> processes;
  Bytes left = limit;
  Bytes slack = kDriverSlack;  // what the driver takes for all of them
  std::int64_t pid = 1;
  for (int i = *rc::gen::inRange(0, 5); i > 0; --i) {
    const Bytes charged = mib(*rc::gen::inRange<std::int64_t>(0, left / mib(1) + 1));
    left -= charged;
    const Bytes driver = mib(*rc::gen::inRange<std::int64_t>(0, slack / mib(1) + 1));
    slack -= driver;
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
  RC_ASSERT(stays <= limit + kDriverSlack * kMostSlacks);
}

// Looks with the usual time between them, until the time of the user's strangers is over.
constexpr std::int64_t kLooks = kStrangerTime / kWatchInterval;

TEST(Watchdog, BesideAnotherJobAStrangerHasItsTimeAndTheNextOnesHaveLess) {
  Watchdog dog;
  const auto unheld = [&](std::vector<WatchedProcess> processes, bool beside) {
    dog.pass(kWatchInterval);
    return dog.look(kJob, kOwner, kGpu, gib(10), processes, beside).unheld;
  };
  WatchedProcess stopped = stranger(1, gib(1));
  stopped.stopped = true;
  for (std::int64_t i = 0; i < 2 * kLooks; ++i) {
    EXPECT_THAT(unheld({stranger(1, gib(1))}, false), IsEmpty()) << "alone";
    EXPECT_THAT(unheld({honest(2, gib(1))}, true), IsEmpty()) << "the library is in it";
    EXPECT_THAT(unheld({stopped}, true), IsEmpty()) << "it takes no time";
  }
  for (std::int64_t i = 0; i < kLooks; ++i)
    EXPECT_THAT(unheld({stranger(1, gib(1)), honest(2, gib(1))}, true), IsEmpty());
  EXPECT_THAT(unheld({stranger(1, gib(1)), honest(2, gib(1))}, true), ElementsAre(std::pair(1, 1)));
  EXPECT_THAT(unheld({stranger(1, gib(1))}, true), ElementsAre(std::pair(1, 0))) << "told";
  EXPECT_THAT(unheld({stranger(3, gib(1))}, true), ElementsAre(std::pair(3, 2)));
}

// Each is there for one look alone.
TEST(Watchdog, AJobThatStartsThemFasterThanOneLooksIsGivenUp) {
  for (const bool memory : {false, true}) {
    Watchdog dog;
    std::int64_t ended = 0;
    for (std::int64_t pid = 1; ended < kMostCondemned; ++pid) {
      ASSERT_LT(pid, kMostCondemned + 2 * kLooks);
      dog.pass(kWatchInterval);
      const auto verdict =
          dog.look(kJob, kOwner, kGpu, gib(10), {stranger(pid, gib(memory ? 40 : 1))}, !memory);
      ended += std::ssize(verdict.condemned) + std::ssize(verdict.unheld);
      EXPECT_EQ(verdict.hopeless, ended == kMostCondemned);
    }
  }
}

// Whatever a user splits it into: short processes, short jobs, pauses.
TEST(Watchdog, TheTimeOfStrangersIsTheirUsers) {
  for (const bool jobs : {false, true}) {
    Watchdog dog;
    std::int64_t condemned = 0;
    for (std::int64_t look = 0; look < 4 * kLooks; ++look) {
      dog.pass(kWatchInterval);
      const std::int64_t which = look / (kLooks / 2);
      const HolderId job(jobs ? std::to_string(which) : "7");
      const bool paused = look % 4 == 3;
      condemned += std::ssize(
          dog.look(job, kOwner, kGpu, gib(10), {stranger(which, gib(1))}, !paused).unheld);
      EXPECT_THAT(dog.look(HolderId("x"), Uid(2), kGpu, gib(10), {}, true).unheld, IsEmpty());
    }
    EXPECT_GT(condemned, kLooks / 2);
  }
}

TEST(Watchdog, TheTimeOfStrangersIsForgotten) {
  Watchdog dog;
  const auto look = [&](bool beside) {
    dog.pass(kWatchInterval);
    return dog.look(kJob, kOwner, kGpu, gib(10), {stranger(1, gib(1))}, beside).unheld;
  };
  for (std::int64_t i = 0; i < 9 * kLooks; ++i) look(i < kLooks);
  for (std::int64_t i = 0; i < kLooks; ++i) EXPECT_THAT(look(true), IsEmpty());
  EXPECT_THAT(look(true), ElementsAre(std::pair(1, 1)));
  // One that comes late says little.
  Watchdog late;
  for (int i = 0; i < 3; ++i) {
    late.pass(seconds(60));
    EXPECT_THAT(late.look(kJob, kOwner, kGpu, gib(10), {stranger(1, gib(1))}, true).unheld,
                IsEmpty());
  }
}

TEST(Residue, IsToldOnceWhenItStays) {
  Residue residue;
  const auto look = [&](Bytes bytes, bool shared = true) {
    return residue.look(kGpu, bytes, kWatchInterval, shared);
  };
  const auto told = [&](Bytes bytes) {
    int times = 0;
    for (std::int64_t i = 0; i < 2 * kLooks; ++i) times += look(bytes) ? 1 : 0;
    return times;
  };
  EXPECT_FALSE(look(mib(600), false)) << "what the driver has for itself";
  for (std::int64_t i = 0; i < 2 * kLooks; ++i)
    EXPECT_FALSE(look(gib(60), false)) << "nobody has a share";
  EXPECT_EQ(told(mib(1500)), 0);
  for (std::int64_t i = 1; i < kLooks; ++i) EXPECT_FALSE(look(gib(60)));
  EXPECT_EQ(told(mib(600)), 0) << "a moment's";
  EXPECT_EQ(told(gib(2)), 1);
  EXPECT_FALSE(look(gib(2), false));
  EXPECT_EQ(told(gib(2)), 0) << "once, whoever comes meanwhile";
  EXPECT_EQ(told(mib(600)), 0);
  EXPECT_EQ(told(gib(60)), 1);
}

}  // namespace
}  // namespace aliquot::core
