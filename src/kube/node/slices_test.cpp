#include "kube/node/slices.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <boost/json.hpp>
#include <set>

#include "gpu/fake_devices.hpp"

namespace aliquot::kube {
namespace {

namespace json = boost::json;
using ::testing::ElementsAre;

std::vector<SliceGpu> slice_gpus(int count) {
  std::vector<SliceGpu> all;
  for (gpu::Device& device : gpu::fake_gpus(count, "a100", gib(80) + Bytes(7))) {
    all.push_back({.device = std::move(device)});
  }
  return all;
}
core::GrantedGpu part(const SliceGpu& gpu, Bytes memory) {
  const Compute compute = scale_down(kWholeGpu, memory.value(), gpu.device.gpu.memory.value());
  return {gpu.device.gpu.id, {memory, compute}, false};
}
core::GrantedGpu all_of(const SliceGpu& gpu) {
  return {gpu.device.gpu.id, {gpu.device.gpu.memory, kWholeGpu}, true};
}
const SliceSettings kSettings{.node = "n1"};

json::array devices_of(const std::vector<SliceGpu>& gpus) {
  json::array all;
  for (const json::object& spec : slice_specs(gpus, kSettings)) {
    const auto* devices = spec.if_contains("devices");
    if (devices == nullptr) continue;
    for (const json::value& device : devices->as_array()) all.push_back(device);
  }
  return all;
}
std::string text_at(const json::value& value, std::string_view path) {
  const auto& text = value.at_pointer({path.data(), path.size()}).as_string();
  return {text.data(), text.size()};
}

TEST(Slices, HaveEachGpuAsAShareAndWhole) {
  const auto gpus = slice_gpus(2);
  const auto specs = slice_specs(gpus, kSettings);
  ASSERT_EQ(specs.size(), 2U);
  EXPECT_TRUE(specs[0].contains("sharedCounters"));
  EXPECT_FALSE(specs[0].contains("devices"));
  const auto& devices = specs[1].at("devices").as_array();
  ASSERT_EQ(devices.size(), 4U);
  const json::value share(devices[0]);
  EXPECT_TRUE(share.at("allowMultipleAllocations").as_bool());
  EXPECT_EQ(text_at(share, "/capacity/memory/value"), "81920Mi");  // whole MiB
  EXPECT_EQ(text_at(share, "/capacity/compute/requestPolicy/default"), "0");
  EXPECT_EQ(text_at(share, "/attributes/kind/string"), "share");
  const json::value whole(devices[2]);
  EXPECT_FALSE(whole.as_object().contains("allowMultipleAllocations"));
  EXPECT_EQ(text_at(whole, "/name"), text_at(share, "/name") + "-whole");
  // One counter for both.
  EXPECT_EQ(whole.at("consumesCounters"), share.at("consumesCounters"));
  EXPECT_TRUE(slice_specs({}, kSettings).empty());
}

TEST(Slices, SayWhatIsNotToBeHad) {
  auto gpus = slice_gpus(4);
  gpus[0].health = core::Health::lost;
  gpus[1].health = core::Health::draining;
  gpus[2].foreign = mib(512);
  gpus[3].resource = true;
  std::map<std::string, std::string> taints;
  for (const json::value& device : devices_of(gpus)) {
    const auto* all = device.as_object().if_contains("taints");
    taints[text_at(device, "/name")] = all == nullptr ? "" : json::serialize(*all);
  }
  const auto of = [&](std::size_t gpu, bool whole) {
    return taints.at(device_name(gpus[gpu].device.gpu.id, whole));
  };
  EXPECT_THAT(of(0, false), testing::HasSubstr(R"("value":"lost","effect":"NoExecute")"));
  EXPECT_THAT(of(1, true), testing::HasSubstr(R"("value":"draining","effect":"NoSchedule")"));
  EXPECT_EQ(of(2, false), "");
  EXPECT_THAT(of(2, true), testing::HasSubstr("foreign"));
  EXPECT_THAT(of(3, false), testing::HasSubstr("resource"));
  EXPECT_EQ(claimable(gpus[2]), gib(80) - mib(512));
}

TEST(Slices, TheFullestThatHasRoomComesFirst) {
  auto gpus = slice_gpus(3);
  const SliceSettings best_fit{.node = "n1", .policy = "best-fit"};
  gpus[1].held = {part(gpus[1], gib(40))};
  gpus[2].held = {part(gpus[2], gib(20))};
  EXPECT_THAT(listing_order(gpus, best_fit, false), ElementsAre(1, 2, 0));
  // What is too small for most comes before it: those that fit it are best there.
  gpus[2].held = {part(gpus[2], gib(76))};
  EXPECT_THAT(listing_order(gpus, best_fit, false), ElementsAre(2, 1, 0));
  // Of whole ones those that nobody is on.
  EXPECT_EQ(listing_order(gpus, best_fit, true).front(), 0U);
  gpus[0].held = {all_of(gpus[0])};
  EXPECT_EQ(listing_order(gpus, best_fit, false).size(), 3U);
}

TEST(Slices, TheDefaultPolicyKeepsGpusFree) {
  auto gpus = slice_gpus(4);
  gpus[2].held = {part(gpus[2], gib(20))};
  EXPECT_EQ(listing_order(gpus, kSettings, false).front(), 2U);
  EXPECT_NE(listing_order(gpus, kSettings, true).front(), 2U);
}

RC_GTEST_PROP(Slices, ListEveryDeviceOnceAndAreSmallEnough, ()) {
  const int count = *rc::gen::inRange(0, 65);
  auto gpus = slice_gpus(count);
  for (SliceGpu& gpu : gpus) {
    gpu.health = *rc::gen::element(core::Health::ok, core::Health::ok, core::Health::draining,
                                   core::Health::lost);
    gpu.foreign = mib(256) * *rc::gen::inRange<std::int64_t>(0, 400);
    if (*rc::gen::arbitrary<bool>()) {
      gpu.held = {part(gpu, gib(*rc::gen::inRange<std::int64_t>(1, 80)))};
    } else if (*rc::gen::arbitrary<bool>()) {
      gpu.held = {all_of(gpu)};
    }
    if (*rc::gen::inRange(0, 4) == 0) gpu.device.gpu.mig_profile = "1g.10gb";
  }
  std::set<std::string> names;
  for (const json::object& spec : slice_specs(gpus, kSettings)) {
    if (const auto* devices = spec.if_contains("devices")) {
      RC_ASSERT(devices->as_array().size() <= 64U);
      for (const json::value& device : devices->as_array()) {
        RC_ASSERT(names.insert(text_at(device, "/name")).second);
      }
    } else {
      for (const json::value& set : spec.at("sharedCounters").as_array()) {
        RC_ASSERT(set.at("counters").as_object().size() <= 32U);
      }
    }
  }
  RC_ASSERT(names.size() == 2U * static_cast<std::size_t>(count));
}

}  // namespace
}  // namespace aliquot::kube
