#include "core/cluster.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <limits>
#include <set>

#include "core/test_support.hpp"

namespace aliquot::core {
namespace {

using namespace test;
using ::testing::HasSubstr;

constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();

std::set<NodeIndex> changes(const Cluster& cluster, std::uint64_t since) {
  std::set<NodeIndex> seen;
  if (!cluster.visit_changes(since, [&](NodeIndex node) { seen.insert(node); })) {
    for (NodeIndex node = 0; node < cluster.size(); ++node) seen.insert(node);
  }
  return seen;
}

TEST(Portion, FollowsInProportion) {
  const Node host = node("n", {gpu("GPU-0", gib(80))});
  const Gpu& device = host.gpus[0];
  EXPECT_EQ(portion_on(WholeGpu{}, host, device), (Portion{gib(80), kWholeGpu}));
  EXPECT_EQ(portion_on(Amounts{gib(8), {}}, host, device), (Portion{gib(8), Compute(1'000)}));
  EXPECT_EQ(portion_on(Amounts{{}, Compute(2'500)}, host, device),
            (Portion{gib(20), Compute(2'500)}));
  EXPECT_EQ(portion_on(Amounts{gib(8), Compute(5'000)}, host, device),
            (Portion{gib(8), Compute(5'000)}));
  EXPECT_EQ(portion_on(Amounts{Bytes(0), Compute(0)}, host, device),
            (Portion{Bytes(0), Compute(0)}));
  EXPECT_EQ(portion_on(Tickets{Tickets::Kind::mps, 25}, host, device),
            (Portion{gib(20), Compute(2'500)}));
  EXPECT_EQ(portion_on(Tickets{Tickets::Kind::shard, 2}, host, device),
            (Portion{gib(20), Compute(2'500)}));
  // A single byte still gets to run.
  EXPECT_EQ(portion_on(Amounts{Bytes(1), {}}, host, device), (Portion{Bytes(1), Compute(1)}));
}

TEST(Portion, MoreThanTheWholeIsNone) {
  Node host = node("n", {gpu("GPU-0", gib(80))});
  const Gpu& device = host.gpus[0];
  EXPECT_EQ(portion_on(Amounts{gib(81), {}}, host, device), std::nullopt);
  EXPECT_EQ(portion_on(Amounts{Bytes(kMost), {}}, host, device), std::nullopt);
  EXPECT_EQ(portion_on(Amounts{{}, Compute(10'001)}, host, device), std::nullopt);
  EXPECT_EQ(portion_on(Amounts{{}, Compute(kMost)}, host, device), std::nullopt);
  EXPECT_EQ(portion_on(Tickets{Tickets::Kind::mps, 101}, host, device), std::nullopt);
  EXPECT_EQ(portion_on(Tickets{Tickets::Kind::shard, kMost}, host, device), std::nullopt);
  // Over-commit lets more jobs on a GPU; it makes no job larger.
  host.compute_limit = 2 * kWholeGpu;
  EXPECT_EQ(portion_on(Amounts{{}, Compute(10'001)}, host, device), std::nullopt);
  EXPECT_EQ(portion_on(WholeGpu{}, host, device), (Portion{gib(80), 2 * kWholeGpu}));
}

TEST(Portion, OfAGpuWithoutMemory) {
  const Node host = node("n", {gpu("GPU-0", Bytes(0))});
  const Gpu& device = host.gpus[0];
  EXPECT_EQ(portion_on(Amounts{Bytes(1), {}}, host, device), std::nullopt);
  EXPECT_EQ(portion_on(Amounts{{}, Compute(2'500)}, host, device),
            (Portion{Bytes(0), Compute(2'500)}));
  EXPECT_EQ(portion_on(Tickets{Tickets::Kind::mps, 50}, host, device),
            (Portion{Bytes(0), Compute(5'000)}));
}

RC_GTEST_PROP(PortionProperty, IsNeverNegativeAndNeverMoreThanTheGpu, ()) {
  const auto amount = rc::gen::inRange<std::int64_t>(0, kMost);
  Node host = node("n", {gpu("GPU-0", Bytes(*amount))});
  host.mps_per_gpu = *rc::gen::inRange<std::int64_t>(1, kMost);
  const auto count = *rc::gen::inRange<std::int64_t>(1, kMost);
  for (const GpuPart& what :
       {GpuPart(Amounts{Bytes(*amount), {}}),
        GpuPart(Amounts{{}, Compute(*rc::gen::inRange<std::int64_t>(0, 12'000))}),
        GpuPart(Tickets{Tickets::Kind::mps, count})}) {
    const auto portion = portion_on(what, host, host.gpus[0]);
    if (!portion) continue;
    RC_ASSERT(portion->memory >= Bytes(0) && portion->memory <= host.gpus[0].memory);
    RC_ASSERT(portion->compute >= Compute(0) && portion->compute <= kWholeGpu);
  }
}

TEST(Cluster, StartsEmptyAndGrows) {
  Cluster cluster = cluster_of({});
  EXPECT_EQ(cluster.size(), 0U);
  EXPECT_EQ(cluster.compute_total(), Compute(0));
  EXPECT_EQ(cluster.find("n0"), std::nullopt);
  EXPECT_EQ(cluster.add_node(node("n0", gpus(2))), NodeIndex{0});
  EXPECT_EQ(cluster.add_node(node("n1", {})), NodeIndex{1});
  ASSERT_TRUE(cluster.add_gpu(0, gpu("GPU-9", gib(80), "h100")).has_value());
  EXPECT_EQ(cluster.find("n1"), NodeIndex{1});
  EXPECT_EQ(cluster.gpus(0).size(), 3U);
  EXPECT_EQ(cluster.gpus(1).size(), 0U);
  EXPECT_EQ(cluster.gpus(0)[2].memory_free, gib(80));
  EXPECT_EQ(cluster.model_count(), 2U);
  EXPECT_EQ(cluster.compute_total(), 3 * kWholeGpu);
}

TEST(Cluster, RefusesNodesThatMakeNoSense) {
  const auto refused = [](Node bad) {
    Cluster cluster = cluster_of({node("n0", gpus(2))});
    const auto before = picture(cluster);
    const auto added = cluster.add_node(std::move(bad));
    EXPECT_EQ(picture(cluster), before);
    return added ? Error::Code::internal : added.error().code;
  };
  using enum Error::Code;
  EXPECT_EQ(refused(node("", {})), invalid_argument);
  EXPECT_EQ(refused(node("n0", {})), already_exists);
  EXPECT_EQ(refused(node("n1", {}, CpuMilli(-1))), invalid_argument);
  Node bad = node("n1", {});
  bad.memory = Bytes(-1);
  EXPECT_EQ(refused(bad), invalid_argument);
  bad = node("n1", {});
  bad.compute_limit = Compute(9'999);
  EXPECT_EQ(refused(bad), invalid_argument);
  bad.compute_limit = 100 * kWholeGpu + Compute(1);
  EXPECT_EQ(refused(bad), invalid_argument);
  bad = node("n1", {});
  bad.mps_per_gpu = 0;
  EXPECT_EQ(refused(bad), invalid_argument);
  bad = node("n1", {});
  bad.shards_per_gpu = -1;
  EXPECT_EQ(refused(bad), invalid_argument);
  EXPECT_EQ(refused(node("n1", gpus(kMaxGpusPerNode + 1))), out_of_range);
  EXPECT_EQ(refused(node("n1", {gpu("GPU-0"), gpu("GPU-0")})), already_exists);
  EXPECT_EQ(refused(node("n1", {gpu("GPU-0", gib(1), "new"), gpu("")})), invalid_argument);
  EXPECT_EQ(refused(node("n1", {gpu("GPU-0", gib(1), "")})), invalid_argument);
  EXPECT_EQ(refused(node("n1", {gpu("GPU-0", Bytes(-1))})), invalid_argument);
}

// The text form of the ledger and every message are words on one line.
TEST(Cluster, RefusesNamesOfSeveralWords) {
  Cluster cluster = cluster_of({node("n0", {})});
  for (const auto* name : {"a b", " ", "a\nb", "a\tb", "a\r", "\x1b[31m"}) {
    EXPECT_FALSE(cluster.add_node(node(name, {})).has_value()) << name;
    EXPECT_FALSE(cluster.add_gpu(0, gpu(name)).has_value()) << name;
  }
  EXPECT_TRUE(cluster.add_node(node("gpu-07.example.org", {})).has_value());
  EXPECT_TRUE(cluster.add_gpu(0, gpu("MIG-GPU-a/1/0")).has_value());
}

TEST(Cluster, AFailedNodeLeavesNoTrace) {
  Cluster cluster = cluster_of({node("n0", gpus(1)), node("n1", gpus(1))});
  const auto before = picture(cluster);
  const auto version = cluster.version();
  ASSERT_FALSE(
      cluster.add_node(node("n2", {gpu("GPU-0", gib(1), "other"), gpu("GPU-0")})).has_value());
  EXPECT_EQ(picture(cluster), before);
  for (const NodeIndex node : changes(cluster, version)) EXPECT_LT(node, cluster.size());
  EXPECT_FALSE(cluster.shape(wholes(1, {"other"})).has_value());
}

TEST(Cluster, NumbersAtMost64Models) {
  Cluster cluster = cluster_of({node("n0", {})});
  for (std::size_t i = 0; i < kMaxModels; ++i) {
    const std::string model = fmt::format("model{}", i);
    ASSERT_TRUE(cluster.add_gpu(0, gpu(fmt::format("GPU-{}", i), gib(1), model)).has_value());
  }
  ASSERT_TRUE(cluster.add_node(node("n1", {gpu("GPU-0", gib(1), "MODEL63")})).has_value());
  const auto before = picture(cluster);
  const auto more = cluster.add_node(node("n2", {gpu("GPU-0", gib(1), "model64")}));
  ASSERT_FALSE(more.has_value());
  EXPECT_EQ(more.error().code, Error::Code::out_of_range);
  EXPECT_EQ(picture(cluster), before);
  const Shape last = cluster.shape(wholes(1, {"model63"})).value();
  EXPECT_EQ(last.models, std::uint64_t{1} << 63U);
  Candidates fit;
  EXPECT_TRUE(find_candidates(cluster, last, 0, fit));
  EXPECT_THAT(fit.gpus, ::testing::ElementsAre(63));
}

TEST(Cluster, UnknownModelsNameTheKnownOnes) {
  const Cluster cluster = cluster_of({node("n0", {gpu("GPU-0", gib(1), "TitanRTX")})});
  EXPECT_EQ(cluster.shape(wholes(1, {"titanRTX"}))->models, 1U);
  const auto none = cluster.shape(wholes(1, {"h100"}));
  ASSERT_FALSE(none.has_value());
  EXPECT_EQ(none.error().code, Error::Code::not_found);
  EXPECT_THAT(none.error().message, HasSubstr("titanrtx"));
}

TEST(Cluster, RefusesRequestsThatMakeNoSense) {
  const Cluster cluster = cluster_of({node("n0", gpus(2))});
  EXPECT_FALSE(cluster.shape(wholes(0)).has_value());
  EXPECT_FALSE(cluster.shape(wholes(-1)).has_value());
  EXPECT_FALSE(cluster.shape(wholes(65)).has_value());
  EXPECT_FALSE(cluster.shape(share({}, {})).has_value());
  EXPECT_FALSE(cluster.shape(share(Bytes(-1), {})).has_value());
  EXPECT_FALSE(cluster.shape(share({}, Compute(-1))).has_value());
  EXPECT_FALSE(cluster.shape(with_cpus(wholes(1), CpuMilli(-1))).has_value());
  EXPECT_FALSE(cluster.shape(with_cpus(wholes(1), CpuMilli(0), Bytes(-1))).has_value());
  Request tickets = wholes(1);
  tickets.gpus->what = Tickets{Tickets::Kind::mps, 0};
  EXPECT_FALSE(cluster.shape(tickets).has_value());
  tickets.gpus->what = Tickets{Tickets::Kind::mps, 1};
  EXPECT_TRUE(cluster.shape(tickets).has_value());
}

TEST(Cluster, SlicesAreReachedOnlyByTheirProfile) {
  Gpu slice = gpu("MIG-0", gib(10), "a100");
  slice.mig_profile = "1g.10gb";
  // Somebody's model is called like the profile: its GPUs stay plain ones.
  const Gpu namesake = gpu("GPU-1", gib(10), "1G.10GB");
  for (const std::vector<Gpu>& both :
       {std::vector{slice, namesake}, std::vector{namesake, slice}}) {
    const Cluster cluster = cluster_of({node("n0", both)});
    const auto found = [&](const Request& request) {
      std::vector<std::string> ids;
      Candidates fit;
      find_candidates(cluster, cluster.shape(request).value(), 0, fit);
      for (const GpuIndex gpu : fit.gpus) ids.push_back(both[gpu].id.value());
      return ids;
    };
    EXPECT_THAT(found(wholes(1)), ::testing::ElementsAre("GPU-1"));
    EXPECT_THAT(found(share({}, Compute(100))), ::testing::ElementsAre("GPU-1"));
    EXPECT_THAT(found(wholes(1, {"1g.10gb"})), ::testing::UnorderedElementsAre("GPU-1", "MIG-0"));
  }
}

TEST(Cluster, ASliceIsReachedByItsGpuAndProfile) {
  Gpu small = gpu("MIG-0", gib(10), "a100");
  small.mig_profile = "a100_1g.10gb";
  Gpu other = gpu("MIG-1", gib(10), "h100");
  other.mig_profile = "h100_1g.10gb";
  const std::vector<Gpu> slices{small, other, gpu("GPU-2", gib(80), "a100")};
  const Cluster cluster = cluster_of({node("n0", slices)});
  const auto found = [&](const std::string& model) {
    std::vector<std::string> ids;
    Candidates fit;
    find_candidates(cluster, cluster.shape(wholes(1, {model})).value(), 0, fit);
    for (const GpuIndex gpu : fit.gpus) ids.push_back(slices[gpu].id.value());
    return ids;
  };
  EXPECT_THAT(found("a100_1g.10gb"), ::testing::ElementsAre("MIG-0"));
  EXPECT_THAT(found("1g.10gb"), ::testing::ElementsAre("MIG-0", "MIG-1"));
  EXPECT_THAT(found("a100"), ::testing::ElementsAre("GPU-2"));
  EXPECT_FALSE(cluster.shape(wholes(1, {"10gb"})).has_value());
}

TEST(Cluster, EqualShapesHashEqual) {
  const Cluster cluster = cluster_of({node("n0", gpus(2))});
  const auto hash = [&](const Request& request) { return ShapeHash{}(*cluster.shape(request)); };
  EXPECT_EQ(hash(share({}, Compute(100))), hash(share({}, Compute(100))));
  EXPECT_NE(hash(share({}, Compute(100))), hash(share({}, Compute(101))));
  EXPECT_NE(hash(share({}, Compute(100))), hash(share(Bytes(100), {})));
  EXPECT_NE(hash(wholes(1)), hash(wholes(2)));
  EXPECT_NE(hash(wholes(1)), hash(with_cpus(wholes(1), CpuMilli(1))));
}

TEST(Cluster, TakesAndGivesBackExactly) {
  Cluster cluster = cluster_of({node("n0", gpus(2))});
  const auto before = picture(cluster);
  const Use use{0, kOneCpu, gib(1), {share_of(1, gib(8), Compute(2'500))}};
  ASSERT_TRUE(cluster.take(use).has_value());
  EXPECT_EQ(cluster.gpus(0)[1].memory_free, gib(16));
  EXPECT_EQ(cluster.gpus(0)[1].compute_free, Compute(7'500));
  EXPECT_EQ(cluster.state(0).cpus_free, kOneCpu * 63);
  EXPECT_EQ(cluster.compute_free(), Compute(17'500));
  ASSERT_TRUE(cluster.give_back(use).has_value());
  EXPECT_EQ(picture(cluster), before);
  const auto twice = cluster.give_back(use);
  ASSERT_FALSE(twice.has_value());
  EXPECT_EQ(twice.error().code, Error::Code::failed_state);
  EXPECT_EQ(picture(cluster), before);
}

TEST(Cluster, CountsManyTinyJobs) {
  Cluster cluster = cluster_of({node("n0", gpus(1))});
  const Use nothing{0, CpuMilli(0), Bytes(0), {share_of(0, Bytes(0), Compute(0))}};
  constexpr std::uint32_t kJobs = 70'000;
  for (std::uint32_t i = 0; i < kJobs; ++i) ASSERT_TRUE(cluster.take(nothing).has_value());
  EXPECT_EQ(cluster.state(0).jobs_by_gpus[0], kJobs);
  for (std::uint32_t i = 0; i < kJobs; ++i) ASSERT_TRUE(cluster.give_back(nothing).has_value());
  EXPECT_EQ(cluster.state(0).jobs_by_gpus[0], 0U);
}

TEST(Cluster, HealthMovesTheSums) {
  Cluster cluster = cluster_of({node("n0", gpus(2))});
  ASSERT_TRUE(
      cluster.take({0, CpuMilli(0), Bytes(0), {share_of(0, gib(1), Compute(4'000))}}).has_value());
  ASSERT_TRUE(cluster.set_health(0, 0, Health::draining).has_value());
  EXPECT_EQ(cluster.compute_free(), kWholeGpu);
  EXPECT_EQ(cluster.compute_total(), kWholeGpu);
  ASSERT_TRUE(cluster.set_health(0, 0, Health::lost).has_value());
  EXPECT_EQ(cluster.compute_total(), kWholeGpu);
  ASSERT_TRUE(cluster.set_health(0, 0, Health::ok).has_value());
  EXPECT_EQ(cluster.compute_free(), Compute(16'000));
  EXPECT_EQ(cluster.compute_total(), 2 * kWholeGpu);
  EXPECT_FALSE(cluster.set_health(0, 2, Health::ok).has_value());
  EXPECT_FALSE(cluster.set_health(1, 0, Health::ok).has_value());
}

TEST(Cluster, SamplesAgeIntoBusy) {
  Cluster cluster = cluster_of({node("n0", gpus(2))});
  ASSERT_TRUE(cluster.observe(0, 0, {Compute(100), gib(1), MonoTime(1'000)}).has_value());
  cluster.expire_samples(MonoTime(6'000), seconds(5));
  EXPECT_FALSE(cluster.gpus(0)[0].stale);
  cluster.expire_samples(MonoTime(6'001), seconds(5));
  EXPECT_TRUE(cluster.gpus(0)[0].stale);
  EXPECT_EQ(cluster.gpus(0)[0].utilisation, kWholeGpu);
  EXPECT_EQ(cluster.gpus(0)[0].foreign_memory, gib(1));
  EXPECT_FALSE(cluster.gpus(0)[1].stale);  // never sampled: nothing to be old
  ASSERT_TRUE(cluster.observe(0, 0, {Compute(30'000), Bytes(0), MonoTime(7'000)}).has_value());
  EXPECT_FALSE(cluster.gpus(0)[0].stale);
  EXPECT_EQ(cluster.gpus(0)[0].utilisation, kWholeGpu);
  EXPECT_FALSE(cluster.observe(0, 0, {Compute(-1), Bytes(0), MonoTime(0)}).has_value());
  EXPECT_FALSE(cluster.observe(0, 0, {Compute(0), Bytes(-1), MonoTime(0)}).has_value());
  EXPECT_FALSE(cluster.observe(0, 9, {Compute(0), Bytes(0), MonoTime(0)}).has_value());
}

TEST(Cluster, RemembersChangesUntilTheyAreTooMany) {
  Cluster cluster = cluster_of({node("n0", gpus(1)), node("n1", gpus(1))});
  const auto version = cluster.version();
  EXPECT_THAT(changes(cluster, version), ::testing::IsEmpty());
  const Use use{1, CpuMilli(0), Bytes(0), {share_of(0, gib(1), Compute(1))}};
  ASSERT_TRUE(cluster.take(use).has_value());
  EXPECT_THAT(changes(cluster, version), ::testing::ElementsAre(1));
  for (int i = 0; i < 1'000; ++i) {
    ASSERT_TRUE(cluster.give_back(use).has_value() && cluster.take(use).has_value());
  }
  EXPECT_FALSE(cluster.visit_changes(version, [](NodeIndex) {}));
  EXPECT_TRUE(cluster.visit_changes(cluster.version() - 1'024, [](NodeIndex) {}));
}

TEST(Cluster, TheLogGrowsWithTheCluster) {
  Cluster cluster = cluster_of({});
  for (int i = 0; i < 3'000; ++i) {
    const auto version = cluster.version();
    const auto index = cluster.add_node(node(fmt::format("n{}", i), {})).value();
    ASSERT_TRUE(changes(cluster, version).contains(index));
  }
  const auto version = cluster.version();
  for (NodeIndex node = 0; node < 3'000; ++node) {
    ASSERT_TRUE(cluster.take({node, CpuMilli(0), Bytes(0), {}}).has_value());
  }
  std::size_t visited = 0;
  EXPECT_TRUE(cluster.visit_changes(version, [&](NodeIndex) { ++visited; }));
  EXPECT_EQ(visited, 3'000U);
}

// Amounts taken and given back without regard to jobs: the bounds hold, a refusal changes nothing.
RC_GTEST_PROP(ClusterProperty, NeverLeavesItsBounds, ()) {
  Cluster cluster = cluster_of({node("n0", gpus(3)), node("n1", gpus(1))});
  for (const Step& step : *histories(60)) {
    Dice dice(step);
    const bool back = dice(2) == 1;
    Use use{dice(3),
            CpuMilli(dice.one_of<std::int64_t>({0, 1'000, 40'000, -1, kMost})),
            dice.one_of<Bytes>({Bytes(0), gib(100), Bytes(-1), Bytes(kMost)}),
            {}};
    const auto count = dice(3);
    for (std::uint32_t i = 0; i < count; ++i) {
      use.gpus.push_back({dice(4),
                          {dice.one_of<Bytes>({Bytes(0), gib(8), gib(24), Bytes(kMost)}),
                           dice.one_of<Compute>({Compute(0), Compute(3'000), kWholeGpu})},
                          dice(3) == 2});
    }
    const auto before = picture(cluster);
    const auto done = back ? cluster.give_back(use) : cluster.take(use);
    if (!done) RC_ASSERT(picture(cluster) == before);
    Compute free;
    for (NodeIndex n = 0; n < cluster.size(); ++n) {
      RC_ASSERT(cluster.state(n).cpus_free >= CpuMilli(0));
      RC_ASSERT(cluster.state(n).cpus_free <= cluster.node(n).cpus);
      RC_ASSERT(cluster.state(n).memory_free >= Bytes(0));
      RC_ASSERT(cluster.state(n).memory_free <= cluster.node(n).memory);
      for (const GpuState& gpu : cluster.gpus(n)) {
        RC_ASSERT(gpu.memory_free >= Bytes(0) && gpu.memory_free <= gib(24));
        RC_ASSERT(gpu.compute_free >= Compute(0) && gpu.compute_free <= kWholeGpu);
        free += gpu.compute_free;
      }
    }
    RC_ASSERT(free == cluster.compute_free());
  }
}

}  // namespace
}  // namespace aliquot::core
