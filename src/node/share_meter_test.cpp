#include "node/share_meter.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace aliquot::node {
namespace {

const GpuId kGpu("GPU-0");

GpuView view(std::vector<GpuProcess> processes, Compute utilisation = Compute(0)) {
  GpuView view;
  view.sample.id = kGpu;
  view.sample.utilisation = utilisation;
  view.processes = std::move(processes);
  return view;
}
GpuProcess process(const char* holder, Bytes memory) {
  return {.pid = 7, .memory = memory, .holder = HolderId(holder)};
}
Enforcer::Told told(const char* holder, std::int64_t gpu_ms, Bytes memory) {
  Enforcer::Told one{.job = HolderId(holder), .gpu = kGpu, .usage = {}};
  one.usage.memory = memory;
  one.usage.memory_peak = memory;
  one.usage.gpu_ns = gpu_ms * 1'000'000;
  one.usage.launches = 1;
  return one;
}

TEST(ShareMeterTest, WhatTheLibrarySaysIsEachJobsPartOfTheTime) {
  ShareMeter meter;
  const auto views = {view({process("1", gib(2)), process("2", gib(1))}, Compute(9'000))};
  const auto first = meter.look(views, {told("1", 100, gib(3)), told("2", 0, gib(1))}, MonoTime(0));
  ASSERT_EQ(first.size(), 2U);
  EXPECT_EQ(first[0].utilisation, std::nullopt) << "one look says nothing of the time";
  EXPECT_EQ(first[0].memory, gib(3)) << "what the driver does not see counts, too";
  // Too soon for a rate: the last one stays.
  (void)meter.look(views, {told("1", 200, gib(3)), told("2", 0, gib(1))}, MonoTime(250));
  const auto later =
      meter.look(views, {told("1", 600, gib(1)), told("2", 250, gib(1))}, MonoTime(1'000));
  EXPECT_EQ(later[0].utilisation, Compute(5'000));
  EXPECT_EQ(later[0].memory_peak, gib(3)) << "a peak stays";
  EXPECT_EQ(later[0].gpu_time, Millis(600));
  EXPECT_EQ(later[1].utilisation, Compute(2'500));
}

TEST(ShareMeterTest, WithoutALibraryWhoIsAloneDoesWhatTheGpuDoes) {
  ShareMeter meter;
  const auto alone = meter.look({view({process("1", gib(2))}, Compute(4'000))}, {}, MonoTime(0));
  ASSERT_EQ(alone.size(), 1U);
  EXPECT_EQ(alone[0].utilisation, Compute(4'000));
  EXPECT_EQ(alone[0].gpu_time, std::nullopt);
  const auto both = meter.look({view({process("1", gib(2)), process("2", gib(2))}, Compute(4'000))},
                               {}, MonoTime(1'000));
  EXPECT_EQ(both[0].utilisation, std::nullopt) << "whose time it is nobody can tell";
}

}  // namespace
}  // namespace aliquot::node
