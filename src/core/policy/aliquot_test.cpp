// The default policy and its prices: what any sane table of prices has, whatever the cluster.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <ostream>
#include <random>

#include "core/index.hpp"
#include "core/policy/prices.hpp"
#include "core/test_support.hpp"

namespace aliquot::core {
namespace {

using namespace test;

constexpr CpuMilli kCpusPerGpu = kOneCpu * 8;

struct Setting {
  std::string name;
  std::vector<Node> nodes;
  Profile profile;
  std::vector<Request> requests = {share({}, Compute(2'500)), wholes(1)};
};

void PrintTo(const Setting& setting, std::ostream* out) { *out << setting.name; }

Node over_committed(Node node, Compute limit) {
  node.compute_limit = limit;
  return node;
}

std::vector<Setting> settings() {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const double infinity = std::numeric_limits<double>::infinity();
  std::vector<Setting> all;
  all.push_back({"no_profile", {node("n0", gpus(4)), node("n1", gpus(2))}, {}});
  all.push_back({"unknown_models", {node("n0", gpus(4))}, {{wholes(1, {"unknown"}), 1}}});
  all.push_back({"useless_weights",
                 {node("n0", gpus(4))},
                 {{wholes(1), 0}, {wholes(2), -1}, {wholes(1), nan}, {wholes(4), infinity}}});
  all.push_back({"one_good_weight", {node("n0", gpus(4))}, {{wholes(1), nan}, {wholes(2), 1}}});
  all.push_back({"gpuless_profile", {node("n0", gpus(4))}, {{with_cpus({}, kOneCpu), 1}}});
  all.push_back({"gpuless_nodes",
                 {node("n0", {}), node("n1", gpus(2)), node("n2", {})},
                 generic_profile(),
                 {with_cpus({}, kOneCpu), wholes(1)}});
  all.push_back({"mixed_node",
                 {node("n0", {gpu("GPU-0", gib(24), "a10"), gpu("GPU-1", gib(80), "h100"),
                              gpu("GPU-2", gib(11), "v100"), gpu("GPU-3", gib(80), "h100")})},
                 generic_profile(),
                 {share(gib(20), {}), wholes(1, {"h100"}), share({}, Compute(100), 3)}});
  all.push_back({"limits",
                 {node("n0", gpus(2)), over_committed(node("n1", gpus(2)), Compute(11'300)),
                  over_committed(node("n2", gpus(2)), 3 * kWholeGpu)},
                 generic_profile()});
  all.push_back({"huge_limit",
                 {node("n0", gpus(2)), over_committed(node("n1", gpus(2)), 10 * kWholeGpu)},
                 generic_profile(),
                 {share(Bytes(0), Compute(9'000)), share(Bytes(0), Compute(2'500)), wholes(1)}});
  all.push_back({"no_memory", {node("n0", gpus(3, Bytes(0)))}, generic_profile()});
  all.push_back({"no_cpus", {node("n0", gpus(3), CpuMilli(0))}, generic_profile()});
  all.push_back({"huge_shares",
                 {node("n0", gpus(3))},
                 {{share({}, Compute(9'999)), 1}, {share(gib(24), Compute(1)), 1}},
                 {share({}, Compute(9'999)), share(gib(24), Compute(1)), share({}, Compute(1))}});
  all.push_back({"several_shares",
                 {node("n0", gpus(4)), node("n1", gpus(2))},
                 {{share({}, Compute(3'000), 3), 1}, {share({}, Compute(4'000), 2), 2}},
                 {share({}, Compute(3'000), 3), share({}, Compute(4'000), 2)}});
  all.push_back({"large_node",
                 {node("n0", gpus(kMaxGpusPerNode), kOneCpu * 512)},
                 {{wholes(40), 1}, {wholes(8), 3}, {wholes(1), 5}, {share({}, Compute(5'000)), 9}},
                 {wholes(40), wholes(8), share({}, Compute(5'000)), wholes(1)}});
  Profile crowd;
  for (int i = 0; i < 1'500; ++i) crowd.push_back({share({}, Compute(1 + i % 100)), 1});
  all.push_back({"many_tiny_kinds", {node("n0", gpus(2))}, crowd, {share({}, Compute(900))}});
  auto sick = gpus(2);
  for (Gpu& gpu : sick) gpu.health = Health::lost;
  all.push_back({"all_ill", {node("n0", sick)}, generic_profile(), {with_cpus({}, kOneCpu)}});
  return all;
}

class Settings : public ::testing::TestWithParam<Setting> {};
INSTANTIATE_TEST_SUITE_P(Aliquot, Settings, ::testing::ValuesIn(settings()),
                         [](const auto& test) { return test.param.name; });

TEST_P(Settings, PlacesUntilNothingFits) {
  const Setting& setting = GetParam();
  Ledger ledger(cluster_of(setting.nodes));
  const auto policy = make_policy("aliquot", setting.profile).value();
  Index index(ledger.cluster(), *policy);
  std::int64_t job = 0;
  for (const Request& request : setting.requests) {
    const Shape shape = ledger.cluster().shape(request).value();
    for (int times = 0; times < 40; ++times) {
      const auto placed = index.place(shape);
      bool any = false;
      for (NodeIndex n = 0; n < ledger.cluster().size(); ++n) {
        Candidates fit;
        if (!find_candidates(ledger.cluster(), shape, n, fit)) continue;
        any = true;
        const double score = policy->score(ledger.cluster(), shape, fit);
        ASSERT_TRUE(std::isfinite(score));
        ASSERT_EQ(score, policy->score(ledger.cluster(), shape, fit));
        const auto gpus = policy->choose(ledger.cluster(), shape, fit);
        ASSERT_EQ(gpus.size(), shape.count);
      }
      ASSERT_EQ(placed.has_value(), any);
      if (!placed) break;
      ASSERT_TRUE(ledger.grant(JobId(job++), *placed).has_value());
    }
  }
}

TEST_P(Settings, PricesAreSane) {
  const Setting& setting = GetParam();
  const Cluster cluster = cluster_of(setting.nodes);
  Prices prices;
  prices.start(cluster, setting.profile);
  const auto check = [&] {
    for (NodeIndex n = 0; n < cluster.size(); ++n) {
      const Compute limit = cluster.node(n).compute_limit;
      for (GpuIndex g = 0; g < cluster.gpus(n).size(); ++g) {
        const auto model = cluster.gpus(n)[g].model;
        // Less left is never worth more; nothing left is worth nothing.
        Prices::Lanes below = prices.worth(model, prices.empty_row());
        EXPECT_THAT(below, ::testing::Each(0.0F));
        const std::int64_t steps = limit.value() / 100;
        for (std::int64_t level = 0; level <= steps; ++level) {
          const Portion taken{Bytes(0), limit - Compute(100 * level)};
          const auto row = prices.row_after(cluster, n, g, taken);
          const Prices::Lanes& worth = prices.worth(model, row);
          for (std::size_t lane = 0; lane < Prices::kLanes; ++lane) {
            ASSERT_TRUE(std::isfinite(worth[lane])) << level;
            ASSERT_GE(worth[lane], below[lane]) << level;
          }
          below = worth;
        }
        // Nobody on it: at least what the same rest is worth on a shared GPU.
        if (cluster.gpus(n)[g].free()) {
          const Prices::Lanes& free = prices.worth(model, prices.row_of(cluster, n, g));
          for (std::size_t lane = 0; lane < Prices::kLanes; ++lane) {
            ASSERT_GE(free[lane], below[lane]);
          }
        }
        for (std::uint32_t free = 0; free <= kMaxGpusPerNode; ++free) {
          for (const float more : prices.together(model, free)) {
            ASSERT_TRUE(std::isfinite(more));
            ASSERT_GE(more, 0.0F);
          }
        }
      }
    }
    // CPUs are never a burden.
    float before = prices.node_worth({}, CpuMilli(0));
    for (std::int64_t cpus = 1; cpus < 1'000'000; cpus *= 3) {
      const float now = prices.node_worth({}, CpuMilli(cpus));
      ASSERT_GE(now, before);
      before = now;
    }
  };
  check();
  prices.update(cluster);
  check();
}

TEST(Aliquot, IsDeterministic) {
  Ledger ledger(cluster_of({node("n0", gpus(4)), node("n1", gpus(4)), node("n2", gpus(2))}));
  const auto one = make_policy("aliquot", generic_profile()).value();
  const auto two = make_policy("aliquot", generic_profile()).value();
  std::mt19937_64 random(7);
  for (std::int64_t job = 0; job < 40; ++job) {
    const Request request =
        random() % 3 == 0 ? wholes(1 + static_cast<std::int64_t>(random() % 2))
                          : share({}, Compute(500 + 500 * static_cast<std::int64_t>(random() % 8)));
    const Shape shape = ledger.cluster().shape(request).value();
    const auto placed = place_by_scan(ledger.cluster(), shape, *one);
    ASSERT_EQ(placed, place_by_scan(ledger.cluster(), shape, *two));
    if (placed) {
      ASSERT_TRUE(ledger.grant(JobId(job), *placed).has_value());
    }
  }
}

TEST(Aliquot, PricesGpusThatComeLater) {
  Cluster cluster = cluster_of({node("n0", gpus(1)), node("n1", gpus(1))});
  const auto old = make_policy("aliquot", generic_profile()).value();
  old->prepare(cluster);
  for (int i = 1; i < 8; ++i) {
    ASSERT_TRUE(cluster.add_gpu(0, gpu(fmt::format("GPU-{}", i))).has_value());
  }
  const auto fresh = make_policy("aliquot", generic_profile()).value();
  EXPECT_TRUE(old->prepare(cluster));
  fresh->prepare(cluster);
  const Shape shape = cluster.shape(wholes(1)).value();
  Candidates fit;
  ASSERT_TRUE(find_candidates(cluster, shape, 0, fit));
  EXPECT_EQ(old->score(cluster, shape, fit), fresh->score(cluster, shape, fit));
}

TEST(Aliquot, KeepsFreeGpusTogetherForLargeJobs) {
  Ledger ledger(cluster_of({node("n0", gpus(8)), node("n1", gpus(8))}));
  const Use one{1, CpuMilli(0), Bytes(0), {whole_of(ledger.cluster().node(1), 0)}};
  ASSERT_TRUE(ledger.grant(JobId(1), one).has_value());
  const auto policy =
      make_policy("aliquot", {{wholes(1), 5}, {wholes(8), 3}, {share({}, Compute(5'000)), 3}})
          .value();
  const Shape single = ledger.cluster().shape(wholes(1)).value();
  EXPECT_EQ(place_by_scan(ledger.cluster(), single, *policy)->node, 1U);
}

TEST(Aliquot, LeavesScarceModelsToThoseWhoNeedThem) {
  const Cluster cluster = cluster_of(
      {node("n0", {gpu("GPU-0", gib(24), "rare")}), node("n1", gpus(4, gib(24), "plenty"))});
  const auto policy = make_policy("aliquot", {{wholes(1), 5}, {wholes(1, {"rare"}), 5}}).value();
  const Shape anywhere = cluster.shape(wholes(1)).value();
  EXPECT_EQ(place_by_scan(cluster, anywhere, *policy)->node, 1U);
}

// What one policy gets onto a cluster of 30 nodes when 130 % of it are asked for.
Compute fill(std::string_view name, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<Node> nodes;
  for (int i = 0; i < 30; ++i) {
    const std::size_t count = random() % 2 == 0 ? 4 : 8;
    const std::string model = random() % 3 == 0 ? "h100" : "a10";
    nodes.push_back(node(fmt::format("n{}", i), gpus(count, gib(40), model),
                         kCpusPerGpu * static_cast<std::int64_t>(count)));
  }
  Profile profile;
  for (int i = 0; i < 12; ++i) {
    const CpuMilli cpus = kOneCpu * static_cast<std::int64_t>(1 + random() % 6);
    Request request =
        random() % 3 == 0
            ? wholes(std::int64_t{1} << (random() % 4))
            : share(Bytes(0), Compute(500 + 100 * static_cast<std::int64_t>(random() % 90)));
    if (random() % 4 == 0) request.gpus->models = {"h100"};
    profile.push_back({with_cpus(request, cpus), static_cast<double>(1 + random() % 9)});
  }
  Ledger ledger(cluster_of(nodes));
  const auto policy = make_policy(name, profile).value();
  Index index(ledger.cluster(), *policy);
  std::uint64_t weights = 0;
  for (const ProfileEntry& entry : profile) weights += static_cast<std::uint64_t>(entry.weight);
  Compute asked;
  for (std::int64_t job = 0; 100 * asked < 130 * ledger.cluster().compute_total(); ++job) {
    std::uint64_t at = random() % weights;
    std::size_t kind = 0;
    while (at >= static_cast<std::uint64_t>(profile[kind].weight)) {
      at -= static_cast<std::uint64_t>(profile[kind++].weight);
    }
    const Shape shape = ledger.cluster().shape(profile[kind].request).value();
    const auto* amounts = std::get_if<Amounts>(&shape.what);
    asked += (amounts != nullptr ? *amounts->compute : kWholeGpu) * shape.count;
    const auto placed = index.place(shape);
    if (placed) {
      EXPECT_TRUE(ledger.grant(JobId(job), *placed).has_value());
    }
  }
  return ledger.cluster().compute_total() - ledger.cluster().compute_free();
}

TEST(Aliquot, PlacesAtLeastAsMuchAsBestFit) {
  Compute ours;
  Compute theirs;
  for (const std::uint64_t seed : {1U, 2U, 3U, 4U}) {
    ours += fill("aliquot", seed);
    theirs += fill("best-fit", seed);
  }
  // Within half a percent over all seeds together.
  EXPECT_GE(1'000 * ours, 995 * theirs) << ours.value() << " against " << theirs.value();
}

}  // namespace
}  // namespace aliquot::core
