#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/engine_fixture.hpp"

namespace aliquot::engine {
namespace {

using testing::HasSubstr;

class EngineGpuServiceTest : public testing::Test, public EngineFixture {
 protected:
  std::string drain(std::vector<std::int64_t> gpus, bool down = false, Uid uid = Uid(0)) {
    const auto answer = engine->queue().drain_gpus(
        {uid}, {.reason = "bad fan", .gpus = std::move(gpus), .down = down});
    settle();
    return answer ? "ok" : answer.error().message;
  }
  api::GpuInfo gpu(std::size_t index) { return engine->views().cluster_info().node.gpus[index]; }
  bool holds(std::int64_t id, const std::string& uuid) {
    for (const auto& gpu : job(id).gpus) {
      if (gpu.uuid == uuid) return true;
    }
    return false;
  }
};

TEST_F(EngineGpuServiceTest, ADrainedGpuTakesNoJobsUntilItIsResumed) {
  const auto holder = submit(spec("gpu:4"));
  EXPECT_EQ(drain({2}), "ok");
  EXPECT_EQ(state(holder), "RUNNING") << "what runs goes on";
  EXPECT_EQ(gpu(2).health, "draining: bad fan");
  end(holder);
  EXPECT_EQ(gpu(2).health, "drained: bad fan");
  EXPECT_EQ(gpu(2).reason, "bad fan");
  EXPECT_EQ(gpu(2).reason_user, "u0");
  EXPECT_EQ(gpu(2).reason_ms, clock.wall().ms());
  crash();
  const auto three = submit(spec("gpu:3"));
  EXPECT_EQ(state(three), "RUNNING");
  EXPECT_FALSE(holds(three, "GPU-2"));
  const auto waits = submit(spec("gpu:1"));
  EXPECT_EQ(state(waits), "PENDING");
  // The monitor finds it well: that changes nothing.
  std::vector<node::GpuView> views(4);
  for (std::size_t i = 0; i < 4; ++i) views[i].sample.id = GpuId("GPU-" + std::to_string(i));
  engine->observe(views);
  settle();
  EXPECT_EQ(state(waits), "PENDING");
  ASSERT_TRUE(engine->queue().undrain_gpus({Uid(0)}, {2}));
  settle();
  EXPECT_EQ(state(waits), "RUNNING");
  EXPECT_TRUE(holds(waits, "GPU-2"));
  EXPECT_EQ(gpu(2).health, "ok");
  EXPECT_EQ(gpu(2).reason, "");
}

TEST_F(EngineGpuServiceTest, WhatIsTakenDownEndsWhatRunsThere) {
  settings.policy = "least-occupied";
  crash();
  const auto again = submit(spec("gpu:1"));
  auto once = spec("gpu:1");
  once.requeue = false;
  const auto failed = submit(once);
  const auto spared = submit(spec("gpu:1"));
  std::vector<std::int64_t> gpus{job(again).gpus[0].index, job(failed).gpus[0].index};
  EXPECT_EQ(drain(gpus, true), "ok");
  EXPECT_EQ(state(again), "COMPLETING");
  EXPECT_EQ(state(failed), "COMPLETING");
  EXPECT_EQ(state(spared), "RUNNING");
  EXPECT_THAT(job(again).reason_detail, HasSubstr("taken down: bad fan"));
  end(failed, 143);
  EXPECT_EQ(state(failed), "NODE_FAIL");
  EXPECT_EQ(job(failed).reason, "NodeDown");
  end(again, 143);
  EXPECT_EQ(state(again), "RUNNING") << "on another one";
  EXPECT_EQ(job(again).restarts, 1);
}

TEST_F(EngineGpuServiceTest, OnlyRootAndOnlyGpusThatThereAre) {
  EXPECT_EQ(drain({0}, false, Uid(1000)), "only root may do this");
  EXPECT_EQ(drain({0, 9}), "there is no GPU 9");
  EXPECT_EQ(gpu(0).health, "ok");
}

TEST_F(EngineGpuServiceTest, WhatBreaksSaysSoAndSinceWhen) {
  std::vector<node::GpuView> views(4);
  for (std::size_t i = 0; i < 4; ++i) views[i].sample.id = GpuId("GPU-" + std::to_string(i));
  views[1].sample.health = core::Health::lost;
  views[1].sample.trouble = "xid79";
  engine->observe(views);
  const auto since = clock.wall().ms();
  EXPECT_EQ(gpu(1).reason, "Xid 79, it has fallen off the bus");
  EXPECT_EQ(gpu(1).reason_ms, since);
  clock.advance(seconds(10));
  engine->observe(views);
  EXPECT_EQ(gpu(1).reason_ms, since);
  views[1].sample = {.id = GpuId("GPU-1")};
  engine->observe(views);
  EXPECT_EQ(gpu(1).reason, "");
}

// Slices have their GPU's number: it is all of them.
TEST_F(EngineGpuServiceTest, AGpuIsDrainedWithAllItsSlices) {
  for (unsigned slice = 0; slice < 3; ++slice) {
    machine.gpus[slice].index = 0;
    machine.gpus[slice].slice = slice;
  }
  crash();
  EXPECT_EQ(drain({0}), "ok");
  EXPECT_TRUE(holds(submit(spec("gpu:1")), "GPU-3"));
  const auto waits = submit(spec("gpu:1"));
  EXPECT_EQ(state(waits), "PENDING");
  for (std::size_t i = 0; i < 3; ++i) EXPECT_EQ(gpu(i).reason, "bad fan");
  ASSERT_TRUE(engine->queue().undrain_gpus({Uid(0)}, {0}));
  settle();
  EXPECT_EQ(state(waits), "RUNNING");
}

}  // namespace
}  // namespace aliquot::engine
