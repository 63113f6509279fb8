#include "core/placement.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>

#include "core/test_support.hpp"

namespace aliquot::core {
namespace {

using namespace test;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

std::unique_ptr<Policy> policy(std::string_view name) { return make_policy(name, {}).value(); }

std::vector<GpuIndex> candidates(const Cluster& cluster, const Request& request,
                                 NodeIndex node = 0) {
  Candidates fit;
  const bool fits = find_candidates(cluster, cluster.shape(request).value(), node, fit);
  return fits ? fit.gpus : std::vector<GpuIndex>{};
}

Lack lack(const Cluster& cluster, const Request& request, GpuIndex gpu = 0) {
  return explain_refusal(cluster, cluster.shape(request).value()).nodes.at(0).gpus.at(gpu).lack;
}

Ledger with_share(std::size_t count, Bytes memory, Compute compute) {
  Ledger ledger(cluster_of({node("n0", gpus(count))}));
  const Use use{0, CpuMilli(0), Bytes(0), {share_of(0, memory, compute)}};
  EXPECT_TRUE(ledger.grant(JobId(1), use).has_value());
  return ledger;
}

TEST(Candidates, SharesGoWhereThereIsRoomAndWholesWhereNobodyIs) {
  Ledger ledger = with_share(4, gib(20), Compute(7'500));
  const Cluster& cluster = ledger.cluster();
  ASSERT_TRUE(ledger.grant(JobId(2), {0, CpuMilli(0), Bytes(0), {whole_of(cluster.node(0), 1)}})
                  .has_value());
  EXPECT_THAT(candidates(cluster, share(gib(4), Compute(2'500))), ElementsAre(0, 2, 3));
  EXPECT_THAT(candidates(cluster, share(gib(5), Compute(2'500))), ElementsAre(2, 3));
  EXPECT_THAT(candidates(cluster, share(gib(4), Compute(2'501))), ElementsAre(2, 3));
  EXPECT_THAT(candidates(cluster, wholes(2)), ElementsAre(2, 3));
  EXPECT_THAT(candidates(cluster, wholes(3)), IsEmpty());
  EXPECT_THAT(candidates(cluster, share(gib(5), Compute(1), 3)), IsEmpty());
}

TEST(Candidates, ForeignProcessesArePlacedAround) {
  Cluster cluster = cluster_of({node("n0", gpus(2))});
  ASSERT_TRUE(cluster.observe(0, 0, {Compute(0), gib(20), MonoTime(0)}).has_value());
  EXPECT_THAT(candidates(cluster, share(gib(4), Compute(100))), ElementsAre(0, 1));
  EXPECT_THAT(candidates(cluster, share(gib(5), Compute(100))), ElementsAre(1));
  EXPECT_THAT(candidates(cluster, wholes(1)), ElementsAre(1));
  EXPECT_EQ(lack(cluster, share(gib(5), Compute(100))), Lack::foreign);
  EXPECT_EQ(lack(cluster, wholes(2)), Lack::foreign);
  // An old sample still names the processes.
  cluster.expire_samples(MonoTime(10'000), seconds(1));
  EXPECT_THAT(candidates(cluster, wholes(1)), ElementsAre(1));
  ASSERT_TRUE(cluster.observe(0, 0, {Compute(0), Bytes(0), MonoTime(20'000)}).has_value());
  EXPECT_THAT(candidates(cluster, wholes(1)), ElementsAre(0, 1));
}

TEST(Candidates, OnlyHealthyGpus) {
  Cluster cluster = cluster_of({node("n0", gpus(2))});
  ASSERT_TRUE(cluster.set_health(0, 0, Health::draining).has_value());
  EXPECT_THAT(candidates(cluster, wholes(1)), ElementsAre(1));
  EXPECT_THAT(candidates(cluster, share({}, Compute(1))), ElementsAre(1));
  EXPECT_EQ(lack(cluster, wholes(2)), Lack::unhealthy);
  ASSERT_TRUE(cluster.set_health(0, 0, Health::ok).has_value());
  EXPECT_THAT(candidates(cluster, wholes(2)), ElementsAre(0, 1));
}

TEST(Refusal, SaysWhatIsMissingAndWhetherTimeHelps) {
  Ledger ledger = with_share(2, gib(20), Compute(7'500));
  const Cluster& cluster = ledger.cluster();
  ASSERT_TRUE(ledger.grant(JobId(2), {0, CpuMilli(0), Bytes(0), {whole_of(cluster.node(0), 1)}})
                  .has_value());

  const auto refusal = explain_refusal(cluster, cluster.shape(share(gib(5), Compute(100))).value());
  ASSERT_EQ(refusal.nodes.size(), 1U);
  EXPECT_TRUE(refusal.curable);
  EXPECT_EQ(refusal.nodes[0].gpus_fitting, 0U);
  EXPECT_EQ(refusal.nodes[0].gpus[0].lack, Lack::memory);
  EXPECT_EQ(refusal.nodes[0].gpus[0].memory_missing, gib(1));
  EXPECT_EQ(refusal.nodes[0].gpus[1].lack, Lack::held_whole);
  EXPECT_EQ(lack(cluster, share(gib(1), Compute(5'000))), Lack::compute);
  EXPECT_EQ(lack(cluster, wholes(1)), Lack::shared);
  EXPECT_EQ(lack(cluster, share(gib(30), {})), Lack::too_small);
  EXPECT_FALSE(ever_fits(cluster, cluster.shape(share(gib(30), {})).value()));
  EXPECT_FALSE(ever_fits(cluster, cluster.shape(wholes(3)).value()));
  EXPECT_TRUE(ever_fits(cluster, cluster.shape(wholes(2)).value()));
  EXPECT_FALSE(ever_fits(cluster, cluster.shape(with_cpus(wholes(1), kOneCpu * 65)).value()));
}

TEST(Refusal, OfAnEmptyClusterIsFinal) {
  const Cluster cluster = cluster_of({});
  const Shape shape = cluster.shape(wholes(1)).value();
  EXPECT_FALSE(explain_refusal(cluster, shape).curable);
  EXPECT_EQ(place_by_scan(cluster, shape, *policy("aliquot")), std::nullopt);
}

TEST(Policies, AreListedWithTheDefaultFirst) {
  const auto all = policies();
  ASSERT_EQ(all.size(), 8U);
  EXPECT_EQ(all[0].name, "aliquot");
  for (const PolicyInfo& info : all) {
    EXPECT_EQ(policy(info.name)->name(), info.name);
    EXPECT_FALSE(info.summary.empty());
  }
  const auto none = make_policy("Best-Fit", {});
  ASSERT_FALSE(none.has_value());
  EXPECT_EQ(none.error().code, Error::Code::not_found);
  EXPECT_THAT(none.error().message, ::testing::HasSubstr("best-fit"));
}

TEST(Policies, GpulessJobsRunOnGpulessNodes) {
  const Cluster cluster = cluster_of({node("n0", {})});
  const Shape shape = cluster.shape(with_cpus({}, kOneCpu)).value();
  for (const PolicyInfo& info : policies()) {
    const auto placed = place_by_scan(cluster, shape, *policy(info.name));
    ASSERT_TRUE(placed.has_value()) << info.name;
    EXPECT_THAT(placed->gpus, IsEmpty());
  }
}

// The definitions once more, straight from the grants.
struct View {
  const Ledger& ledger;
  const Request& request;

  [[nodiscard]] const Node& host(NodeIndex node) const { return ledger.cluster().node(node); }
  [[nodiscard]] bool matches(const Gpu& gpu) const {
    if (request.gpus->models.empty()) return gpu.mig_profile.empty();
    return std::ranges::any_of(request.gpus->models, [&](const std::string& model) {
      return equals_ignoring_case(model, model_name(gpu));
    });
  }
  [[nodiscard]] std::optional<Portion> portion(NodeIndex node, GpuIndex gpu) const {
    return portion_on(request.gpus->what, host(node), host(node).gpus[gpu]);
  }
  [[nodiscard]] bool wants_whole() const {
    return std::holds_alternative<WholeGpu>(request.gpus->what);
  }
  [[nodiscard]] bool held_whole(NodeIndex node, GpuIndex gpu) const {
    return std::ranges::any_of(ledger.jobs_on(node, gpu), [&](JobId job) {
      return std::ranges::any_of(ledger.find(job)->gpus,
                                 [&](const GpuUse& use) { return use.gpu == gpu && use.whole; });
    });
  }
  [[nodiscard]] Portion left(NodeIndex node, GpuIndex gpu) const {
    Portion rest{host(node).gpus[gpu].memory, host(node).compute_limit};
    for (const JobId job : ledger.jobs_on(node, gpu)) {
      for (const GpuUse& use : ledger.find(job)->gpus) {
        if (use.gpu != gpu) continue;
        rest.memory -= use.portion.memory;
        rest.compute -= use.portion.compute;
      }
    }
    return rest;
  }
  [[nodiscard]] Bytes foreign(NodeIndex node, GpuIndex gpu) const {
    return ledger.cluster().gpus(node)[gpu].foreign_memory;
  }
  [[nodiscard]] CpuMilli cpus_left(NodeIndex node) const {
    CpuMilli rest = host(node).cpus;
    for (const JobId job : ledger.jobs()) {
      if (ledger.find(job)->node == node) rest -= ledger.find(job)->cpus;
    }
    return rest;
  }
  [[nodiscard]] Bytes memory_left(NodeIndex node) const {
    Bytes rest = host(node).memory;
    for (const JobId job : ledger.jobs()) {
      if (ledger.find(job)->node == node) rest -= ledger.find(job)->memory;
    }
    return rest;
  }

  [[nodiscard]] bool gpu_fits(NodeIndex node, GpuIndex gpu) const {
    const Gpu& device = host(node).gpus[gpu];
    const auto wanted = portion(node, gpu);
    if (!matches(device) || device.health != Health::ok || !wanted) return false;
    if (held_whole(node, gpu)) return false;
    if (wants_whole()) {
      return ledger.jobs_on(node, gpu).empty() && foreign(node, gpu) == Bytes(0);
    }
    const Portion rest = left(node, gpu);
    // A share of no memory goes onto a GPU that foreign processes fill.
    return wanted->compute <= rest.compute &&
           (wanted->memory == Bytes(0) || (foreign(node, gpu) <= rest.memory &&
                                           wanted->memory <= rest.memory - foreign(node, gpu)));
  }
  [[nodiscard]] std::vector<GpuIndex> fitting(NodeIndex node) const {
    std::vector<GpuIndex> all;
    for (GpuIndex gpu = 0; request.gpus && gpu < host(node).gpus.size(); ++gpu) {
      if (gpu_fits(node, gpu)) all.push_back(gpu);
    }
    return all;
  }
  [[nodiscard]] bool fits(NodeIndex node) const {
    if (request.cpus > cpus_left(node) || request.memory > memory_left(node)) return false;
    return !request.gpus || std::ssize(fitting(node)) >= request.gpus->count;
  }
};

// One lack, and whether what it says is so.
void check_lack(const View& view, NodeIndex node, const GpuLack& lack) {
  const Gpu& device = view.host(node).gpus[lack.gpu];
  const auto wanted = view.portion(node, lack.gpu);
  const Portion rest = view.left(node, lack.gpu);
  const Bytes foreign = view.foreign(node, lack.gpu);
  RC_ASSERT((lack.lack == Lack::nothing) == view.gpu_fits(node, lack.gpu));
  switch (lack.lack) {
    case Lack::nothing:
      break;
    case Lack::model:
      RC_ASSERT(!view.matches(device));
      break;
    case Lack::closed:
      RC_FAIL("all GPUs are open here");
      break;
    case Lack::unhealthy:
      RC_ASSERT(device.health != Health::ok);
      break;
    case Lack::too_small:
      RC_ASSERT(!wanted);
      break;
    case Lack::held_whole:
      RC_ASSERT(view.held_whole(node, lack.gpu));
      break;
    case Lack::shared:
      RC_ASSERT(view.wants_whole() && !view.ledger.jobs_on(node, lack.gpu).empty());
      break;
    case Lack::memory:
      RC_ASSERT(lack.memory_missing > Bytes(0));
      RC_ASSERT(lack.memory_missing == wanted->memory - rest.memory);
      break;
    case Lack::compute:
      RC_ASSERT(lack.compute_missing > Compute(0));
      RC_ASSERT(lack.compute_missing == wanted->compute - rest.compute);
      break;
    case Lack::foreign:
      RC_ASSERT(foreign > Bytes(0));
      RC_ASSERT(view.wants_whole() || lack.memory_missing > Bytes(0));
      break;
  }
}

void check_refusal(const View& view, const Shape& shape) {
  const Cluster& cluster = view.ledger.cluster();
  std::vector<Node> healthy;
  for (NodeIndex n = 0; n < cluster.size(); ++n) {
    healthy.push_back(cluster.node(n));
    for (Gpu& gpu : healthy.back().gpus) gpu.health = Health::ok;
  }
  const Ledger empty(cluster_of(healthy));
  const View at_best{empty, view.request};
  const Refusal refusal = explain_refusal(cluster, shape);
  RC_ASSERT(refusal.nodes.size() == cluster.size());
  bool ever = false;
  for (NodeIndex n = 0; n < cluster.size(); ++n) {
    const NodeRefusal& said = refusal.nodes[n];
    RC_ASSERT(said.node == n);
    RC_ASSERT(said.curable == at_best.fits(n));
    ever = ever || said.curable;
    RC_ASSERT(said.cpus_missing == std::max(CpuMilli(0), view.request.cpus - view.cpus_left(n)));
    RC_ASSERT(said.memory_missing == std::max(Bytes(0), view.request.memory - view.memory_left(n)));
    RC_ASSERT(said.gpus_fitting == view.fitting(n).size());
    RC_ASSERT(said.gpus.size() == (view.request.gpus ? cluster.gpus(n).size() : 0));
    for (const GpuLack& lack : said.gpus) check_lack(view, n, lack);
  }
  RC_ASSERT(refusal.curable == ever);
  RC_ASSERT(ever_fits(cluster, shape) == ever);
}

RC_GTEST_PROP(PlacementProperty, FollowsTheDefinitionOverAnyHistory, ()) {
  // Not aliquot: it prices the cluster anew each time it grows, and is tried in index_test.cpp.
  const auto chosen =
      policy(*rc::gen::element<std::string>("least-occupied", "least-utilised", "best-fit",
                                            "dot-product", "gpu-packing", "gpu-clustering", "fgd"));
  World world;
  for (const Step& step : *histories(60)) {
    Dice dice(step);
    if (world.ledger.cluster().size() == 0) world.settle(dice);
    const Request request = some_request(dice);
    world.happen(dice);
    const Cluster& cluster = world.ledger.cluster();
    const auto shape = cluster.shape(request);
    if (!shape) continue;  // a model nobody has

    const View view{world.ledger, request};
    bool any = false;
    for (NodeIndex n = 0; n < cluster.size(); ++n) {
      Candidates fit;
      const bool fits = find_candidates(cluster, *shape, n, fit);
      RC_ASSERT(fits == view.fits(n));
      if (fits) RC_ASSERT(fit.gpus == view.fitting(n));
      any = any || fits;
    }
    const auto placed = place_by_scan(cluster, *shape, *chosen);
    RC_ASSERT(placed.has_value() == any);
    check_refusal(view, *shape);
    if (!placed) continue;
    RC_ASSERT(view.fits(placed->node));
    RC_ASSERT(placed->gpus.size() == shape->count);
    for (const GpuUse& use : placed->gpus) RC_ASSERT(view.gpu_fits(placed->node, use.gpu));
    RC_ASSERT(world.ledger.grant(JobId(world.next_job++), *placed).has_value());
  }
}

// A GPU that a job may not have is for that job as one that is out of service.
RC_GTEST_PROP(PlacementProperty, ClosedGpusAreAsGoodAsGone, ()) {
  World world;
  for (const Step& step : *histories(30)) {
    Dice dice(step);
    if (world.ledger.cluster().size() == 0) world.settle(dice);
    const Request request = some_request(dice);
    world.happen(dice);
    const Cluster& cluster = world.ledger.cluster();
    auto shape = cluster.shape(request);
    if (!shape) continue;
    shape->devices = dice(32);
    Cluster less = cluster;
    for (NodeIndex node = 0; node < less.size(); ++node) {
      for (GpuIndex gpu = 0; gpu < less.gpus(node).size(); ++gpu) {
        if (((shape->devices >> gpu) & 1U) != 0) continue;
        RC_ASSERT(less.set_health(node, gpu, Health::draining).has_value());
      }
    }
    Shape anywhere = *shape;
    anywhere.devices = ~std::uint64_t{0};
    for (NodeIndex node = 0; node < cluster.size(); ++node) {
      Candidates fit;
      Candidates of_less;
      const bool fits = find_candidates(cluster, *shape, node, fit);
      RC_ASSERT(fits == find_candidates(less, anywhere, node, of_less));
      if (fits) RC_ASSERT(fit.gpus == of_less.gpus);
      const Refusal refusal = explain_refusal(cluster, *shape);
      for (const GpuLack& lack : refusal.nodes[node].gpus) {
        const bool open = ((shape->devices >> lack.gpu) & 1U) != 0;
        RC_ASSERT(open || lack.lack == Lack::closed || lack.lack == Lack::model ||
                  lack.lack == Lack::too_small);
        RC_ASSERT(!open || lack.lack != Lack::closed);
      }
    }
  }
}

}  // namespace
}  // namespace aliquot::core
