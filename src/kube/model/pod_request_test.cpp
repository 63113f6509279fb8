#include "kube/model/pod_request.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "kube/model/testing.hpp"

namespace aliquot::kube {
namespace {

using test::ContainerSpec;
using test::pod;
using test::share;
using test::whole;
using testing::HasSubstr;

Result<PodRequest> read(const std::vector<ContainerSpec>& containers, bool nvidia = false) {
  return read_request(pod("p", containers), Names(), gib(1), nvidia);
}

ContainerSpec with(ContainerSpec spec, const std::string& resource, const std::string& amount) {
  spec.limits[resource] = amount;
  return spec;
}

core::GrantedGpu part(const char* gpu, int gibs, int compute = 0, bool all = false) {
  return {GpuId(gpu), {gib(gibs), Compute(compute)}, all};
}

TEST(PodRequestTest, ASharePerContainer) {
  const auto request =
      read({share(8, "a"), with(share(4, "b"), "aliquot.dev/gpu-share", "25"), {"c"}}).value();
  ASSERT_EQ(request.needs.size(), 2U);
  EXPECT_EQ(request.needs[0].units, 8);
  EXPECT_EQ(request.needs[0].resource, "aliquot.dev/gpu-mem");
  ASSERT_EQ(request.shares.size(), 2U);
  EXPECT_EQ(request.shares[0].amounts, (core::Amounts{gib(8), std::nullopt}));
  EXPECT_EQ(request.shares[1].amounts, (core::Amounts{gib(4), Compute(2'500)}));
  EXPECT_EQ(request.whole, 0);
  EXPECT_EQ(request.cpus, kOneCpu * 3);
  EXPECT_FALSE(request.gpushare);
}

TEST(PodRequestTest, WholeGpusByEveryName) {
  EXPECT_EQ(read({whole(2)})->whole, 2);
  EXPECT_EQ(read({{"c", Role::app, {{"aliyun.com/gpu-count", "2"}}}})->whole, 2);
  const ContainerSpec nvidia{"c", Role::app, {{"nvidia.com/gpu", "3"}}};
  EXPECT_FALSE(read({nvidia})->asks());
  EXPECT_EQ(read({nvidia}, true)->whole, 3);
  EXPECT_TRUE(asks_nvidia(pod("p", {nvidia})));
  EXPECT_FALSE(asks_nvidia(pod("p", {share(1)})));
}

TEST(PodRequestTest, GpusharesNamesMeanTheSame) {
  const auto request = read({{"c", Role::app, {{"aliyun.com/gpu-mem", "3"}}}}).value();
  EXPECT_TRUE(request.gpushare);
  EXPECT_EQ(request.shares[0].amounts.memory, gib(3));
}

TEST(PodRequestTest, AnotherDomainIsOneSetting) {
  Names names{.domain = "gpu.example.org"};
  auto object = test::pod_object("p", {{"c", Role::app, {{"gpu.example.org/gpu-mem", "3"}}}});
  const auto read = read_pod(boost::json::value(object), names).value();
  EXPECT_EQ(read_request(read, names, mib(1), false)->shares[0].amounts.memory, mib(3));
  EXPECT_FALSE(read_request(read, Names(), mib(1), false)->asks());
}

TEST(PodRequestTest, SaysWhatCannotBe) {
  EXPECT_THAT(read({with(share(8), "aliquot.dev/gpu", "1")}).error().message,
              testing::AllOf(HasSubstr("'c'"), HasSubstr("aliquot.dev/gpu-mem and")));
  EXPECT_THAT(read({{"c", Role::app, {{"aliquot.dev/gpu-share", "10"}}}}).error().message,
              HasSubstr("only for a container"));
  EXPECT_THAT(read({with(share(8), "aliquot.dev/gpu-share", "101")}).error().message,
              HasSubstr("percent"));
  EXPECT_THAT(read({with(whole(1), "aliquot.dev/gpu-share", "10")}).error().message,
              HasSubstr("no aliquot.dev/gpu-share"));
  EXPECT_THAT(read({{"c", Role::app, {{"aliquot.dev/gpu-mem", "9E"}}}}).error().message,
              HasSubstr("units of memory"));
  EXPECT_THAT(read({whole(65)}).error().message, HasSubstr("no node"));
}

TEST(PodRequestTest, WhatIsOddIsCountedAsIfItHadAWholeGpu) {
  const Pod odd = pod("p", {with(share(8, "a"), "aliquot.dev/gpu", "1"),
                            {"b", Role::app, {{"aliquot.dev/gpu-share", "10"}}}});
  const PodRequest request = odd_request(odd, Names());
  EXPECT_TRUE(request.asks());
  EXPECT_EQ(request.whole, 1);
  EXPECT_FALSE(covers({}, request));
  EXPECT_TRUE(covers({{"a", {part("x", 8)}}}, request));
}

TEST(PodRequestTest, InitContainersComeOneAfterAnotherAndSidecarsStay) {
  const auto request = read({whole(2, "i1", Role::init), whole(1, "s", Role::sidecar),
                             whole(3, "i2", Role::init), whole(1, "a"), whole(1, "b")})
                           .value();
  // i1: 2; s + i2: 4; s + a + b: 3.
  EXPECT_EQ(request.whole, 4);
  const auto places = whole_places(request);
  EXPECT_EQ(places, (std::vector<std::pair<std::int64_t, std::int64_t>>{
                        {0, 2}, {0, 1}, {1, 3}, {1, 1}, {2, 1}}));
}

TEST(PodRequestTest, SharesBehindAnInitContainersShareAreOnOneGpu) {
  const auto request = read({share(8, "i", Role::init), share(4, "a"), share(6, "b")}).value();
  ASSERT_EQ(request.shares.size(), 1U);
  EXPECT_EQ(request.shares[0].amounts.memory, gib(10));
  EXPECT_EQ(request.shares[0].needs, (std::vector<std::size_t>{0, 1, 2}));
  // Those that run beside each other are free to be apart.
  EXPECT_EQ(read({share(8, "s", Role::sidecar), share(4, "a")})->shares.size(), 2U);
  EXPECT_FALSE(
      read({share(8, "i", Role::init), with(share(4, "a"), "aliquot.dev/gpu-share", "10")}));
}

TEST(PodRequestTest, HoldsTheMostOfAnyTime) {
  const auto request =
      read({share(8, "i", Role::init), share(2, "s", Role::sidecar), share(4, "a")}).value();
  const ContainerGrants grants{{"i", {part("x", 8, 800)}},
                               {"s", {part("x", 2, 200)}},
                               {"a", {part("y", 4, 400)}},
                               {"stranger", {part("z", 99)}}};
  const auto held = held_by(request, grants);
  ASSERT_EQ(held.size(), 2U);
  EXPECT_EQ(held.at(GpuId("x")), part("x", 8, 800));
  EXPECT_EQ(held.at(GpuId("y")), part("y", 4, 400));
  EXPECT_TRUE(covers(grants, request));
  EXPECT_FALSE(covers({{"i", {part("x", 8)}}}, request));
  EXPECT_FALSE(covers(
      {{"i", {part("x", 8, 0, true)}}, {"s", {part("x", 2)}}, {"a", {part("y", 4)}}}, request));
}

// However roles are mixed: never less than any moment takes, and no more than the worst moment.
RC_GTEST_PROP(PodRequestTest, ThePeakIsTheWorstMoment, ()) {
  std::vector<ContainerSpec> specs;
  const int count = *rc::gen::inRange(1, 6);
  for (int i = 0; i < count; ++i) {
    specs.push_back(whole(*rc::gen::inRange(1, 4), fmt::format("i{}", i),
                          *rc::gen::element(Role::init, Role::sidecar)));
  }
  specs.push_back(whole(*rc::gen::inRange(1, 4), "a"));
  std::int64_t sidecars = 0;
  std::int64_t worst = 0;
  for (const ContainerSpec& spec : specs) {
    const std::int64_t amount = std::stoll(spec.limits.begin()->second);
    worst = std::max(worst, sidecars + amount);
    if (spec.role == Role::sidecar) sidecars += amount;
  }
  const PodRequest request = read(specs).value();
  RC_ASSERT(request.whole == worst);
  for (const auto& [first, number] : whole_places(request)) {
    RC_ASSERT(first + number <= request.whole);
  }
}

}  // namespace
}  // namespace aliquot::kube
