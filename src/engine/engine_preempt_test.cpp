#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "engine/accounts.hpp"
#include "engine/engine_fixture.hpp"

namespace aliquot::engine {
namespace {

using testing::HasSubstr;

class PreemptFixture : public EngineFixture {
 public:
  std::int64_t spare(const std::string& gres, Uid uid = Uid(1000)) {
    auto wanted = spec(gres);
    wanted.partition = "besteffort";
    return submit(wanted, uid);
  }
  void use(PreemptMode mode, Millis grace) {
    settings.partitions = usual_partitions();
    settings.partitions[1].preempt = mode;
    settings.partitions[1].grace = grace;
    crash();
  }
  bool cancelled(std::int64_t id, std::int64_t attempt = 0) {
    const auto run = executor.runs.find({id, attempt});
    return run != executor.runs.end() && run->second.cancelled;
  }
};

class EnginePreemptTest : public testing::Test, public PreemptFixture {};

TEST_F(EnginePreemptTest, OneMakesRoomAndComesBack) {
  std::vector<std::int64_t> all;
  for (int i = 0; i < 4; ++i) {
    all.push_back(spare("gpu:1"));
    clock.advance(minutes(10));
  }
  const auto usual = submit(spec("gpu:1"));
  EXPECT_EQ(state(usual), "PENDING");
  for (const auto id : all) EXPECT_EQ(cancelled(id), id == all[3]) << "the youngest loses least";
  EXPECT_EQ(state(all[3]), "COMPLETING");
  EXPECT_THAT(job(all[3]).reason_detail, HasSubstr(fmt::format("makes room for job {}", usual)));
  EXPECT_THAT(executor.commands,
              testing::Contains(testing::Pair(all[3], HasSubstr("cancel DUE TO PREEMPTION"))));
  settle();  // nobody else has to go for it
  for (int i = 0; i < 3; ++i) EXPECT_FALSE(cancelled(all[static_cast<std::size_t>(i)]));
  end(all[3], 143);
  EXPECT_EQ(state(usual), "RUNNING");
  EXPECT_EQ(state(all[3]), "PENDING");
  EXPECT_EQ(job(all[3]).restarts, 1);
  end(usual);
  EXPECT_EQ(state(all[3]), "RUNNING");
}

TEST_F(EnginePreemptTest, WithAGraceTimeItIsToldFirst) {
  use(PreemptMode::cancel, seconds(60));
  const auto first = spare("gpu:4");
  const auto usual = submit(spec("gpu:2"));
  EXPECT_FALSE(cancelled(first));
  EXPECT_EQ(state(first), "RUNNING");
  using testing::Pair;
  EXPECT_THAT(executor.commands, testing::IsSupersetOf({Pair(first, HasSubstr("signal 18 all")),
                                                        Pair(first, HasSubstr("signal 15 all"))}));
  EXPECT_EQ(engine->next_due(), clock.wall() + seconds(60));
  EXPECT_EQ(job(usual).start_ms, (clock.wall() + seconds(60)).ms()) << "it is told when";
  clock.advance(seconds(59));
  settle();
  EXPECT_FALSE(cancelled(first));
  clock.advance(seconds(1));
  settle();
  EXPECT_TRUE(cancelled(first));
  end(first, 1);
  EXPECT_EQ(state(first), "PREEMPTED");
  EXPECT_EQ(state(usual), "RUNNING");
}

TEST_F(EnginePreemptTest, WhoGoesInItsGraceTimeWentForThat) {
  use(PreemptMode::requeue, seconds(60));
  const auto well = spare("gpu:1");
  const auto killed = spare("gpu:1");
  const auto usual = submit(spec("gpu:4"));
  end(well, 0);
  EXPECT_EQ(state(well), "COMPLETED");
  end(killed, 143);
  EXPECT_EQ(state(killed), "PENDING");
  EXPECT_EQ(state(usual), "RUNNING");
}

TEST_F(EnginePreemptTest, OnlyWhatMayAndOnlyAHigherTier) {
  const auto usual = submit(spec("gpu:4"));
  const auto other = submit(spec("gpu:1"));
  EXPECT_EQ(state(usual), "RUNNING") << "its own tier pushes nobody aside";
  EXPECT_EQ(state(other), "PENDING");
  EXPECT_EQ(state(spare("gpu:1")), "PENDING");
  end(usual);
  EXPECT_EQ(state(other), "RUNNING");

  use(PreemptMode::off, Millis(0));
  const auto left = spare("gpu:2");
  const auto waits = submit(spec("gpu:4"));
  EXPECT_EQ(state(left), "RUNNING");
  EXPECT_FALSE(cancelled(left));
  EXPECT_EQ(state(waits), "PENDING");
}

TEST_F(EnginePreemptTest, WhatMayNotStartAgainIsCancelled) {
  auto once = spec("gpu:4");
  once.partition = "besteffort";
  once.requeue = false;
  const auto id = submit(once);
  submit(spec("gpu:1"));
  EXPECT_TRUE(cancelled(id));
  end(id, 1);
  EXPECT_EQ(state(id), "PREEMPTED");
  crash();
  EXPECT_EQ(state(id), "PREEMPTED");
}

TEST_F(EnginePreemptTest, AQosHasAWordInIt) {
  auto next = engine->book();
  next.qos.push_back({.name = "safe"});
  next.qos.back().preempt_mode = "OFF";
  next.associations[0].qos = {"normal", "safe"};
  ASSERT_TRUE(engine->queue().accounts().replace({Uid(0)}, next));
  settle();
  auto safe = spec("gpu:4");
  safe.partition = "besteffort";
  safe.qos = "safe";
  const auto id = submit(safe);
  submit(spec("gpu:1"));
  EXPECT_FALSE(cancelled(id));
  next = engine->book();
  next.qos.back().preempt_mode = "CANCEL";
  next.qos.back().grace_ms = 5'000;
  ASSERT_TRUE(engine->queue().accounts().replace({Uid(0)}, next));
  settle();
  EXPECT_FALSE(cancelled(id));
  clock.advance(seconds(5));
  settle();
  EXPECT_TRUE(cancelled(id));
}

// More on besteffort than a user may hold elsewhere.
TEST_F(EnginePreemptTest, WhatMayBePushedAsideIsBeyondTheLimitOfItsUser) {
  settings.gpus_per_user = kWholeGpu * 2;
  crash();
  EXPECT_EQ(state(submit(spec("gpu:2"))), "RUNNING");
  EXPECT_EQ(job(submit(spec("gpu:1"))).reason, "QOSMaxGRESPerUser");
  EXPECT_EQ(state(spare("gpu:2")), "RUNNING");
}

// What its QOS keeps from being pushed aside is not beyond it, whatever its partition says; and the
// other way round.
TEST_F(EnginePreemptTest, WhoseQosSaysOtherwiseIsCountedByThat) {
  settings.gpus_per_user = kWholeGpu * 2;
  crash();
  auto next = engine->book();
  next.qos.push_back({.name = "safe"});
  next.qos.back().preempt_mode = "OFF";
  next.qos.push_back({.name = "meek"});
  next.qos.back().preempt_mode = "CANCEL";
  next.associations[0].qos = {"normal", "safe", "meek"};
  ASSERT_TRUE(engine->queue().accounts().replace({Uid(0)}, next));
  settle();
  auto meek = spec("gpu:1");
  meek.qos = "meek";
  EXPECT_EQ(state(submit(meek)), "RUNNING");
  auto safe = spec("gpu:2");
  safe.partition = "besteffort";
  safe.qos = "safe";
  EXPECT_EQ(state(submit(safe)), "RUNNING");
  EXPECT_EQ(job(submit(spec("gpu:1"))).reason, "QOSMaxGRESPerUser");
  EXPECT_EQ(state(submit(meek)), "RUNNING");
}

// On a machine of random jobs nobody goes without need: with any victim still there, the job that
// they went for would not have fitted.
RC_GTEST_PROP(EnginePreemptProperty, AHigherTierRunsAndNobodyGoesInVain, ()) {
  PreemptFixture engine;
  const auto some = [] {
    return *rc::gen::element<std::string>("gpu:1", "gpu:2", "mps:25", "mps:50", "gpu:4");
  };
  std::vector<std::int64_t> spare;
  for (int i = *rc::gen::inRange(1, 12); i > 0; --i) {
    spare.push_back(engine.spare(some()));
    engine.clock.advance(seconds(*rc::gen::inRange(1, 100)));
  }
  const auto usual = engine.submit(engine.spec(some()));
  std::vector<std::int64_t> victims;
  for (const auto id : spare) {
    if (engine.state(id) == "COMPLETING") victims.push_back(id);
  }
  if (victims.empty()) {
    RC_ASSERT(engine.state(usual) == "RUNNING");
    return;
  }
  RC_ASSERT(engine.state(usual) == "PENDING");
  for (std::size_t i = 0; i < victims.size(); ++i) {
    RC_ASSERT(engine.state(usual) == "PENDING");  // as long as one of them is there
    engine.end(victims[i], 143);
  }
  RC_ASSERT(engine.state(usual) == "RUNNING");
  for (const auto id : spare) RC_ASSERT(engine.state(id) != "COMPLETING");
}

}  // namespace
}  // namespace aliquot::engine
