#include "core/index.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <ostream>

#include "core/test_support.hpp"

namespace aliquot::core {
namespace {

using namespace test;

Profile mixed_profile() {
  Profile profile = generic_profile();
  profile.push_back({share({}, Compute(3'333), 2), 7});
  profile.push_back({wholes(2, {"a10"}), 3});
  profile.push_back({wholes(1, {"nobody has this"}), 9});
  profile.push_back({with_cpus({}, kOneCpu), 5});
  return profile;
}

struct Case {
  std::string policy;
  int histories = 0;
};

void PrintTo(const Case& test, std::ostream* out) { *out << test.policy; }

class EveryPolicy : public ::testing::TestWithParam<Case> {};

// Both are asked for every decision: a policy may learn from being asked.
TEST_P(EveryPolicy, AnswersTheSameThroughTheIndexAsByScan) {
  for (int seed = 0; seed < GetParam().histories; ++seed) {
    const Profile profile = seed % 3 == 0 ? Profile{} : mixed_profile();
    const auto fast = make_policy(GetParam().policy, profile).value();
    const auto slow = make_policy(GetParam().policy, profile).value();
    const auto history =
        histories(120)(rc::Random(static_cast<std::uint64_t>(seed)), rc::kNominalSize).value();
    World world;
    Index index(world.ledger.cluster(), *fast);
    for (std::size_t at = 0; at < history.size(); ++at) {
      Dice dice(history[at]);
      if (world.ledger.cluster().size() == 0) world.settle(dice);
      const Request request = some_request(dice);
      world.happen(dice);
      const auto shape = world.ledger.cluster().shape(request);
      if (!shape) continue;
      const auto placed = index.place(*shape);
      ASSERT_EQ(placed, place_by_scan(world.ledger.cluster(), *shape, *slow))
          << "history " << seed << " step " << at;
      if (!placed) continue;
      Candidates fit;
      ASSERT_TRUE(find_candidates(world.ledger.cluster(), *shape, placed->node, fit));
      ASSERT_TRUE(std::isfinite(slow->score(world.ledger.cluster(), *shape, fit)));
      const auto granted = world.ledger.grant(JobId(world.next_job++), *placed);
      ASSERT_TRUE(granted.has_value()) << granted.error().message;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Index, EveryPolicy,
                         ::testing::Values(Case{"aliquot", 6}, Case{"least-occupied", 40},
                                           Case{"least-utilised", 40}, Case{"best-fit", 40},
                                           Case{"dot-product", 40}, Case{"gpu-packing", 40},
                                           Case{"gpu-clustering", 40}, Case{"fgd", 40}),
                         [](const auto& test) {
                           std::string name = test.param.policy;
                           std::ranges::replace(name, '-', '_');
                           return name;
                         });

TEST(Index, TellsTheScoreOfEveryNode) {
  const auto policy = make_policy("aliquot", generic_profile()).value();
  Ledger ledger(cluster_of({node("a", gpus(1)), node("b", gpus(2)), node("c", gpus(2))}));
  Index index(ledger.cluster(), *policy);
  ASSERT_TRUE(ledger.grant(JobId(1), {0, {}, {}, {{0, {gib(20), Compute(1)}, false}}}));
  const Shape shape = ledger.cluster().shape(share(gib(8), {})).value();
  const auto best = index.place(shape);
  const auto scores = index.scores(shape);
  ASSERT_TRUE(best);
  ASSERT_GE(scores.size(), 3U);
  EXPECT_EQ(scores[0], Index::kUnfit);
  EXPECT_EQ(scores[best->node], *std::ranges::max_element(scores));
  EXPECT_EQ(scores[1], scores[2]);
}

TEST(Index, FollowsAClusterThatGrowsPastEverySize) {
  const auto fast = make_policy("least-occupied", {}).value();
  const auto slow = make_policy("least-occupied", {}).value();
  Ledger ledger(cluster_of({}));
  Index index(ledger.cluster(), *fast);
  for (std::int64_t i = 0; i < 70; ++i) {
    const Shape shape = ledger.cluster().shape(share({}, Compute(100))).value();
    const auto placed = index.place(shape);
    ASSERT_EQ(placed, place_by_scan(ledger.cluster(), shape, *slow)) << i;
    if (placed) {
      ASSERT_TRUE(ledger.grant(JobId(i), *placed).has_value());
    }
    ASSERT_TRUE(ledger.cluster().add_node(node(fmt::format("n{}", i), gpus(1))).has_value());
    // A node that is refused leaves nothing behind for the index to trip over.
    ASSERT_FALSE(ledger.cluster().add_node(node("x", {gpu("GPU-0"), gpu("GPU-0")})).has_value());
  }
}

// The best nodes of the common board often lack the memory, or the model, that one of them wants.
TEST(Index, TellsRequestsApartThatShareABoard) {
  for (const std::string_view name : {"aliquot", "best-fit", "least-occupied"}) {
    std::vector<Node> nodes;
    for (std::int64_t i = 0; i < 75; ++i) {
      std::vector<Gpu> held;
      // One model, another, both, or no GPU at all.
      if (i % 4 == 0 || i % 4 == 2) held.push_back(gpu("GPU-0", gib(24), "a10"));
      if (i % 4 == 1 || i % 4 == 2) held.push_back(gpu("GPU-1", gib(24), "h100"));
      nodes.push_back(node(fmt::format("n{}", i), std::move(held)));
      nodes.back().cpus = kOneCpu * (8 + i % 3 * 24);
      nodes.back().memory = gib(i % 5 == 0 ? 200 : 10 + i % 7);
    }
    const auto fast = make_policy(name, mixed_profile()).value();
    const auto slow = make_policy(name, mixed_profile()).value();
    Ledger ledger(cluster_of(std::move(nodes)));
    Index index(ledger.cluster(), *fast);
    const std::vector<std::vector<std::string>> models = {{}, {"a10"}, {"h100"}, {"a10", "h100"}};
    std::int64_t refused = 0;
    for (std::int64_t i = 0; i < 600; ++i) {
      const auto& wanted = models[static_cast<std::size_t>(i) % models.size()];
      Request request = i % 7 == 0   ? Request{}
                        : i % 5 == 0 ? wholes(1 + i % 2, wanted)
                                     : share({}, Compute(1'000 + i % 3 * 1'500), 1, wanted);
      request = with_cpus(std::move(request), kOneCpu * (i % 2), gib(i * 37 % 23));
      const Shape shape = ledger.cluster().shape(request).value();
      const auto placed = index.place(shape);
      ASSERT_EQ(placed, place_by_scan(ledger.cluster(), shape, *slow)) << name << " step " << i;
      refused += placed ? 0 : 1;
      if (placed) {
        ASSERT_TRUE(ledger.grant(JobId(i), *placed).has_value());
      }
      if (i > 250 && i % 3 == 0) static_cast<void>(ledger.release(JobId(i - 200)));
    }
    EXPECT_GT(refused, 20) << name;
    EXPECT_LT(refused, 400) << name;
  }
}

TEST(Index, CatchesUpAfterMoreChangesThanAreRemembered) {
  const auto fast = make_policy("best-fit", {}).value();
  const auto slow = make_policy("best-fit", {}).value();
  Ledger ledger(cluster_of({node("n0", gpus(8)), node("n1", gpus(8)), node("n2", gpus(8))}));
  Index index(ledger.cluster(), *fast);
  const Shape shape = ledger.cluster().shape(wholes(8)).value();
  ASSERT_TRUE(index.place(shape).has_value());
  for (std::int64_t i = 0; i < 2'000; ++i) {
    const auto on = static_cast<NodeIndex>(i % 3);
    const Use use{on, CpuMilli(0), Bytes(0), {share_of(0, Bytes(0), Compute(1))}};
    ASSERT_TRUE(ledger.grant(JobId(i), use).has_value());
    if (i % 700 != 1) continue;
    ASSERT_EQ(index.place(shape), place_by_scan(ledger.cluster(), shape, *slow));
  }
  EXPECT_EQ(index.place(shape), std::nullopt);
}

}  // namespace
}  // namespace aliquot::core
