#include "kube/scheduler/cluster_state.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <boost/json.hpp>

#include "kube/model/testing.hpp"

namespace aliquot::kube {
namespace {

using test::gpu_id;
using test::share;
using test::whole;
using testing::HasSubstr;

class ClusterStateTest : public testing::Test {
 protected:
  ClusterStateTest() { clock_.set_wall(WallTime(1'000'000'000)); }

  void node(const std::string& name, const std::vector<Bytes>& memories) {
    see(name, test::node_gpus(name, memories));
  }
  void see(const std::string& name, const NodeGpus& gpus) {
    state_->see_node({.name = name, .cpus = kOneCpu * 64, .memory = gib(1), .gpus = gpus});
  }
  // With a grant, unless it is told otherwise.
  static void grant(Pod& pod, const std::string& node, const ContainerGrants& containers,
                    WallTime assumed = WallTime(1'000'000'000)) {
    const std::string text = write_grant({node, assumed, containers});
    pod.annotations["aliquot.dev/grant"] = text;
    pod.annotations["aliquot.dev/grant-seal"] = test::key().seal(pod.id, text);
  }
  static core::GrantedGpu part(const std::string& node, int gpu, int gibs) {
    return {gpu_id(node, gpu), {gib(gibs), Compute(gibs * 100)}, false};
  }
  Bytes free(const std::string& node, int gpu) {
    return state_->picture().at(node).at(gpu_id(node, gpu)).memory_free;
  }
  ClusterState::Verdict check(const Pod& pod, std::string_view node) {
    return state_->check(state_->ask(pod).value(), std::vector{node}).at(0);
  }

  ManualClock clock_;
  std::unique_ptr<ClusterState> state_ = ClusterState::create({}, test::key(), clock_).value();
};

TEST_F(ClusterStateTest, CountsWhatIsGranted) {
  node("n", {gib(80), gib(80)});
  Pod pod = test::pod("p", {share(8, "a"), share(4, "b")});
  grant(pod, "n", {{"a", {part("n", 0, 8)}}, {"b", {part("n", 1, 4)}}});
  pod.node = "n";
  state_->see_pod(pod);
  EXPECT_EQ(free("n", 0), gib(72));
  EXPECT_EQ(free("n", 1), gib(76));
  pod.phase = "Running";
  pod.terminating = true;
  state_->see_pod(pod);
  EXPECT_EQ(free("n", 0), gib(72));
  pod.phase = "Failed";
  state_->see_pod(pod);
  EXPECT_EQ(free("n", 0), gib(80));
  pod.phase = "Running";
  state_->see_pod(pod);
  state_->lose_pod(pod.id.uid);
  EXPECT_EQ(free("n", 0), gib(80));
  EXPECT_EQ(state_->counts().pods, 0U);
}

TEST_F(ClusterStateTest, PodsMayBeSeenBeforeTheirNode) {
  Pod pod = test::pod("p", {share(8, "a")});
  grant(pod, "n", {{"a", {part("n", 0, 8)}}});
  pod.node = "n";
  state_->see_pod(pod);
  node("n", {gib(80)});
  EXPECT_EQ(free("n", 0), gib(72));
  state_->lose_node("n");
  EXPECT_TRUE(state_->picture().empty());
  node("n", {gib(80)});
  EXPECT_EQ(free("n", 0), gib(72));
}

TEST_F(ClusterStateTest, WithoutAGrantItMayBeOnAnyGpu) {
  node("n", {gib(80), gib(80)});
  Pod pod = test::pod("p", {share(8, "a"), share(4, "b")});
  pod.node = "n";
  state_->see_pod(pod);
  EXPECT_EQ(free("n", 0), gib(68));
  EXPECT_EQ(free("n", 1), gib(68));
  EXPECT_EQ(state_->counts().unknown, 1U);
  EXPECT_FALSE(check(test::pod("q", {whole(1)}), "n").fits);
  // What somebody else wrote is no grant.
  grant(pod, "n", {{"a", {part("n", 0, 8)}}, {"b", {part("n", 0, 4)}}});
  pod.annotations["aliquot.dev/grant-seal"][0] ^= 1;
  state_->see_pod(pod);
  EXPECT_EQ(free("n", 1), gib(68));
  EXPECT_THAT(state_->find(pod.id.uid)->forged, HasSubstr("not sealed by us"));
  // Nor is one for another node, or for fewer containers.
  grant(pod, "m", {{"a", {part("n", 0, 8)}}, {"b", {part("n", 0, 4)}}});
  state_->see_pod(pod);
  EXPECT_EQ(free("n", 1), gib(68));
  grant(pod, "n", {{"a", {part("n", 0, 8)}}});
  state_->see_pod(pod);
  EXPECT_EQ(free("n", 1), gib(68));
  // The node agent has looked.
  grant(pod, "n", {{"a", {part("n", 0, 8)}}, {"b", {part("n", 0, 4)}}});
  state_->see_pod(pod);
  EXPECT_EQ(free("n", 0), gib(68));
  EXPECT_EQ(free("n", 1), gib(80));
  EXPECT_EQ(state_->find(pod.id.uid)->forged, "");
}

TEST_F(ClusterStateTest, WhatCannotBeAndIsBoundClosesItsNode) {
  node("n", {gib(80)});
  Pod pod =
      test::pod("p", {{"a", Role::app, {{"aliquot.dev/gpu-mem", "1"}, {"aliquot.dev/gpu", "1"}}}});
  state_->see_pod(pod);
  EXPECT_EQ(free("n", 0), gib(80));
  pod.node = "n";
  state_->see_pod(pod);
  EXPECT_EQ(free("n", 0), Bytes(0));
  state_->lose_pod(pod.id.uid);
  EXPECT_EQ(free("n", 0), gib(80));
}

TEST_F(ClusterStateTest, AGrantOfAPodThatIsNotBoundCountsForAWhile) {
  node("n", {gib(80)});
  Pod pod = test::pod("p", {share(8, "a")});
  grant(pod, "n", {{"a", {part("n", 0, 8)}}});
  state_->see_pod(pod);
  EXPECT_EQ(free("n", 0), gib(72));
  clock_.advance(minutes(5));
  EXPECT_EQ(free("n", 0), gib(80));
  // Bound after all.
  pod.node = "n";
  state_->see_pod(pod);
  EXPECT_EQ(free("n", 0), gib(72));
}

TEST_F(ClusterStateTest, APodThatIsPlacedAnewDoesNotStandInItsOwnWay) {
  node("n", {gib(10)});
  Pod pod = test::pod("p", {share(8, "a")});
  grant(pod, "n", {{"a", {part("n", 0, 8)}}});
  state_->see_pod(pod);
  EXPECT_FALSE(check(pod, "n").fits);
  state_->start_over(pod.id.uid);
  EXPECT_TRUE(check(pod, "n").fits);
}

TEST_F(ClusterStateTest, WhatIsBeingBoundCountsAtOnce) {
  node("n", {gib(10)});
  const Pod pod = test::pod("p", {share(8, "a")});
  const Asked asked = state_->ask(pod).value();
  const PodGrant grant = state_->place(asked, "n").value();
  state_->assume(pod.id.uid, asked, grant);
  EXPECT_EQ(free("n", 0), gib(2));
  EXPECT_EQ(state_->place(asked, "n").error().message,
            "node n: largest free on one GPU: 2 GiB, asked 8 GiB");
  // An older word of it changes nothing.
  state_->see_pod(pod);
  EXPECT_EQ(free("n", 0), gib(2));
  state_->undo(pod.id.uid);
  EXPECT_EQ(free("n", 0), gib(10));

  state_->assume(pod.id.uid, asked, grant);
  state_->confirm(pod.id.uid);
  clock_.advance(minutes(4));
  EXPECT_EQ(free("n", 0), gib(2));
  clock_.advance(minutes(1));
  EXPECT_EQ(free("n", 0), gib(10));
}

TEST_F(ClusterStateTest, WhatWasNeverSeenIsForgotten) {
  node("n", {gib(10)});
  const Asked asked = state_->ask(test::pod("p", {share(8, "a")})).value();
  state_->assume("ghost", asked, state_->place(asked, "n").value());
  state_->confirm("ghost");
  EXPECT_FALSE(state_->find("ghost"));
  clock_.advance(minutes(5));
  state_->expire();
  EXPECT_EQ(state_->counts().pods, 0U);
  EXPECT_EQ(free("n", 0), gib(10));
}

TEST_F(ClusterStateTest, ADoubtIsOverOnceThePodIsSeen) {
  node("n", {gib(10)});
  Pod pod = test::pod("p", {share(8, "a")});
  const Asked asked = state_->ask(pod).value();
  const PodGrant decided = state_->place(asked, "n").value();
  state_->see_pod(pod);
  state_->assume(pod.id.uid, asked, decided);
  state_->doubt(pod.id.uid);
  EXPECT_TRUE(state_->find(pod.id.uid)->binding);
  EXPECT_EQ(free("n", 0), gib(2));
  grant(pod, "n", decided.containers, decided.assumed);
  state_->see_pod(pod);
  EXPECT_FALSE(state_->find(pod.id.uid)->binding);
  EXPECT_EQ(free("n", 0), gib(2));
}

TEST_F(ClusterStateTest, GpusAreLostAndChangeTheirSizes) {
  node("n", {gib(80), gib(80)});
  Pod pod = test::pod("p", {share(60, "a")});
  grant(pod, "n", {{"a", {part("n", 0, 60)}}});
  pod.node = "n";
  state_->see_pod(pod);
  NodeGpus gpus = test::node_gpus("n", {gib(80), gib(80)});
  gpus.gpus[1].health = core::Health::lost;
  see("n", gpus);
  EXPECT_FALSE(check(test::pod("q", {share(30)}), "n").fits);
  EXPECT_TRUE(check(test::pod("q", {share(20)}), "n").fits);
  gpus.gpus[1].health = core::Health::ok;
  gpus.gpus[1].foreign = gib(55);
  see("n", gpus);
  EXPECT_EQ(check(test::pod("q", {share(30)}), "n").why,
            "largest free on one GPU: 25 GiB, asked 30 GiB");
  // It holds more than there is by now.
  see("n", test::node_gpus("n", {gib(40)}));
  EXPECT_EQ(free("n", 0), Bytes(0));
  see("n", test::node_gpus("n", {gib(80), gib(80), gib(80)}));
  EXPECT_EQ(free("n", 0), gib(20));
  EXPECT_EQ(free("n", 2), gib(80));
}

TEST_F(ClusterStateTest, NobodyComesToTwoThatExcludeEachOther) {
  node("n", {gib(80), gib(80)});
  Pod all = test::pod("w", {whole(1, "a")});
  grant(all, "n", {{"a", {{gpu_id("n", 0), {gib(80), kWholeGpu}, true}}}});
  all.node = "n";
  Pod some = test::pod("s", {share(8, "a")});
  grant(some, "n", {{"a", {part("n", 0, 8)}}});
  some.node = "n";
  state_->see_pod(some);
  state_->see_pod(all);
  const auto picture = state_->picture();
  EXPECT_FALSE(picture.at("n").at(gpu_id("n", 0)).usable);
  EXPECT_TRUE(picture.at("n").at(gpu_id("n", 1)).usable);
  // Whoever leaves first, the other one counts.
  state_->lose_pod(all.id.uid);
  EXPECT_EQ(free("n", 0), gib(72));
  EXPECT_TRUE(state_->picture().at("n").at(gpu_id("n", 0)).usable);
}

TEST_F(ClusterStateTest, NvidiasNameIsOursWhereTheNodeSaysSo) {
  NodeGpus gpus = test::node_gpus("n", {gib(80)});
  see("n", gpus);
  Pod pod = test::pod("p", {{"a", Role::app, {{"nvidia.com/gpu", "1"}}}});
  EXPECT_TRUE(check(pod, "n").fits);
  EXPECT_TRUE(check(pod, "elsewhere").fits);
  EXPECT_TRUE(state_->place(state_->ask(pod).value(), "n")->containers.empty());
  pod.node = "n";
  state_->see_pod(pod);
  EXPECT_EQ(free("n", 0), gib(80));
  gpus.nvidia = true;
  see("n", gpus);
  EXPECT_EQ(free("n", 0), Bytes(0));  // bound, and nobody knows where
  state_->lose_pod(pod.id.uid);
  EXPECT_EQ(state_->place(state_->ask(pod).value(), "n")->containers.at("a").size(), 1U);
}

TEST_F(ClusterStateTest, SaysWhyANodeIsNotServed) {
  NodeGpus gpus = test::node_gpus("n", {gib(80)});
  gpus.unit = mib(1);
  see("n", gpus);
  state_->see_node({.name = "m", .cpus = {}, .memory = {}, .gpus = {}, .trouble = "broken"});
  const Pod pod = test::pod("p", {share(8)});
  EXPECT_THAT(check(pod, "n").why, HasSubstr("units of 1 MiB"));
  EXPECT_EQ(check(pod, "m").why, "broken");
  EXPECT_THAT(check(pod, "x").why, HasSubstr("aliquot-kube-node"));
  EXPECT_FALSE(check(pod, "x").curable);
}

TEST_F(ClusterStateTest, RanksByThePolicy) {
  node("empty", {gib(80)});
  node("used", {gib(80)});
  Pod pod = test::pod("p", {share(60, "a")});
  grant(pod, "used", {{"a", {part("used", 0, 60)}}});
  pod.node = "used";
  state_->see_pod(pod);
  const std::vector<std::string_view> nodes{"empty", "used", "strange"};
  for (const auto& containers :
       {std::vector{share(20)}, std::vector{share(10, "a"), share(10, "b")}}) {
    const auto ranks = state_->rank(state_->ask(test::pod("q", containers)).value(), nodes);
    ASSERT_TRUE(ranks[0] && ranks[1]);
    EXPECT_GT(*ranks[1], *ranks[0]);
    EXPECT_FALSE(ranks[2]);
  }
}

TEST_F(ClusterStateTest, RefusesSettingsThatCannotBe) {
  EXPECT_FALSE(ClusterState::create({.unit = Bytes(0)}, test::key(), clock_));
  EXPECT_FALSE(ClusterState::create({.policy = "by-feeling"}, test::key(), clock_));
}

}  // namespace
}  // namespace aliquot::kube
