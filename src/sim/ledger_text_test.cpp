#include "sim/ledger_text.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>

#include "core/test_support.hpp"

namespace aliquot::sim {
namespace {

using namespace core;
using namespace core::test;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

Use on(NodeIndex node, std::vector<GpuUse> gpus) {
  return {node, kOneCpu, gib(1), std::move(gpus)};
}

TEST(LedgerText, WritesOneLineAGrant) {
  Ledger ledger(cluster_of({node("n0", gpus(2)), node("n1", gpus(1))}));
  ASSERT_TRUE(ledger.grant(JobId(12), on(1, {whole_of(ledger.cluster().node(1), 0)})).has_value());
  ASSERT_TRUE(ledger
                  .grant(JobId(7), on(0, {share_of(0, Bytes(5), Compute(6)),
                                          share_of(1, Bytes(7), Compute(8))}))
                  .has_value());
  EXPECT_EQ(format_ledger(ledger),
            "job 7 node n0 cpus 1000 memory 1073741824 share GPU-0 5 6 share GPU-1 7 8\n"
            "job 12 node n1 cpus 1000 memory 1073741824 whole GPU-0\n");
}

TEST(LedgerText, RestoresWhereNodesAndGpusChangedPlaces) {
  const std::string text =
      "job 7 node n0 cpus 1000 memory 1 share GPU-0 5 6 share GPU-1 7 8\n"
      "job 12 node n1 cpus 0 memory 0 whole GPU-0\n";
  auto turned = gpus(2);
  std::ranges::reverse(turned);
  const auto ledger =
      parse_ledger(cluster_of({node("n1", gpus(1)), node("new", {}), node("n0", turned)}), text);
  ASSERT_TRUE(ledger.has_value()) << ledger.error().message;
  EXPECT_EQ(ledger->find(JobId(7))->node, 2U);
  EXPECT_THAT(ledger->find(JobId(7))->gpus,
              ElementsAre(share_of(0, Bytes(7), Compute(8)), share_of(1, Bytes(5), Compute(6))));
  EXPECT_TRUE(ledger->cluster().gpus(0)[0].whole);
}

TEST(LedgerText, RestoresJobsOnGpusThatAreUnwell) {
  auto sick = gpus(1);
  sick[0].health = Health::lost;
  const auto ledger =
      parse_ledger(cluster_of({node("n0", sick)}), "job 1 node n0 cpus 0 memory 0 share GPU-0 5 6");
  ASSERT_TRUE(ledger.has_value()) << ledger.error().message;
  EXPECT_EQ(ledger->cluster().compute_free(), Compute(0));
}

TEST(LedgerText, RefusesGarbageInOneLine) {
  const std::string good = "job 1 node n0 cpus 0 memory 0 share GPU-0 5 6";
  const std::vector<std::string> garbage = {
      "x",
      "job",
      "job 1",
      "job 1 node",
      "job 1 node n0",
      "job 1 node n0 cpus 0 memory",
      "job x node n0 cpus 0 memory 0",
      "job -1 node n0 cpus 0 memory 0",
      "job 99999999999999999999 node n0 cpus 0 memory 0",
      "job 1 node n9 cpus 0 memory 0",
      "job 1 node n0 cpus -1 memory 0",
      "job 1 node n0 cpus 64001 memory 0",
      "job 1 node n0 cpus 0 memory 9223372036854775807",
      "job 1 node n0 cpus 0 memory 0 whole",
      "job 1 node n0 cpus 0 memory 0 whole GPU-9",
      "job 1 node n0 cpus 0 memory 0 whole GPU-0 whole GPU-0",
      "job 1 node n0 cpus 0 memory 0 whole GPU-0 share GPU-0 1 1",
      "job 1 node n0 cpus 0 memory 0 half GPU-0",
      "job 1 node n0 cpus 0 memory 0 share GPU-0",
      "job 1 node n0 cpus 0 memory 0 share GPU-0 5",
      "job 1 node n0 cpus 0 memory 0 share GPU-0 5 10001",
      "job 1 node n0 cpus 0 memory 0 share GPU-0 9223372036854775807 1",
      good + " ",
      " " + good,
      good + "\r",
      good + "\n" + good,
      good + "\njob 2 node n0 cpus 0 memory 0 whole GPU-0",
      std::string("job 1\0", 6),
  };
  for (const std::string& text : garbage) {
    const auto ledger = parse_ledger(cluster_of({node("n0", gpus(2))}), text);
    ASSERT_FALSE(ledger.has_value()) << text;
    EXPECT_EQ(ledger.error().message.find('\n'), std::string::npos) << text;
  }
  EXPECT_TRUE(parse_ledger(cluster_of({node("n0", gpus(2))}), good + "\n\n").has_value());
  EXPECT_EQ(parse_ledger(cluster_of({node("n0", gpus(2))}), "")->size(), 0U);
}

TEST(LedgerText, SaysWhichLineCannotBeRestored) {
  const auto ledger = parse_ledger(cluster_of({node("n0", gpus(1))}),
                                   "job 1 node n0 cpus 0 memory 0 whole GPU-0\n"
                                   "job 2 node n0 cpus 0 memory 0 whole GPU-0\n");
  ASSERT_FALSE(ledger.has_value());
  EXPECT_THAT(ledger.error().message, HasSubstr("line 2"));
}

// A ledger with a history: jobs that came and went, GPUs that fell ill.
Ledger some_ledger(int longest) {
  World world;
  const auto policy = make_policy("least-occupied", {}).value();
  for (const Step& step : *histories(longest)) {
    Dice dice(step);
    const Cluster& cluster = world.ledger.cluster();
    if (cluster.size() == 0) world.settle(dice);
    if (const auto shape = cluster.shape(some_request(dice))) {
      if (auto place = place_by_scan(cluster, *shape, *policy)) {
        RC_ASSERT(world.ledger.grant(JobId(world.next_job++), std::move(*place)).has_value());
      }
    }
    world.happen(dice);
  }
  return std::move(world.ledger);
}

// The same cluster with nobody on it.
Cluster emptied(Ledger ledger) {
  for (const JobId job : ledger.jobs()) RC_ASSERT(ledger.release(job).has_value());
  return ledger.cluster();
}

RC_GTEST_PROP(LedgerTextProperty, WhatIsWrittenReadsBack, ()) {
  const Ledger ledger = some_ledger(60);
  const std::string text = format_ledger(ledger);
  const auto same = parse_ledger(emptied(ledger), text);
  RC_ASSERT(same.has_value());
  RC_ASSERT(picture(*same) == picture(ledger));

  // Nodes and GPUs in another order, and then in the first one again.
  std::vector<Node> turned;
  for (NodeIndex node = 0; node < ledger.cluster().size(); ++node) {
    turned.push_back(ledger.cluster().node(node));
    std::ranges::reverse(turned.back().gpus);
  }
  std::ranges::reverse(turned);
  const auto moved = parse_ledger(cluster_of(turned), text);
  RC_ASSERT(moved.has_value());
  RC_ASSERT(moved->cluster().compute_free() == ledger.cluster().compute_free());
  const auto back = parse_ledger(emptied(ledger), format_ledger(*moved));
  RC_ASSERT(back.has_value());
  RC_ASSERT(picture(*back) == picture(ledger));
}

// Whatever is read back obeys the same rules as what was granted.
void check_restored(const Cluster& empty, const std::string& text) {
  const auto ledger = parse_ledger(empty, text);
  if (!ledger) {
    RC_ASSERT(!ledger.error().message.empty());
    RC_ASSERT(ledger.error().message.find('\n') == std::string::npos);
    return;
  }
  for (NodeIndex node = 0; node < empty.size(); ++node) {
    for (const GpuState& gpu : ledger->cluster().gpus(node)) {
      RC_ASSERT(gpu.memory_free >= Bytes(0) && gpu.compute_free >= Compute(0));
      RC_ASSERT(!gpu.whole || gpu.jobs == 1);
    }
  }
  RC_ASSERT(picture(emptied(*ledger)) == picture(empty));
  const auto again = parse_ledger(empty, format_ledger(*ledger));
  RC_ASSERT(again.has_value());
  RC_ASSERT(picture(*again) == picture(*ledger));
}

RC_GTEST_PROP(LedgerTextProperty, DamagedTextIsRefusedOrObeysTheRules, ()) {
  const Ledger ledger = some_ledger(40);
  std::string text = format_ledger(ledger);
  for (const Step& step : *histories(6)) {
    Dice dice(step);
    if (text.empty()) text = "job 1 node n0 cpus 0 memory 0 share GPU-0 5 6\n";
    const std::size_t at = dice(text.size());
    const std::size_t length = dice(20);
    switch (dice(5)) {
      case 0:
        text[at] = static_cast<char>(dice(256));
        break;
      case 1:
        text.erase(at, length);
        break;
      case 2:
        text.insert(at, text.substr(dice(text.size()), length));
        break;
      case 3:
        text[at] = dice.one_of<char>({'0', '9', ' ', '\n', '-'});
        break;
      default:
        text += text.substr(0, text.find('\n') + 1);
        break;
    }
  }
  check_restored(emptied(ledger), text);
}

RC_GTEST_PROP(LedgerTextProperty, AnyTextIsRefusedOrObeysTheRules, (const std::string& text)) {
  check_restored(cluster_of({node("n0", gpus(2)), node("n1", {})}), text);
}

}  // namespace
}  // namespace aliquot::sim
