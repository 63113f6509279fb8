#include "kube/node/preferred.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "kube/model/node_gpus.hpp"

namespace aliquot::kube {
namespace {

using ::testing::ElementsAre;

DeviceIds units(const std::string& gpu, int from, int to) {
  DeviceIds ids;
  for (int i = from; i < to; ++i) ids.push_back(device_id(GpuId(gpu), i));
  return ids;
}

DeviceIds operator+(DeviceIds one, const DeviceIds& other) {
  one.insert(one.end(), other.begin(), other.end());
  return one;
}

std::set<GpuId> gpus_in(const DeviceIds& ids) {
  std::set<GpuId> gpus;
  for (const std::string& id : ids) gpus.insert(parse_device_id(id)->first);
  return gpus;
}

TEST(Preferred, TheFirstCandidateThatCanBe) {
  const DeviceIds free = units("GPU-a", 0, 2) + units("GPU-b", 0, 8) + units("GPU-c", 0, 8);
  const auto offer =
      prefer(Kind::memory, {free, {}, 3}, {{"x", {GpuId("GPU-a")}}, {"y", {GpuId("GPU-c")}}}, {});
  EXPECT_EQ(offer.ids, units("GPU-c", 0, 3));
  EXPECT_EQ(offer.candidate, "y");
}

TEST(Preferred, WhatMustBeIsThere) {
  const DeviceIds free = units("GPU-a", 0, 8) + units("GPU-b", 0, 8);
  const auto offer = prefer(Kind::memory, {free, {"GPU-b/7"}, 3},
                            {{"x", {GpuId("GPU-a")}}, {"y", {GpuId("GPU-b")}}}, {});
  EXPECT_THAT(offer.ids, ElementsAre("GPU-b/0", "GPU-b/1", "GPU-b/7"));
  EXPECT_EQ(offer.candidate, "y");
  EXPECT_THAT(prefer(Kind::memory, {free, {"GPU-b/7"}, 2}, {}, {}).ids,
              ElementsAre("GPU-b/0", "GPU-b/7"));
}

TEST(Preferred, BestFitBesideWhatOthersWerePromised) {
  const DeviceIds free =
      units("GPU-a", 0, 3) + units("GPU-b", 0, 5) + units("GPU-c", 0, 8) + units("GPU-d", 0, 2);
  EXPECT_EQ(prefer(Kind::memory, {free, {}, 3}, {}, {}).ids, units("GPU-a", 0, 3));
  EXPECT_EQ(prefer(Kind::memory, {free, {}, 3}, {}, {{GpuId("GPU-a"), 1}}).ids,
            units("GPU-b", 0, 3));
  // Nobody has so many: the largest first.
  EXPECT_EQ(gpus_in(prefer(Kind::memory, {free, {}, 9}, {}, {}).ids),
            (std::set<GpuId>{GpuId("GPU-b"), GpuId("GPU-c")}));
}

TEST(Preferred, WholeOnesThatNobodyWasPromised) {
  const DeviceIds free = {"GPU-a", "GPU-b", "GPU-c"};
  EXPECT_THAT(prefer(Kind::whole, {free, {}, 2}, {}, {{GpuId("GPU-a"), 4}}).ids,
              ElementsAre("GPU-b", "GPU-c"));
  EXPECT_THAT(prefer(Kind::whole, {free, {}, 2}, {{"x", {GpuId("GPU-c"), GpuId("GPU-a")}}}, {}).ids,
              ElementsAre("GPU-a", "GPU-c"));
}

RC_GTEST_PROP(Preferred, IsOfWhatIsFreeAndOfOneGpuWhereOneIsEnough, ()) {
  DeviceIds free;
  std::map<GpuId, std::size_t> count;
  for (const char* gpu : {"GPU-a", "GPU-b", "GPU-c"}) {
    for (int unit = 0; unit < 10; ++unit) {
      if (!*rc::gen::arbitrary<bool>()) continue;
      free.push_back(device_id(GpuId(gpu), unit));
      ++count[GpuId(gpu)];
    }
  }
  const auto size = *rc::gen::inRange<std::size_t>(0, free.size() + 1);
  DeviceIds must;
  if (size > 0 && *rc::gen::arbitrary<bool>()) must = {*rc::gen::elementOf(free)};
  std::vector<Candidate> candidates;
  if (*rc::gen::arbitrary<bool>()) candidates = {{"x", {GpuId("GPU-b")}}};
  const auto offer = prefer(Kind::memory, {free, must, size}, candidates,
                            {{GpuId("GPU-a"), *rc::gen::inRange(0, 5)}});
  RC_ASSERT(offer.ids.size() == size);
  RC_ASSERT(sorted(offer.ids) == offer.ids);
  for (const std::string& id : offer.ids) {
    RC_ASSERT(std::ranges::count(free, id) == 1);
  }
  for (const std::string& id : must) RC_ASSERT(std::ranges::count(offer.ids, id) == 1);
  const bool one_is_enough = std::ranges::any_of(count, [&](const auto& one) {
    return one.second >= size && (must.empty() || gpus_in(must).contains(one.first));
  });
  if (one_is_enough && size > 0) RC_ASSERT(gpus_in(offer.ids).size() == 1U);
  if (offer.candidate) RC_ASSERT(gpus_in(offer.ids).contains(GpuId("GPU-b")) || size == 0);
}

}  // namespace
}  // namespace aliquot::kube
