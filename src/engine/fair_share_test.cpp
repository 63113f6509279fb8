// Who is next, through the whole engine on a clock that is set.
#include "engine/fair_share.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/engine_fixture.hpp"

namespace aliquot::engine {
namespace {

using testing::HasSubstr;

class FairShareTest : public testing::Test, public EngineFixture {
 protected:
  api::JobSpec timed(const std::string& gres, Millis limit) const {
    api::JobSpec wanted = spec(gres);
    wanted.time_limit_ms = limit.value();
    return wanted;
  }
  void submit_many(int count, const api::JobSpec& wanted, Uid uid) {
    for (int i = 0; i < count; ++i) {
      ASSERT_TRUE(engine->queue().submit({uid}, wanted));
    }
    settle();
  }
  // Until the first of those that run reaches its limit: all that do end.
  void run_to_next_end() {
    std::optional<std::int64_t> next;
    for (const Job* one : engine->active())
      next = std::min(next.value_or(INT64_MAX), one->end->ms());
    ASSERT_TRUE(next);
    clock.advance(WallTime(*next) - clock.wall());
    std::vector<std::int64_t> over;
    for (const Job* one : engine->active()) {
      if (one->end->ms() <= *next) over.push_back(one->id.value());
    }
    for (const std::int64_t id : over) executor.end(id, 0);
    settle();
  }
  double usage_of(Uid user) { return usages().at(user); }
  std::map<Uid, double> usages() {
    std::map<Uid, double> all;
    for (const api::ShareInfo& one : engine->views().shares(Caller{Uid(0)}).users) {
      all[Uid(one.uid)] = static_cast<double>(one.usage_ms) / 1e3;
    }
    return all;
  }
};

TEST_F(FairShareTest, WithoutAnySettingsTheOtherUsersJobIsNext) {
  submit_many(1'000, timed("gpu:1", hours(1)), Uid(1000));
  clock.advance(seconds(1));
  const auto other = submit(timed("gpu:1", hours(1)), Uid(1001));
  EXPECT_EQ(state(other), "PENDING");
  EXPECT_GT(job(other).priority, job(5).priority);
  end(1);
  EXPECT_EQ(state(other), "RUNNING");
  EXPECT_EQ(state(5), "PENDING");
}

TEST_F(FairShareTest, OneUsersJobsGoInTheirOrder) {
  submit_many(8, timed("gpu:1", hours(1)), Uid(1000));
  clock.advance(minutes(30));
  end(3);
  EXPECT_EQ(state(5), "RUNNING");
  EXPECT_EQ(state(6), "PENDING");
}

// Both always have jobs that wait, of all sizes and lengths; the GPU time they got, from the first
// minute on, is as their shares.
TEST_F(FairShareTest, SharesAreWhatUsersGet) {
  settings.priority.shares = {{"u1000", 1}, {"u1001", 3}};
  crash();
  const std::vector<std::pair<const char*, Millis>> kinds{
      {"gpu:1", minutes(60)}, {"gpu:2", minutes(35)},  {"mps:50", minutes(90)},
      {"gpu:1", minutes(10)}, {"mps:25", minutes(20)}, {"gpu:4", minutes(15)}};
  std::map<Uid, std::size_t> submitted;
  const auto keep_waiting = [&](Uid user) {
    std::int64_t waiting = 0;
    (void)engine->views().list({Uid(0)}, {.live = true}, [&](const api::JobInfo& one) {
      if (one.uid == user.value() && one.state == "PENDING") ++waiting;
    });
    for (; waiting < 12; ++waiting) {
      const auto& [gres, limit] = kinds[submitted[user]++ % kinds.size()];
      ASSERT_TRUE(engine->queue().submit({user}, timed(gres, limit)));
    }
    settle();
  };
  std::map<Uid, double> had;
  const WallTime begun = clock.wall();
  while (clock.wall() - begun < days(14)) {
    for (const Uid user : {Uid(1000), Uid(1001)}) keep_waiting(user);
    std::map<Uid, double> held;
    for (const Job* one : engine->active()) {
      for (const HeldGpu& gpu : one->gpus) {
        held[one->owner.uid] +=
            gpu.granted.whole ? 1 : static_cast<double>(gpu.granted.portion.compute.value()) / 1e4;
      }
    }
    const WallTime before = clock.wall();
    run_to_next_end();
    for (const auto& [user, gpus] : held) {
      had[user] += gpus * static_cast<double>((clock.wall() - before).value());
    }
  }
  EXPECT_NEAR(had[Uid(1000)] / (had[Uid(1000)] + had[Uid(1001)]), 0.25, 0.02);
  // And nothing of the machine was idle for it.
  EXPECT_GT((had[Uid(1000)] + had[Uid(1001)]) / static_cast<double>(days(14).value()), 3.5);
}

TEST_F(FairShareTest, AShareCountsAsItsPart) {
  const auto whole = submit(timed("gpu:1", hours(2)), Uid(1000));
  auto part = timed("", hours(2));
  part.gpu_mem = "70G";
  part.gpu_share = "10%";
  const auto share = submit(part, Uid(1001));
  clock.advance(hours(1));
  EXPECT_NEAR(usage_of(Uid(1000)), 3'600, 10);
  EXPECT_NEAR(usage_of(Uid(1001)), 1'800, 5) << "while it runs";
  end(whole);
  end(share);
  EXPECT_NEAR(usage_of(Uid(1001)), 1'800, 5);
  clock.advance(days(7));
  EXPECT_NEAR(usage_of(Uid(1000)), 1'800, 5) << "half is left after a half-life";
}

TEST_F(FairShareTest, WhatWasHadSurvivesACrash) {
  const auto over = submit(timed("gpu:2", hours(2)), Uid(1000));
  clock.advance(hours(1));
  end(over);
  submit(timed("gpu:1", hours(2)), Uid(1001));
  clock.advance(hours(1));
  const auto before = usages();
  crash();
  settle();
  const auto after = usages();
  EXPECT_NEAR(after.at(Uid(1000)), before.at(Uid(1000)), 1e-6);
  EXPECT_NEAR(after.at(Uid(1001)), before.at(Uid(1001)), 1e-6);
  EXPECT_GT(after.at(Uid(1000)), 7'000);
}

TEST_F(FairShareTest, ARequeuedRunHasBeenHad) {
  const auto id = submit(timed("gpu:1", hours(2)), Uid(1000));
  clock.advance(hours(1));
  ASSERT_TRUE(engine->runs().requeue({Uid(1000)}, std::to_string(id), true));
  settle();
  end(id);
  EXPECT_EQ(state(id), "PENDING");
  EXPECT_NEAR(usage_of(Uid(1000)), 3'600, 10);
}

TEST_F(FairShareTest, AnAdministratorsPriorityStands) {
  submit(timed("gpu:4", hours(1)), Uid(1000));
  const auto light = submit(timed("gpu:4", hours(1)), Uid(1001));
  const auto heavy = submit(timed("gpu:4", hours(1)), Uid(1000));
  ASSERT_TRUE(update({Uid(0)}, std::to_string(heavy), R"({"priority":500000})"));
  clock.advance(hours(1));
  end(1);
  EXPECT_EQ(state(heavy), "RUNNING");
  EXPECT_EQ(job(heavy).priority, 500'000);
  ASSERT_TRUE(update({Uid(0)}, std::to_string(light), R"({"priority":0})"));
  settle();
  EXPECT_EQ(job(light).reason, "JobHeldAdmin");
  EXPECT_EQ(job(light).priority, 0);
  ASSERT_TRUE(engine->queue().release({Uid(0)}, std::to_string(light)));
  settle();
  EXPECT_GT(job(light).priority, 10'000);
}

TEST_F(FairShareTest, NiceJobsAndHigherTiers) {
  settings.partitions = {Partition{}, Partition{.name = "urgent", .is_default = false}};
  settings.partitions[1].tier = 5;
  crash();
  submit(timed("gpu:4", hours(1)), Uid(1000));
  auto nice = timed("gpu:4", hours(1));
  nice.nice = 100;
  const auto polite = submit(nice, Uid(1000));
  const auto plain = submit(timed("gpu:4", hours(1)), Uid(1000));
  auto urgent = timed("gpu:4", hours(1));
  urgent.partition = "urgent";
  urgent.nice = 5'000;
  const auto first = submit(urgent, Uid(1000));
  EXPECT_EQ(job(polite).priority, job(plain).priority - 100);
  EXPECT_EQ(job(first).reason, "Resources");
  end(1);
  EXPECT_EQ(state(first), "RUNNING");
  end(first);
  EXPECT_EQ(state(plain), "RUNNING");
}

}  // namespace
}  // namespace aliquot::engine
