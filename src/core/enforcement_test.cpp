#include "core/enforcement.hpp"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

namespace aliquot::core {
namespace {

const GpuId kSomeGpu("GPU-0");

GrantedGpu granted(std::int64_t percent) { return {kSomeGpu, {gib(10), Compute(100) * percent}}; }

EnforcementPlan plan_for(const EnforcementFacts& node, std::vector<GrantedGpu> gpus,
                         std::int64_t processes = 1) {
  return plan_enforcement(node, {.processes = processes, .gpus = std::move(gpus)});
}

TEST(Enforcement, AShareGetsEverythingTheNodeHas) {
  const auto plan = plan_for({.driver_version = "580.1"}, {granted(25)});
  EXPECT_EQ(plan.words, "mps(user)+library+leases+watchdog");
  EXPECT_TRUE(plan.mps);
  EXPECT_TRUE(plan.lease);
  EXPECT_EQ(plan.thread_percentage, std::nullopt);  // other servers are on the GPU
  EXPECT_EQ(plan.pinned_limit, gib(11));            // the library is stricter
}

TEST(Enforcement, InOneServerAnIdleShareIsNotLost) {
  EnforcementFacts node{.driver_version = "580.1", .domain = FaultDomain::gpu};
  const auto plan = plan_for(node, {granted(20)});
  EXPECT_EQ(plan.words, "mps(gpu)+library+leases+watchdog");
  EXPECT_EQ(plan.thread_percentage, std::nullopt);
  // Without the library nothing else holds it.
  node.no_library = "not installed";
  EXPECT_EQ(plan_for(node, {granted(20)}).thread_percentage, 20);
}

TEST(Enforcement, StrictlyPercentagesHoldTheShares) {
  EnforcementFacts node{.driver_version = "580.1", .domain = FaultDomain::gpu, .strict = true};
  auto plan = plan_for(node, {granted(25)});
  EXPECT_EQ(plan.words, "mps(gpu)+library+watchdog");
  EXPECT_EQ(plan.thread_percentage, 25);
  node.compute_limit = kWholeGpu * 2;
  EXPECT_EQ(plan_for(node, {granted(25)}).thread_percentage, 50);
  EXPECT_EQ(plan_for(node, {granted(75)}).thread_percentage, 100);
  // Its MPS does not start: the leases take over.
  drop_mps(plan);
  EXPECT_EQ(plan.words, "library+leases+watchdog");
  EXPECT_EQ(plan.thread_percentage, std::nullopt);
}

TEST(Enforcement, WithoutMpsJobsTakeTurns) {
  const std::string expected = "library+leases+watchdog";
  EXPECT_EQ(plan_for({.capabilities = {{kSomeGpu, 6}}}, {granted(25)}).words, expected);
  EXPECT_EQ(plan_for({.no_mps = "not installed"}, {granted(25)}).words, expected);
  EXPECT_EQ(plan_for({.domain = FaultDomain::job}, {granted(25)}).words, expected);
  EXPECT_EQ(plan_for({}, {granted(25), granted(25)}).words, expected);
  EXPECT_EQ(plan_for({}, {granted(25)}, 49).words, expected);
}

TEST(Enforcement, WithoutTheLibraryTheLimitOfMpsIsTheLimit) {
  const auto plan = plan_for({.no_library = "not installed"}, {granted(25)});
  EXPECT_EQ(plan.words, "mps(user)+watchdog");
  EXPECT_EQ(plan.pinned_limit, gib(10));
}

TEST(Enforcement, WhatNeedsNone) {
  const GrantedGpu whole{kSomeGpu, {gib(140), kWholeGpu}, true};
  EXPECT_EQ(plan_for({}, {whole}).words, "exclusive");
  EXPECT_FALSE(plan_for({}, {whole}).library);
  EXPECT_EQ(plan_for({}, {}).words, "");
  EXPECT_EQ(plan_for({.enabled = false}, {granted(25)}).words, "none");
}

RC_GTEST_PROP(Enforcement, APlanNeverUsesWhatIsNotThere, ()) {
  EnforcementFacts node;
  node.enabled = *rc::gen::arbitrary<bool>();
  node.no_mps = *rc::gen::element<std::string>("", "no");
  node.no_library = *rc::gen::element<std::string>("", "no");
  node.domain = *rc::gen::element(FaultDomain::gpu, FaultDomain::user, FaultDomain::job);
  const std::vector<GrantedGpu> grant(*rc::gen::inRange<std::size_t>(0, 3), granted(30));
  const auto plan = plan_for(node, grant, *rc::gen::inRange(1, 100));
  RC_ASSERT(!plan.library || (node.enabled && node.no_library.empty()));
  RC_ASSERT(!plan.mps || (node.enabled && node.no_mps.empty() && node.domain != FaultDomain::job));
  RC_ASSERT(!plan.lease || plan.library);
  RC_ASSERT(!(plan.lease && plan.thread_percentage));
  RC_ASSERT(plan.words.empty() == grant.empty());
}

TEST(Enforcement, BackendsSayWhyNot) {
  const auto old = list_backends({.driver_version = "580.159.04"});
  ASSERT_EQ(old.size(), 5U);
  EXPECT_EQ(old[0].detail, "driver 580.159.04 has no limits per cgroup: those came with r615");
  EXPECT_TRUE(old[1].used);
  const auto young = list_backends({.driver_version = "615.10", .no_mps = "not installed"});
  EXPECT_EQ(young[0].detail, "driver 615.10 can limit memory per cgroup; not used yet");
  EXPECT_FALSE(young[1].used);
  EXPECT_EQ(young[1].detail, "not installed");
  for (const auto& backend : list_backends({.enabled = false})) EXPECT_FALSE(backend.used);
}

TEST(Enforcement, FaultDomainsHaveNames) {
  for (const auto domain : {FaultDomain::gpu, FaultDomain::user, FaultDomain::job}) {
    EXPECT_EQ(parse_fault_domain(to_string(domain)), domain);
  }
  EXPECT_EQ(parse_fault_domain("node"), std::nullopt);
}

}  // namespace
}  // namespace aliquot::core
