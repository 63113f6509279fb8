#include "kube/scheduler/pod_placement.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "kube/model/testing.hpp"

namespace aliquot::kube {
namespace {

using test::share;
using test::whole;

core::Cluster node_with(const std::vector<Bytes>& memories) {
  core::Node node{.id = NodeId("n"), .cpus = kOneCpu * 8, .memory = Bytes(0)};
  for (std::size_t i = 0; i < memories.size(); ++i) {
    node.gpus.push_back({.id = GpuId(fmt::format("G{}", i)), .model = "m", .memory = memories[i]});
  }
  return core::Cluster::create({node}).value();
}

PodRequest request_of(const std::vector<test::ContainerSpec>& containers) {
  return read_request(test::pod("p", containers), Names(), gib(1), false).value();
}

PodShapes shapes(const core::Cluster& cluster, const std::vector<test::ContainerSpec>& containers) {
  return shapes_of(cluster, request_of(containers)).value();
}

std::unique_ptr<core::Policy> policy_for(const core::Cluster& cluster, const char* name) {
  auto policy = core::make_policy(name, core::generic_profile()).value();
  policy->prepare(cluster);
  return policy;
}

TEST(PodPlacementTest, ContainersMayBeOnDifferentGpus) {
  auto cluster = node_with({gib(8), gib(8)});
  const auto policy = policy_for(cluster, "aliquot");
  const auto wanted = shapes(cluster, {share(6, "a"), share(6, "b")});
  EXPECT_TRUE(fits(cluster, 0, wanted));
  const auto placed = place_pod(cluster, *policy, 0, wanted);
  ASSERT_TRUE(placed);
  EXPECT_NE(placed->placement.shares[0], placed->placement.shares[1]);
  EXPECT_FALSE(fits(cluster, 0, shapes(cluster, {share(6, "a"), share(6, "b"), share(3, "c")})));
  EXPECT_TRUE(fits(cluster, 0, shapes(cluster, {share(6, "a"), share(6, "b"), share(2, "c")})));
}

TEST(PodPlacementTest, WholeGpusAreBesideNoShare) {
  auto cluster = node_with({gib(8), gib(8)});
  const auto policy = policy_for(cluster, "best-fit");
  const auto wanted = shapes(cluster, {share(1, "a"), whole(1, "b")});
  const auto placed = place_pod(cluster, *policy, 0, wanted);
  ASSERT_TRUE(placed);
  EXPECT_NE(placed->placement.shares[0], placed->placement.whole[0]);
  EXPECT_FALSE(fits(cluster, 0, shapes(cluster, {share(1, "a"), whole(2, "b")})));
}

TEST(PodPlacementTest, FindsTheOneWayThatIsLeft) {
  // 5 + 4 and 3 + 3 + 3: taking the largest rest first leads nowhere.
  auto cluster = node_with({gib(9), gib(9)});
  const auto policy = policy_for(cluster, "least-occupied");
  const auto wanted =
      shapes(cluster, {share(5, "a"), share(4, "b"), share(3, "c"), share(3, "d"), share(3, "e")});
  EXPECT_TRUE(place_pod(cluster, *policy, 0, wanted));
}

TEST(PodPlacementTest, EachContainerGetsItsOwn) {
  auto cluster = node_with({gib(8), gib(8), gib(8), gib(8)});
  const auto request =
      request_of({whole(2, "i", Role::init), whole(1, "a"), whole(2, "b"), share(2, "c")});
  const auto grants = grants_of(cluster, 0, request, {{3}, {0, 1, 2}});
  EXPECT_EQ(grants.at("i").size(), 2U);
  EXPECT_EQ(grants.at("a").at(0).gpu, GpuId("G0"));
  EXPECT_EQ(grants.at("b").at(0).gpu, GpuId("G1"));
  EXPECT_EQ(grants.at("b").at(1).gpu, GpuId("G2"));
  EXPECT_EQ(grants.at("c").at(0), (core::GrantedGpu{GpuId("G3"), {gib(2), Compute(2'500)}, false}));
  EXPECT_TRUE(covers(grants, request));
}

TEST(PodPlacementTest, SaysWhatIsMissing) {
  auto cluster = node_with({gib(8), gib(8)});
  ASSERT_TRUE(cluster.take(
      {0, {}, {}, {{0, {gib(2), Compute(9'000)}, false}, {1, {gib(3), Compute(100)}, false}}}));
  const auto why = [&](const std::vector<test::ContainerSpec>& containers) {
    return explain_pod(cluster, 0, shapes(cluster, containers)).why;
  };
  EXPECT_EQ(why({share(7)}), "largest free on one GPU: 6 GiB, asked 7 GiB");
  EXPECT_EQ(why({share(9)}), "the largest GPU has 8 GiB, asked 9 GiB");
  EXPECT_EQ(why({whole(1)}), "GPUs that nobody is on: 0 of 2, asked 1");
  EXPECT_EQ(why({share(6)}), "no GPU with 6 GiB free has enough compute left: 10% at most");
  EXPECT_EQ(why({share(4, "a"), share(4, "b")}),
            "its containers do not fit together: 2 shares; largest free on one GPU: 6 GiB");
  EXPECT_TRUE(explain_pod(cluster, 0, shapes(cluster, {whole(2)})).curable);
  EXPECT_FALSE(explain_pod(cluster, 0, shapes(cluster, {whole(3)})).curable);
  EXPECT_FALSE(explain_pod(cluster, 0, shapes(cluster, {share(9)})).curable);
}

TEST(PodPlacementTest, SizesForPeople) {
  EXPECT_EQ(size_for_people(gib(6)), "6 GiB");
  EXPECT_EQ(size_for_people(gib(6) - Bytes(1)), "5.9 GiB");
  EXPECT_EQ(size_for_people(mib(512)), "512 MiB");
  EXPECT_EQ(size_for_people(Bytes(0)), "0 MiB");
}

// By trying everything.
bool fits_somehow(std::vector<std::pair<int, bool>> rooms, const std::vector<int>& shares,
                  std::size_t at, int wholes) {
  if (at == shares.size()) {
    return std::ranges::count_if(rooms, [](const auto& room) { return !room.second; }) >= wholes;
  }
  for (auto& [free, touched] : rooms) {
    if (free < shares[at]) continue;
    const auto before = std::pair(free, touched);
    free -= shares[at];
    touched = true;
    if (fits_somehow(rooms, shares, at + 1, wholes)) return true;
    std::tie(free, touched) = before;
  }
  return false;
}

RC_GTEST_PROP(PodPlacementTest, FindsAPlaceWhereverThereIsOne, ()) {
  const auto sizes = *rc::gen::container<std::vector<int>>(*rc::gen::inRange<std::size_t>(1, 6),
                                                           rc::gen::inRange(4, 12));
  std::vector<Bytes> memories;
  std::vector<std::pair<int, bool>> rooms;
  for (const int size : sizes) {
    memories.push_back(gib(size));
    rooms.emplace_back(size, false);
  }
  auto cluster = node_with(memories);
  std::vector<test::ContainerSpec> containers;
  std::vector<int> shares;
  const int count = *rc::gen::inRange(1, 6);
  for (int i = 0; i < count; ++i) {
    shares.push_back(*rc::gen::inRange(1, 8));
    containers.push_back(share(shares.back(), fmt::format("c{}", i)));
    // Memory alone decides.
    containers.back().limits["aliquot.dev/gpu-share"] = "1";
  }
  const int wholes = *rc::gen::inRange(0, 3);
  if (wholes > 0) containers.push_back(whole(wholes, "w"));

  const auto policy =
      policy_for(cluster, *rc::gen::element("aliquot", "best-fit", "least-occupied"));
  const auto wanted = shapes(cluster, containers);
  const bool possible = fits_somehow(rooms, shares, 0, wholes);
  RC_ASSERT(fits(cluster, 0, wanted) == possible);
  const auto before = std::vector<core::GpuState>(cluster.gpus(0).begin(), cluster.gpus(0).end());
  const auto placed = place_pod(cluster, *policy, 0, wanted);
  RC_ASSERT(placed.has_value() == possible);
  for (std::size_t gpu = 0; gpu < before.size(); ++gpu) {
    RC_ASSERT(cluster.gpus(0)[gpu].memory_free == before[gpu].memory_free);
    RC_ASSERT(cluster.gpus(0)[gpu].jobs == 0U);
  }
  if (!placed) return;
  std::vector<int> used(sizes.size(), 0);
  for (std::size_t i = 0; i < shares.size(); ++i) used[placed->placement.shares[i]] += shares[i];
  for (std::size_t gpu = 0; gpu < used.size(); ++gpu) RC_ASSERT(used[gpu] <= sizes[gpu]);
  RC_ASSERT(placed->placement.whole.size() == static_cast<std::size_t>(wholes));
  for (const auto gpu : placed->placement.whole) RC_ASSERT(used[gpu] == 0);
}

}  // namespace
}  // namespace aliquot::kube
