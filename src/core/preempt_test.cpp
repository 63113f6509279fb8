#include "core/preempt.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "core/test_support.hpp"

namespace aliquot::core {
namespace {

using test::cluster_of;
using test::gpu;
using test::node;
using test::share;
using test::wholes;
using testing::ElementsAre;
using testing::UnorderedElementsAre;

struct Full {
  Cluster cluster;
  std::vector<Candidate> running;
  std::unique_ptr<Policy> policy = *make_policy("aliquot", generic_profile());

  explicit Full(std::size_t gpus) : cluster(cluster_of({})) {
    std::vector<Gpu> all;
    for (std::size_t i = 0; i < gpus; ++i)
      all.push_back(gpu(fmt::format("GPU-{}", i), gib(80), "m"));
    cluster = cluster_of({node("n", all)});
  }
  // False where there is no room for it.
  bool run(const Request& request, std::int64_t loss, std::int64_t tier = 0) {
    const auto shape = cluster.shape(request).value();
    const auto placed = place_by_scan(cluster, shape, *policy);
    if (!placed || !cluster.take(*placed)) return false;
    running.push_back({JobId(std::ssize(running) + 1), *placed, tier, loss});
    return true;
  }
  std::vector<std::int64_t> victims(const Request& request) {
    std::vector<std::int64_t> jobs;
    const auto chosen = choose_victims(cluster, cluster.shape(request).value(), running);
    if (!chosen) return {-1};
    for (const std::size_t i : *chosen) jobs.push_back(running[i].job.value());
    return jobs;
  }
};

TEST(Preempt, FewestThenLeastLoss) {
  Full full(4);
  for (const std::int64_t loss : {50, 10, 40, 20}) ASSERT_TRUE(full.run(wholes(1), loss));
  EXPECT_THAT(full.victims(wholes(1)), ElementsAre(2));
  EXPECT_THAT(full.victims(wholes(2)), ElementsAre(2, 4));
  EXPECT_THAT(full.victims(share(std::nullopt, Compute(1'000))), ElementsAre(2));
  EXPECT_THAT(full.victims(wholes(5)), ElementsAre(-1));
  // One that loses more is better than two that lose less.
  Full shared(1);
  ASSERT_TRUE(shared.run(share(std::nullopt, Compute(2'500)), 1));
  ASSERT_TRUE(shared.run(share(std::nullopt, Compute(2'500)), 1));
  ASSERT_TRUE(shared.run(share(std::nullopt, Compute(5'000)), 100));
  EXPECT_THAT(shared.victims(share(std::nullopt, Compute(5'000))), ElementsAre(3));
  EXPECT_THAT(shared.victims(wholes(1)), ElementsAre(1, 2, 3));
}

TEST(Preempt, ClearsTheGpuThatTakesFewest) {
  Full full(8);
  for (int i = 0; i < 64; ++i) ASSERT_TRUE(full.run(share(std::nullopt, Compute(1'250)), i));
  EXPECT_EQ(full.victims(wholes(1)).size(), 8U);
  EXPECT_EQ(full.victims(wholes(8)).size(), 64U);
}

// What was planned before is counted on, and each waiting job has its own victims.
TEST(Preempt, NobodyGoesTwiceOrForNothing) {
  Full full(4);
  for (int i = 0; i < 4; ++i) ASSERT_TRUE(full.run(wholes(1), 10 * i));
  std::vector<QueueEntry> queue;
  for (int i = 0; i < 3; ++i) {
    queue.push_back({.job = JobId(100 + i),
                     .tier = i == 2 ? 0 : 1,
                     .order = static_cast<std::uint64_t>(i),
                     .shape = full.cluster.shape(wholes(1)).value()});
  }
  std::vector<RunningEntry> running;
  for (const Candidate& one : full.running) running.push_back({one.use, std::nullopt});
  const auto decision = schedule(full.cluster, queue, running, *full.policy);
  ASSERT_EQ(decision.waits.size(), 3U);
  auto plan = plan_evictions(full.cluster, queue, decision, {}, full.running, *full.policy);
  ASSERT_EQ(plan.size(), 2U) << "the third is of no higher tier";
  EXPECT_EQ(plan[0].victim, JobId(1));
  EXPECT_EQ(plan[0].by, JobId(100));
  EXPECT_EQ(plan[1].victim, JobId(2));
  EXPECT_EQ(plan[1].by, JobId(101));
  // One of them is on its way out: the first waits for that.
  const std::vector<Use> ending{full.running[0].use};
  full.running.erase(full.running.begin());
  plan = plan_evictions(full.cluster, queue, decision, ending, full.running, *full.policy);
  ASSERT_EQ(plan.size(), 1U);
  EXPECT_EQ(plan[0].by, JobId(101));
}

// Against every combination there is.
RC_GTEST_PROP(PreemptProperty, ExactlyAsManyAsNeededAndTheCheapest, ()) {
  Full full(static_cast<std::size_t>(*rc::gen::inRange(1, 4)));
  const auto some = [] {
    Request request = *rc::gen::element<Request>(
        wholes(1), wholes(2), share(std::nullopt, Compute(2'500)), share(gib(40), Compute(1'000)),
        share(std::nullopt, Compute(5'000), 2), Request{});
    request.cpus = kOneCpu * *rc::gen::element(1, 8, 20);
    return request;
  };
  for (int i = *rc::gen::inRange(1, 12); i > 0 && full.running.size() < 8; --i) {
    (void)full.run(some(), *rc::gen::inRange(0, 5));
  }
  const Request wanted = some();
  const auto shape = full.cluster.shape(wanted).value();
  const auto fits_without = [&](std::size_t set) {
    Cluster without = full.cluster;
    for (std::size_t i = 0; i < full.running.size(); ++i) {
      if (((set >> i) & 1U) != 0) RC_ASSERT(without.give_back(full.running[i].use).has_value());
    }
    return place_by_scan(without, shape, *full.policy).has_value();
  };
  if (full.running.empty() || fits_without(0)) return;
  std::optional<std::pair<int, std::int64_t>> best;
  for (std::size_t set = 1; set < (std::size_t{1} << full.running.size()); ++set) {
    if (!fits_without(set)) continue;
    std::pair<int, std::int64_t> cost{__builtin_popcountll(set), 0};
    for (std::size_t i = 0; i < full.running.size(); ++i) {
      if (((set >> i) & 1U) != 0) cost.second += full.running[i].loss;
    }
    if (!best || cost < *best) best = cost;
  }
  const auto chosen = choose_victims(full.cluster, shape, full.running);
  RC_ASSERT(chosen.has_value() == best.has_value());
  if (!chosen) return;
  std::int64_t loss = 0;
  for (const std::size_t i : *chosen) loss += full.running[i].loss;
  RC_ASSERT(std::pair(static_cast<int>(chosen->size()), loss) == *best);
}

}  // namespace
}  // namespace aliquot::core
