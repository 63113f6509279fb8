#include "core/limits.hpp"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <map>

namespace aliquot::core {
namespace {

Tally hold_gpus(std::int64_t count) {
  Tally tally;
  tally[Measure::gpus] = count * kWholeGpu.value();
  tally[Measure::jobs] = 1;
  return tally;
}

TEST(Limits, NamesTheFirstThatWouldBreak) {
  Limits limits;
  Pot user;
  user.most[Measure::gpus] = 2 * kWholeGpu.value();
  user.reasons[Measure::gpus] = "QOSMaxGRESPerUser";
  Pot account;
  account.most[Measure::jobs] = 2;
  account.reasons[Measure::jobs] = "AssocGrpJobsLimit";
  const auto one = limits.add(user);
  const auto all = limits.add(account);
  const Claim claim{.wants = hold_gpus(2), .pots = {one, all}};
  EXPECT_FALSE(limits.broken_by(claim));
  limits.take(claim);
  const auto broken = limits.broken_by({.wants = hold_gpus(1), .pots = {all, one}});
  ASSERT_TRUE(broken);
  EXPECT_EQ(broken->pot, one);
  EXPECT_EQ(broken->measure, Measure::gpus);
  const Claim bare{.wants = hold_gpus(0), .pots = {one, all}};
  EXPECT_FALSE(limits.broken_by(bare)) << "it wants nothing of what is full";
  limits.take(bare);
  EXPECT_EQ(limits.broken_by(bare)->measure, Measure::jobs);
  // The sum would be none.
  Tally most;
  most[Measure::gpus] = INT64_MAX;
  EXPECT_TRUE(over(user.most, most, most));
}

// As a plan plays it through: what has ended leaves room.
TEST(Limits, RulesCountWhatStartsAndEnds) {
  Limits limits;
  Pot user;
  user.most[Measure::jobs] = 1;
  user.reasons[Measure::jobs] = "QOSMaxJobsPerUserLimit";
  const Claim claim{.wants = hold_gpus(1), .pots = {limits.add(user)}};
  limits.take(claim);
  LimitRules rules(limits);
  rules.runs(JobId(1), claim);
  rules.note(JobId(2), 3, claim);
  QueueEntry entry{.job = JobId(2), .shape = {}};
  EXPECT_FALSE(rules.hold_back(entry)) << "nothing is known of it in that partition";
  entry.partition = 3;
  EXPECT_EQ(rules.hold_back(entry), "QOSMaxJobsPerUserLimit");
  rules.ended(JobId(1), std::nullopt);
  EXPECT_FALSE(rules.hold_back(entry));
  rules.started(entry);
  EXPECT_TRUE(rules.hold_back(entry));
  rules.ended(JobId(2), 3);
  rules.ended(JobId(2), 3);
  EXPECT_FALSE(rules.hold_back(entry));
}

// Elements of an array in two partitions, of which one has a limit: whichever ends first gives back
// what it had.
TEST(Limits, RulesKnowWhichElementEnds) {
  Limits limits;
  Pot partition;
  partition.most[Measure::jobs] = 1;
  partition.reasons[Measure::jobs] = "QOSGrpJobsLimit";
  const Claim counted{.wants = hold_gpus(1), .pots = {limits.add(partition)}};
  LimitRules rules(limits);
  rules.note(JobId(7), 0, counted);
  rules.note(JobId(7), 1, Claim{.wants = hold_gpus(1), .pots = {}});
  QueueEntry here{.job = JobId(7), .shape = {}, .partition = 0};
  QueueEntry elsewhere{.job = JobId(7), .shape = {}, .partition = 1};
  rules.started(here);
  rules.started(elsewhere);
  EXPECT_TRUE(rules.hold_back(here));
  rules.ended(JobId(7), 0);
  EXPECT_FALSE(rules.hold_back(here));
  rules.started(here);
  rules.ended(JobId(7), 1);
  EXPECT_TRUE(rules.hold_back(here));
}

// Jobs of some users and accounts come and end at random, and limits change: what starts keeps
// every limit that it counts for, and what waits for a limit would have broken it.
RC_GTEST_PROP(LimitsProperty, EveryLimitHoldsAtEveryInstant, ()) {
  struct Job {
    QueueEntry entry;
    Claim claim;
    std::optional<Use> use;
  };
  Node node{.id = NodeId("n"), .cpus = kOneCpu * 64, .memory = gib(512)};
  for (int i = 0; i < 4; ++i) {
    node.gpus.push_back({.id = GpuId("GPU-" + std::to_string(i)), .model = "m", .memory = gib(80)});
  }
  Cluster cluster = *Cluster::create({node});
  const auto policy = *make_policy("aliquot", generic_profile());
  constexpr std::size_t kPots = 4;
  std::array<Ceiling, kPots> ceilings;
  std::vector<Job> jobs;
  std::int64_t next = 1;
  const int steps = *rc::gen::inRange(5, 40);
  for (int step = 0; step < steps; ++step) {
    // A limit changes, jobs end, jobs come.
    Ceiling& changed = ceilings[*rc::gen::inRange<std::size_t>(0, kPots)];
    changed[Measure::gpus] = *rc::gen::element<std::int64_t>(0, 5'000, 10'000, 25'000);
    changed[Measure::jobs] = *rc::gen::element<std::int64_t>(1, 2, 5);
    if (*rc::gen::inRange(0, 4) == 0) changed = {};
    for (Job& job : jobs) {
      if (!job.use || *rc::gen::inRange(0, 3) != 0) continue;
      RC_ASSERT(cluster.give_back(*job.use).has_value());
      job.entry.job = JobId(0);
    }
    std::erase_if(jobs, [](const Job& job) { return job.entry.job == JobId(0); });
    for (int i = *rc::gen::inRange(0, 4); i > 0; --i) {
      Request request;
      request.cpus = kOneCpu;
      const auto part = *rc::gen::element<std::int64_t>(0, 2'500, 5'000, 10'000);
      if (part > 0) {
        request.gpus = GpuRequest{};
        if (part < 10'000) request.gpus->what = Amounts{std::nullopt, Compute(part)};
      }
      Job job{.entry = {.job = JobId(next), .order = static_cast<std::uint64_t>(next), .shape = {}},
              .claim = {},
              .use = std::nullopt};
      ++next;
      job.entry.shape = *cluster.shape(request);
      job.claim.wants[Measure::gpus] = part;
      job.claim.wants[Measure::jobs] = 1;
      for (std::size_t pot = 0; pot < kPots; ++pot) {
        if (*rc::gen::arbitrary<bool>()) job.claim.pots.push_back(pot);
      }
      jobs.push_back(std::move(job));
    }

    Limits limits;
    for (const Ceiling& most : ceilings) {
      limits.add({.most = most, .reasons = {{"gpus", "cpus", "memory", "jobs"}}});
    }
    std::map<JobId, Claim> claims;
    std::vector<QueueEntry> queue;
    std::vector<RunningEntry> running;
    for (const Job& job : jobs) {
      claims[job.entry.job] = job.claim;
      if (job.use) {
        limits.take(job.claim);
        running.push_back({*job.use, std::nullopt});
      } else {
        queue.push_back(job.entry);
      }
    }
    const auto held = [&](std::size_t pot, Measure measure) {
      std::int64_t sum = 0;
      for (const Job& job : jobs) {
        const bool in = std::ranges::find(job.claim.pots, pot) != job.claim.pots.end();
        if (job.use && in) sum += job.claim.wants[measure];
      }
      return sum;
    };
    const auto within = [&](const Job& job) {
      for (const std::size_t pot : job.claim.pots) {
        for (const Measure measure : {Measure::gpus, Measure::jobs}) {
          const auto& most = ceilings[pot][measure];
          const std::int64_t wants = job.claim.wants[measure];
          if (most && wants > 0 && held(pot, measure) + (job.use ? 0 : wants) > *most) return false;
        }
      }
      return true;
    };
    LimitRules rules(limits);
    for (const auto& [id, claim] : claims) rules.note(id, 0, claim);
    const Decision decision = schedule(cluster, queue, running, *policy, &rules);
    std::vector<JobId> started;
    for (const Start& start : decision.starts) {
      const auto job = std::ranges::find(jobs, queue[start.entry].job,
                                         [](const Job& one) { return one.entry.job; });
      RC_ASSERT(cluster.take(start.placement).has_value());
      job->use = start.placement;
      RC_ASSERT(within(*job));
    }
    for (const Wait& wait : decision.waits) {
      if (wait.reason != "gpus" && wait.reason != "jobs") continue;
      const auto job = std::ranges::find(jobs, queue[wait.entry].job,
                                         [](const Job& one) { return one.entry.job; });
      RC_ASSERT(!within(*job));
    }
  }
}

}  // namespace
}  // namespace aliquot::core
