#include "sim/synthetic.hpp"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <set>

namespace aliquot::sim {
namespace {

TEST(Synthetic, LooksLikeASharedCluster) {
  const auto trace = generate_trace({}).value();
  std::int64_t gpus = 0;
  std::int64_t cpus = 0;
  std::set<std::string> models;
  for (const auto& node : trace.nodes) {
    gpus += node.gpus;
    cpus += node.cpus / kOneCpu;
    models.insert(node.model);
  }
  EXPECT_EQ(trace.nodes.size(), 1200U);
  EXPECT_NEAR(static_cast<double>(gpus), 6000, 600);
  EXPECT_GT(cpus / gpus, 10);
  EXPECT_GE(models.size(), 5U);
}

TEST(Synthetic, FollowsItsKnobs) {
  SyntheticKnobs knobs;
  knobs.pods = 20'000;
  knobs.share = 300;
  knobs.multi = 100;
  knobs.cpu_only = 200;
  knobs.spec = 250;
  const auto trace = generate_trace(knobs).value();
  double share = 0;
  double multi = 0;
  double cpu_only = 0;
  double spec = 0;
  for (const auto& pod : trace.pods) {
    share += pod.gpus == 1 && pod.gpu_milli < kMilliPerGpu ? 1 : 0;
    multi += pod.gpus > 1 ? 1 : 0;
    cpu_only += pod.gpus == 0 ? 1 : 0;
    spec += pod.models.empty() ? 0 : 1;
  }
  EXPECT_NEAR(share / 20'000, 0.3, 0.015);
  EXPECT_NEAR(multi / 20'000, 0.1, 0.015);
  EXPECT_NEAR(cpu_only / 20'000, 0.2, 0.015);
  EXPECT_NEAR(spec / 16'000, 0.25, 0.015);
}

TEST(Synthetic, NodesAndPodsAreDrawnApart) {
  SyntheticKnobs more;
  more.nodes = 2000;
  const auto a = generate_trace({}).value();
  const auto b = generate_trace(more).value();
  EXPECT_EQ(a.pods, b.pods);
  EXPECT_TRUE(std::equal(a.nodes.begin(), a.nodes.end(), b.nodes.begin()));
}

TEST(Synthetic, RefusesImpossibleKnobs) {
  EXPECT_FALSE(generate_trace({.nodes = 0}).has_value());
  EXPECT_FALSE(generate_trace({.pods = -1}).has_value());
  EXPECT_FALSE(generate_trace({.share = 600, .multi = 500}).has_value());
  EXPECT_FALSE(generate_trace({.spec = 1001}).has_value());
}

// Every pod would run on some kind of node, and the parsers read what was drawn.
RC_GTEST_PROP(Synthetic, IsARightTrace, (std::uint64_t seed)) {
  const auto trace = generate_trace({.seed = seed, .nodes = 50, .pods = 100, .spec = 500}).value();
  RC_ASSERT(parse_nodes(format_nodes(trace.nodes), "f").value() == trace.nodes);
  RC_ASSERT(parse_pods(format_pods(trace.pods), "f").value() == trace.pods);
}

}  // namespace
}  // namespace aliquot::sim
