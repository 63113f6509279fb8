#include "slurm/balancer/weights.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <limits>

namespace aliquot::slurm {
namespace {

constexpr MonoTime kNowMono(100'000);

NodeLoad load(std::int64_t utilisation, MonoTime heard = kNowMono) {
  return {Compute(utilisation), heard};
}

void carry_out(std::vector<WeighedNode>& nodes, const Plan& plan) {
  for (const auto& [weight, names] : plan.changes) {
    for (auto& node : nodes) {
      if (std::ranges::find(names, node.name) != names.end()) node.weight = weight;
    }
  }
}

TEST(Weights, FollowTheLoad) {
  const std::vector<WeighedNode> nodes{{"n1"}, {"n2"}, {"n3"}, {"n4", 1, false}};
  const Loads loads{{"n1", load(3'000)}, {"n2", load(0)}};
  const auto spread = plan_weights(nodes, loads, {}, {BalanceMode::spread, kNowMono});
  EXPECT_EQ(spread.changes, (std::map<std::uint32_t, std::vector<std::string>>{
                                {1000, {"n2", "n4"}}, {1030, {"n1"}}, {1101, {"n3"}}}));
  EXPECT_TRUE(spread.bases_changed);
  const auto pack = plan_weights(nodes, loads, {}, {BalanceMode::pack, kNowMono});
  EXPECT_EQ(pack.changes, (std::map<std::uint32_t, std::vector<std::string>>{
                              {1000, {"n4"}}, {1070, {"n1"}}, {1100, {"n2"}}, {1101, {"n3"}}}));
}

TEST(Weights, OffPutsTheBasesBack) {
  const auto off = plan_weights({{"n1", 7'050}, {"n2", 7}}, {}, {.bases = {{"n1", 7}, {"n2", 7}}},
                                {BalanceMode::off, kNowMono});
  EXPECT_EQ(off.changes, (std::map<std::uint32_t, std::vector<std::string>>{{7, {"n1"}}}));
}

TEST(Weights, AResetIsMadeGoodAndAForeignWeightIsANewBase) {
  const Memory memory{.bases = {{"n1", 2}}, .steps = {}};
  const Loads loads{{"n1", load(5'000)}};
  const auto next = [&](std::uint32_t weight) {
    std::vector<WeighedNode> nodes{{"n1", weight}};
    carry_out(nodes, plan_weights(nodes, loads, memory, {BalanceMode::spread, kNowMono}));
    return nodes[0].weight;
  };
  EXPECT_EQ(next(2), 2'050U);      // reset
  EXPECT_EQ(next(2'013), 2'050U);  // ours, from before
  EXPECT_EQ(next(5), 5'050U);      // the site's new one
  EXPECT_EQ(next(2'102), 2'102'050U);
}

TEST(Weights, OurMarkSpeaksForUsWhenTheMemoryIsLost) {
  const Loads loads{{"n1", load(5'000)}};
  EXPECT_EQ(plan_weights({{"n1", 3'101, true, true}}, loads, {}, {BalanceMode::spread, kNowMono})
                .memory.bases.at("n1"),
            3U);
  EXPECT_EQ(plan_weights({{"n1", 3'101, true, false}}, loads, {}, {BalanceMode::spread, kNowMono})
                .memory.bases.at("n1"),
            3'101U);
  EXPECT_EQ(plan_weights({{"n1", 3, true, true}}, loads, {}, {BalanceMode::spread, kNowMono})
                .memory.bases.at("n1"),
            3U);
}

TEST(Weights, PatienceKeepsWhatWeSet) {
  const Memory memory{.bases = {{"n1", 1}, {"n2", 1}}, .steps = {}};
  const PlanInput input{BalanceMode::spread, kNowMono, true};
  EXPECT_EQ(plan_weights({{"n1", 1'020}, {"n2", 1}}, {}, memory, input).changes,
            (std::map<std::uint32_t, std::vector<std::string>>{{1101, {"n2"}}}));
}

TEST(Weights, SmallMovesDoNotCount) {
  EXPECT_EQ(utilisation_step(Compute(0), std::nullopt), 0U);
  EXPECT_EQ(utilisation_step(Compute(149), std::nullopt), 1U);
  EXPECT_EQ(utilisation_step(Compute(150), std::nullopt), 2U);
  EXPECT_EQ(utilisation_step(Compute(10'000), std::nullopt), 100U);
  EXPECT_EQ(utilisation_step(Compute(3'200), 30), 30U);
  EXPECT_EQ(utilisation_step(Compute(3'201), 30), 32U);
  EXPECT_EQ(utilisation_step(Compute(0), 2), 0U);  // idle is idle
  EXPECT_EQ(utilisation_step(Compute(-5), 2), 0U);
}

TEST(Weights, ModesHaveNames) {
  EXPECT_EQ(parse_balance_mode("pack").value(), BalanceMode::pack);
  EXPECT_EQ(parse_balance_mode("Spread").error().message,
            "mode 'Spread': write spread, pack or off");
}

RC_GTEST_PROP(WeightsProperty, NeverOverflowAndBasesComeFirst,
              (std::uint32_t a, std::uint32_t b, std::uint8_t level_a, std::uint8_t level_b)) {
  const auto x = make_weight(a, level_a);
  const auto y = make_weight(b, level_b);
  RC_ASSERT(x <= 4'294'967'293U && y <= 4'294'967'293U);
  const auto low = std::min(a, kMostBase);
  const auto high = std::min(b, kMostBase);
  if (low != high) RC_ASSERT((low < high) == (x < y));
}

// Nodes of a few base classes, some silent, through many rounds in which loads move, slurmctld
// forgets and we are killed and come back.
RC_GTEST_PROP(WeightsProperty, LeastLoadedIsPreferredThroughAnyHistory, ()) {
  const auto count = *rc::gen::inRange<std::size_t>(1, 9);
  std::vector<std::uint32_t> conf;
  std::vector<WeighedNode> nodes;
  for (std::size_t i = 0; i < count; ++i) {
    conf.push_back(*rc::gen::element<std::uint32_t>(1, 1, 1, 2, 50, 4'294'967'293U));
    nodes.push_back({fmt::format("n{}", i), conf.back()});
  }
  Loads loads;
  Memory memory;
  MonoTime now = kNowMono;
  for (auto rounds = *rc::gen::inRange(1, 12); rounds > 0; --rounds) {
    now += Millis(*rc::gen::inRange(0, 2'000));
    for (const auto& node : nodes) {
      switch (*rc::gen::inRange(0, 4)) {
        case 0:
          break;
        case 1:  // a little
          if (loads.contains(node.name)) {
            auto& known = loads[node.name];
            known = load(std::clamp<std::int64_t>(
                             known.utilisation.value() + *rc::gen::inRange(-250, 251), 0, 10'000),
                         now);
            break;
          }
          [[fallthrough]];
        default:
          loads[node.name] = load(*rc::gen::inRange<std::int64_t>(0, 10'001), now);
      }
    }
    if (*rc::gen::inRange(0, 5) == 0) {  // slurmctld restarts
      for (std::size_t i = 0; i < count; ++i) nodes[i].weight = conf[i];
    }
    if (*rc::gen::inRange(0, 5) == 0) memory.steps.clear();  // we restart; the bases are on disk

    const auto before = nodes;
    const auto plan = plan_weights(nodes, loads, memory, {BalanceMode::spread, now});
    carry_out(nodes, plan);
    memory = plan.memory;

    for (std::size_t i = 0; i < count; ++i) {
      RC_ASSERT(memory.bases.at(nodes[i].name) == conf[i]);  // never compounded
      for (std::size_t j = 0; j < count; ++j) {
        if (conf[i] < conf[j]) RC_ASSERT(nodes[i].weight < nodes[j].weight);
        if (conf[i] != conf[j]) continue;
        const auto fresh = [&](std::size_t n) {
          const auto found = loads.find(nodes[n].name);
          return found != loads.end() && now - found->second.heard <= kStaleAfter;
        };
        if (!fresh(i)) continue;
        if (!fresh(j)) {
          RC_ASSERT(nodes[i].weight < nodes[j].weight);
          continue;
        }
        const auto mine = loads[nodes[i].name].utilisation.value();
        const auto other = loads[nodes[j].name].utilisation.value();
        if (mine == 0) RC_ASSERT(nodes[i].weight <= nodes[j].weight);
        if (mine + 2 * kSlack < other) RC_ASSERT(nodes[i].weight < nodes[j].weight);
      }
    }
    // Only what differs is changed, and a second look changes nothing.
    for (const auto& [weight, names] : plan.changes) {
      for (const auto& name : names) {
        const auto was = std::ranges::find(before, name, &WeighedNode::name)->weight;
        RC_ASSERT(was != weight);
      }
    }
    const auto again = plan_weights(nodes, loads, memory, {BalanceMode::spread, now});
    RC_ASSERT(again.empty() && !again.bases_changed);
  }
}

}  // namespace
}  // namespace aliquot::slurm
