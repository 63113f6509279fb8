// The published policies by hand: their formulas on small nodes, as in the benchmark's definition.
#include "core/policy/published.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "core/test_support.hpp"

namespace aliquot::core {
namespace {

using namespace test;
using ::testing::ElementsAre;

double score(std::string_view name, const Cluster& cluster, const Request& request,
             const Profile& profile = {}, NodeIndex node = 0) {
  const auto policy = make_policy(name, profile).value();
  policy->prepare(cluster);
  const Shape shape = cluster.shape(request).value();
  Candidates fit;
  EXPECT_TRUE(find_candidates(cluster, shape, node, fit));
  return policy->score(cluster, shape, fit);
}

std::vector<GpuIndex> choice(std::string_view name, const Cluster& cluster, const Request& request,
                             const Profile& profile = {}) {
  const auto policy = make_policy(name, profile).value();
  policy->prepare(cluster);
  const Shape shape = cluster.shape(request).value();
  Candidates fit;
  EXPECT_TRUE(find_candidates(cluster, shape, 0, fit));
  return policy->choose(cluster, shape, fit);
}

Compute milli_of_gpu(std::int64_t milli) { return Compute(milli * 10); }
// Memory is in no published score.
Request part(std::int64_t milli, CpuMilli cpus = CpuMilli(0)) {
  return with_cpus(share(Bytes(0), milli_of_gpu(milli)), cpus);
}
Use part_on(NodeIndex node, GpuIndex gpu, std::int64_t milli, CpuMilli cpus = CpuMilli(0)) {
  return {node, cpus, Bytes(0), {share_of(gpu, Bytes(0), milli_of_gpu(milli))}};
}

// 64 CPUs with 60 free; of four GPUs 700 milli left on the first, the second held whole.
Cluster busy_node() {
  Cluster cluster = cluster_of({node("n0", gpus(4))});
  EXPECT_TRUE(cluster.take(part_on(0, 0, 300, kOneCpu * 4)).has_value());
  EXPECT_TRUE(cluster.take({0, CpuMilli(0), Bytes(0), {whole_of(cluster.node(0), 1)}}).has_value());
  return cluster;
}

TEST(Published, SeesMilliOfUsableGpus) {
  Cluster cluster = busy_node();
  EXPECT_EQ(published::gpu_milli_free(cluster, 0), 2'700);
  ASSERT_TRUE(cluster.set_health(0, 2, Health::lost).has_value());
  EXPECT_EQ(published::gpu_milli_free(cluster, 0), 1'700);
  EXPECT_EQ(published::gpu_milli_asked(cluster, cluster.shape(share({}, Compute(2'500), 3)).value(),
                                       {.node = 0, .gpus = {0}}),
            750);
}

TEST(BestFit, WeighsWhatIsLeft) {
  const Cluster cluster = busy_node();
  // 100 (1 - 52000/256000 - 2200/16000) = 65.9
  EXPECT_EQ(score("best-fit", cluster, part(500, kOneCpu * 8)), 65);
  // 100 (1 - 60000/256000 - 700/16000) = 72.2
  EXPECT_EQ(score("best-fit", cluster, wholes(2)), 72);
  // 100 (1 - 59000/256000 - 2700/16000) = 60.1
  EXPECT_EQ(score("best-fit", cluster, with_cpus({}, kOneCpu)), 60);
}

TEST(DotProduct, PrefersWhatIsOutOfLine) {
  const Cluster cluster = busy_node();
  // 100 (1 - (60/128 * 8/128 + 2.7/8 * 0.5/8) / 2) = 97.5
  EXPECT_EQ(score("dot-product", cluster, part(500, kOneCpu * 8)), 97);
  // 100 (1 - (2.7/8 * 2/8) / 2) = 95.8
  EXPECT_EQ(score("dot-product", cluster, wholes(2)), 95);
}

TEST(Published, ScoresOfAbsurdNodesAreStillNumbers) {
  const CpuMilli all(std::numeric_limits<std::int64_t>::max());
  const Cluster cluster = cluster_of({node("n0", gpus(1), all)});
  EXPECT_LT(score("best-fit", cluster, wholes(1)), -1e15);
  EXPECT_LT(score("dot-product", cluster, with_cpus(wholes(1), all)), -1e25);
}

TEST(GpuPacking, OpensAsLittleAsPossible) {
  const Cluster cluster = busy_node();
  EXPECT_EQ(score("gpu-packing", cluster, part(500)), 93);  // into 70 % left
  EXPECT_EQ(score("gpu-packing", cluster, part(800)), 49);  // opens one
  EXPECT_EQ(score("gpu-packing", cluster, wholes(1)), 49);
  EXPECT_EQ(score("gpu-packing", cluster, wholes(2)), 48);
  EXPECT_EQ(score("gpu-packing", cluster, with_cpus({}, kOneCpu)), 0);
  EXPECT_EQ(score("gpu-packing", cluster_of({node("n0", gpus(4))}), part(500)), 29);
  EXPECT_EQ(score("gpu-packing", cluster_of({node("n0", gpus(20))}), part(500)), 20);
}

TEST(GpuClustering, PutsLikeToLike) {
  const Cluster cluster = busy_node();
  // b = 25 * 5300 / 8000 = 16
  EXPECT_EQ(score("gpu-clustering", cluster, part(500)), 50 + 16);
  EXPECT_EQ(score("gpu-clustering", cluster, wholes(1)), 50 + 16);
  EXPECT_EQ(score("gpu-clustering", cluster, wholes(2)), 16);
  EXPECT_EQ(score("gpu-clustering", cluster, with_cpus({}, kOneCpu)), 0);
  Cluster other = cluster_of({node("n0", gpus(4))});
  // b = 25 * 4000 / 8000 = 12
  EXPECT_EQ(score("gpu-clustering", other, part(500)), 25 + 12);
  ASSERT_TRUE(other.take(part_on(0, 0, 300)).has_value());
  // b = 25 * 4300 / 8000 = 13
  EXPECT_EQ(score("gpu-clustering", other, part(500)), 75 + 13);
  EXPECT_EQ(score("gpu-clustering", other, wholes(1)), 13);
}

TEST(Published, TakesTheSmallestRestAndTheLowestIndex) {
  Cluster cluster = cluster_of({node("n0", gpus(4))});
  ASSERT_TRUE(cluster.take(part_on(0, 1, 400)).has_value());
  ASSERT_TRUE(cluster.take(part_on(0, 3, 600)).has_value());
  for (const auto* name : {"best-fit", "dot-product", "gpu-packing", "gpu-clustering"}) {
    EXPECT_THAT(choice(name, cluster, part(300)), ElementsAre(3)) << name;
    EXPECT_THAT(choice(name, cluster, part(500)), ElementsAre(1)) << name;
    EXPECT_THAT(choice(name, cluster, part(700)), ElementsAre(0)) << name;
    EXPECT_THAT(choice(name, cluster, wholes(2)), ElementsAre(0, 2)) << name;
  }
}

// Halves and whole GPUs, equally often.
Profile halves() { return {{part(500), 1}, {wholes(1), 1}}; }

TEST(Fgd, ChargesForWhatTypicalJobsCannotUse) {
  Cluster cluster = cluster_of({node("n0", gpus(2))});
  // 0 before; (0, 1000) after: nothing is lost. 100 sigmoid(0)
  EXPECT_EQ(score("fgd", cluster, wholes(1), halves()), 50);
  // (500, 1000) after: 500 are lost to whole GPUs. 100 sigmoid(-0.25) = 43.8
  EXPECT_EQ(score("fgd", cluster, part(500), halves()), 43);
  ASSERT_TRUE(cluster.take(part_on(0, 0, 500)).has_value());
  // The other half of the used GPU: 100 sigmoid(+0.25) = 56.2
  EXPECT_EQ(score("fgd", cluster, part(500), halves()), 56);
  EXPECT_THAT(choice("fgd", cluster, part(500), halves()), ElementsAre(0));
  // Too large for the rest: (500, 400); 400 lost to halves, 900 to whole GPUs; before 250.
  // 100 sigmoid((250 - 650) / 1000) = 40.1
  EXPECT_EQ(score("fgd", cluster, part(600), halves()), 40);
  EXPECT_THAT(choice("fgd", cluster, part(600), halves()), ElementsAre(1));
}

TEST(Fgd, CountsEverythingAsLostToJobsThatCannotRun) {
  Cluster cluster = cluster_of({node("n0", gpus(2), kOneCpu)});
  // A job without GPUs uses none of the idle ones: 2000 before, 1500 after. 100 sigmoid(0.5)
  EXPECT_EQ(score("fgd", cluster, part(500), {{with_cpus({}, kOneCpu), 1}}), 62);
  // More CPUs than there are.
  EXPECT_EQ(score("fgd", cluster, part(500), {{part(500, kOneCpu * 2), 1}}), 62);
  // The last CPU goes with it: 0 before, all 1500 lost after. 100 sigmoid(-1.5) = 18.2
  EXPECT_EQ(score("fgd", cluster, part(500, kOneCpu), {{part(500, kOneCpu), 1}}), 18);
}

TEST(Fgd, KnowsTheMostFrequentKindsUpTo95Percent) {
  const Cluster cluster = cluster_of({node("n0", gpus(2))});
  const Profile two = {{part(500), 90}, {wholes(1), 6}};
  Profile three = two;
  three.push_back({part(300, kOneCpu * 64), 4});
  Profile reversed(three.rbegin(), three.rend());
  for (const Request& request : {part(500), part(200), wholes(1)}) {
    EXPECT_EQ(score("fgd", cluster, request, two), score("fgd", cluster, request, three));
    EXPECT_EQ(score("fgd", cluster, request, two), score("fgd", cluster, request, reversed));
  }
}

// As published: of kinds equally frequent at the end of the 95 % those that ask for most CPUs
// count, then those that ask for most of a GPU, and the order of the profile does not matter.
TEST(Fgd, OfEquallyFrequentKindsTheLargerIsTypical) {
  const Cluster cluster = cluster_of({node("n0", gpus(2))});
  const Request huge = part(300, kOneCpu * 64);
  const Profile kept = {{part(500), 90}, {huge, 5}};
  for (const Request& small : {part(900, kOneCpu), part(200, kOneCpu * 64)}) {
    const Profile profile = {{part(500), 90}, {small, 5}, {huge, 5}};
    const Profile reversed(profile.rbegin(), profile.rend());
    for (const Request& request : {part(500), part(200, kOneCpu), wholes(1)}) {
      EXPECT_EQ(score("fgd", cluster, request, profile), score("fgd", cluster, request, kept));
      EXPECT_EQ(score("fgd", cluster, request, reversed), score("fgd", cluster, request, kept));
    }
  }
}

// As published: a kind is what was asked for, so the same models written differently are two kinds,
// and may both be too rare.
TEST(Fgd, ModelsNamedDifferentlyAreDifferentKinds) {
  const Cluster cluster = cluster_of({node("n0", gpus(2))});
  const std::string model = cluster.node(0).gpus[0].model;
  Profile profile = {{part(500), 1800}, {part(100, kOneCpu * 64), 90}};
  profile.push_back({wholes(1, {model}), 49});
  profile.push_back({wholes(1, {model, model}), 49});
  // Without a CPU the second kind loses all 1500 that are left: 100 sigmoid(-1.5 * 90/1890) = 48.2
  EXPECT_EQ(score("fgd", cluster, part(500, kOneCpu), profile), 48);
  // As one kind they would be more frequent than it and lose 500: 100 sigmoid(-0.5 * 98/1898)
  // = 49.4
  profile.pop_back();
  profile.back().weight = 98;
  EXPECT_EQ(score("fgd", cluster, part(500, kOneCpu), profile), 49);
}

TEST(Fgd, TakesProfilesOfAnyKind) {
  const Cluster cluster = cluster_of({node("n0", gpus(2))});
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const double infinity = std::numeric_limits<double>::infinity();
  for (const Profile& profile :
       {Profile{}, Profile{{wholes(1, {"unknown"}), 1}}, Profile{{wholes(1), 0}},
        Profile{{wholes(1), -1}}, Profile{{wholes(1), nan}}, Profile{{wholes(1), infinity}}}) {
    EXPECT_EQ(score("fgd", cluster, part(500), profile), 50);
  }
  Profile half_bad = halves();
  half_bad.push_back({wholes(2), nan});
  EXPECT_EQ(score("fgd", cluster, part(500), half_bad), 43);
  const double most = std::numeric_limits<double>::max();
  EXPECT_EQ(score("fgd", cluster, part(500), {{part(500), most}, {wholes(1), most}}), 50);
}

}  // namespace
}  // namespace aliquot::core
