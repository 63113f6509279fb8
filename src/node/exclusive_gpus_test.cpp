#include "node/exclusive_gpus.hpp"

#include <gtest/gtest.h>

#include "gpu/fake_devices.hpp"
#include "sys/testing.hpp"

namespace aliquot::node {
namespace {

namespace fs = std::filesystem;

class ExclusiveGpusTest : public ::testing::Test {
 protected:
  ExclusiveGpus open() {
    auto gpus = ExclusiveGpus::create(devices_, folder_.path() / "exclusive");
    EXPECT_TRUE(gpus);
    return std::move(*gpus);
  }
  const test::Folder folder_;
  gpu::FakeDevices devices_{gpu::fake_gpus(2, "h200", gib(140))};
  GpuId gpu_{"GPU-0"};
};

TEST_F(ExclusiveGpusTest, AreAsBeforeInTheEnd) {
  auto gpus = open();
  EXPECT_TRUE(gpus.make(gpu_));
  EXPECT_TRUE(gpus.make(gpu_));
  EXPECT_TRUE(devices_.exclusive_gpus().contains(gpu_));
  gpus.restore(GpuId("GPU-1"));  // not ours
  gpus.restore_others({gpu_});
  EXPECT_TRUE(devices_.exclusive_gpus().contains(gpu_));
  gpus.restore_others({});
  EXPECT_TRUE(devices_.exclusive_gpus().empty());
  EXPECT_TRUE(fs::is_empty(folder_.path() / "exclusive"));
}

TEST_F(ExclusiveGpusTest, ACrashIsMendedByTheNextDaemon) {
  EXPECT_TRUE(open().make(gpu_));
  auto next = open();
  EXPECT_TRUE(next.contains(gpu_));
  next.restore_others({});
  EXPECT_TRUE(devices_.exclusive_gpus().empty());
}

TEST_F(ExclusiveGpusTest, WhatCannotBeMadeStays) {
  auto gpus = open();
  devices_.break_with(Error{Error::Code::permission_denied, "no"});
  EXPECT_FALSE(gpus.make(gpu_));
  devices_.break_with(std::nullopt);
  gpus.restore(gpu_);
  EXPECT_TRUE(fs::is_empty(folder_.path() / "exclusive"));
}

}  // namespace
}  // namespace aliquot::node
