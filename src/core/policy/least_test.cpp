// least-occupied and least-utilised: what a burst of jobs does.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/index.hpp"
#include "core/test_support.hpp"

namespace aliquot::core {
namespace {

using namespace test;
using ::testing::Each;
using ::testing::ElementsAre;

// Places equal jobs one after the other; how many got a place.
int burst(Ledger& ledger, std::string_view name, const Request& request, int jobs) {
  const auto policy = make_policy(name, {}).value();
  Index index(ledger.cluster(), *policy);
  const Shape shape = ledger.cluster().shape(request).value();
  int placed = 0;
  for (int job = 0; job < jobs; ++job) {
    const auto place = index.place(shape);
    if (!place) continue;
    const auto granted = ledger.grant(JobId(std::ssize(ledger.jobs())), *place);
    EXPECT_TRUE(granted.has_value());
    ++placed;
  }
  return placed;
}

std::vector<std::uint32_t> jobs_by_gpu(const Cluster& cluster) {
  std::vector<std::uint32_t> jobs;
  for (NodeIndex node = 0; node < cluster.size(); ++node) {
    for (const GpuState& gpu : cluster.gpus(node)) {
      jobs.push_back(gpu.jobs);
      EXPECT_GE(gpu.memory_free, Bytes(0));
    }
  }
  return jobs;
}

std::uint32_t unevenness(const Cluster& cluster) {
  const auto jobs = jobs_by_gpu(cluster);
  return std::ranges::max(jobs) - std::ranges::min(jobs);
}

Ledger one_node() { return Ledger(cluster_of({node("n0", gpus(4))})); }
Ledger three_nodes() {
  return Ledger(cluster_of({node("n0", gpus(4)), node("n1", gpus(4)), node("n2", gpus(4))}));
}
void observe_all(Ledger& ledger, Compute utilisation, MonoTime taken) {
  for (NodeIndex node = 0; node < ledger.cluster().size(); ++node) {
    for (GpuIndex gpu = 0; gpu < ledger.cluster().gpus(node).size(); ++gpu) {
      ASSERT_TRUE(ledger.cluster().observe(node, gpu, {utilisation, Bytes(0), taken}).has_value());
    }
  }
}

class Least : public ::testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Policies, Least, ::testing::Values("least-occupied", "least-utilised"),
                         [](const auto& test) {
                           return test.param == "least-occupied" ? "occupied" : "utilised";
                         });

TEST_P(Least, ABurstSpreadsOverTheGpusOfANode) {
  Ledger ledger = one_node();
  EXPECT_EQ(burst(ledger, GetParam(), share(mib(400), Compute(100)), 200), 200);
  EXPECT_THAT(jobs_by_gpu(ledger.cluster()), ElementsAre(50, 50, 50, 50));
}

TEST_P(Least, ABurstSpreadsOverNodes) {
  for (const Request& request :
       {share(mib(400), Compute(100)), share(mib(400), Compute(0)), share(mib(400), Compute(37))}) {
    Ledger ledger = three_nodes();
    EXPECT_EQ(burst(ledger, GetParam(), request, 200), 200);
    EXPECT_LE(unevenness(ledger.cluster()), 1U);
  }
}

TEST_P(Least, ABurstStopsWhereMemoryEnds) {
  Ledger ledger = three_nodes();
  EXPECT_EQ(burst(ledger, GetParam(), share(gib(5), Compute(100)), 200), 48);
  EXPECT_THAT(jobs_by_gpu(ledger.cluster()), Each(4U));
}

TEST_P(Least, SeveralSharesSpreadToo) {
  Ledger ledger = one_node();
  EXPECT_EQ(burst(ledger, GetParam(), share(mib(400), Compute(100), 3), 41), 41);
  EXPECT_LE(unevenness(ledger.cluster()), 1U);
}

TEST_P(Least, ALargeNodeIsNoWorseThanASmallOne) {
  for (const Compute compute : {Compute(0), Compute(100)}) {
    Ledger ledger(cluster_of({node("n0", gpus(8)), node("n1", gpus(1))}));
    EXPECT_EQ(burst(ledger, GetParam(), share(mib(400), compute), 400), 400);
    EXPECT_LE(unevenness(ledger.cluster()), 1U);
  }
}

TEST_P(Least, WholeGpusFillEverything) {
  Ledger ledger = three_nodes();
  EXPECT_EQ(burst(ledger, GetParam(), wholes(1), 20), 12);
  EXPECT_THAT(jobs_by_gpu(ledger.cluster()), Each(1U));
}

TEST(LeastOccupied, CountsJobsNotAmounts) {
  Ledger ledger = one_node();
  const auto take = [&](std::int64_t job, GpuIndex gpu, Bytes memory) {
    const Use use{0, CpuMilli(0), Bytes(0), {share_of(gpu, memory, Compute(1))}};
    ASSERT_TRUE(ledger.grant(JobId(100 + job), use).has_value());
  };
  for (std::int64_t job = 0; job < 3; ++job) take(job, static_cast<GpuIndex>(job), Bytes(1));
  take(3, 3, gib(20));
  take(4, 0, Bytes(1));
  take(5, 1, Bytes(1));
  take(6, 2, Bytes(1));
  EXPECT_EQ(burst(ledger, "least-occupied", share(gib(1), Compute(1)), 1), 1);
  EXPECT_THAT(jobs_by_gpu(ledger.cluster()), ElementsAre(2, 2, 2, 2));
}

TEST(LeastUtilised, ABurstSpreadsAlthoughSamplesAreOld) {
  for (const Compute seen : {Compute(0), Compute(4'000), kWholeGpu}) {
    Ledger ledger = three_nodes();
    observe_all(ledger, seen, MonoTime(0));
    EXPECT_EQ(burst(ledger, "least-utilised", share(mib(400), Compute(100)), 200), 200);
    EXPECT_LE(unevenness(ledger.cluster()), 1U) << seen.value();
  }
}

TEST(LeastUtilised, ABurstSpreadsOverStaleGpus) {
  Ledger ledger = three_nodes();
  observe_all(ledger, Compute(0), MonoTime(0));
  ledger.cluster().expire_samples(MonoTime(60'000), seconds(10));
  EXPECT_EQ(burst(ledger, "least-utilised", share(mib(400), Compute(100)), 200), 200);
  EXPECT_LE(unevenness(ledger.cluster()), 1U);
}

TEST(LeastUtilised, AvoidsWhatForeignProcessesKeepBusy) {
  Ledger ledger = one_node();
  observe_all(ledger, Compute(100), MonoTime(0));
  ASSERT_TRUE(ledger.cluster().observe(0, 0, {Compute(9'000), gib(2), MonoTime(0)}).has_value());
  EXPECT_EQ(burst(ledger, "least-utilised", share(mib(400), Compute(1'000)), 27), 27);
  EXPECT_THAT(jobs_by_gpu(ledger.cluster()), ElementsAre(0, 9, 9, 9));
}

TEST(LeastUtilised, AvoidsWhatIsStale) {
  Ledger ledger = one_node();
  observe_all(ledger, Compute(0), MonoTime(0));
  ledger.cluster().expire_samples(MonoTime(60'000), seconds(10));
  for (const GpuIndex gpu : {1U, 3U}) {
    ASSERT_TRUE(
        ledger.cluster().observe(0, gpu, {Compute(5'000), Bytes(0), MonoTime(60'000)}).has_value());
  }
  EXPECT_EQ(burst(ledger, "least-utilised", share(mib(400), Compute(1'000)), 18), 18);
  EXPECT_THAT(jobs_by_gpu(ledger.cluster()), ElementsAre(0, 9, 0, 9));
}

}  // namespace
}  // namespace aliquot::core
