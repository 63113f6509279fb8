#include "core/plan.hpp"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <set>

namespace aliquot::core {
namespace {

constexpr Millis kHalfLife = days(7);

Cluster planned_machine(int gpus) {
  Node node{.id = NodeId("n"), .cpus = CpuMilli(64'000), .memory = gib(512)};
  for (int i = 0; i < gpus; ++i) {
    node.gpus.push_back({.id = GpuId("GPU-" + std::to_string(i)), .model = "m", .memory = gib(80)});
  }
  return *Cluster::create({node});
}

Shape planned_shape(const Cluster& cluster, GpuPart what, std::int64_t count = 1) {
  Request request;
  request.gpus = GpuRequest{.count = count, .what = std::move(what), .models = {}};
  request.cpus = kOneCpu;
  return *cluster.shape(request);
}

std::vector<Sharer> sharers(std::size_t count) {
  std::vector<Sharer> all;
  for (std::size_t i = 0; i < count; ++i) {
    all.push_back(
        {.user = Uid(static_cast<std::uint32_t>(i)), .shares = 1, .usage = 0, .held = {}});
  }
  return all;
}

class PlanTest : public testing::Test {
 protected:
  Cluster cluster_ = planned_machine(2);
  std::unique_ptr<Policy> policy_ = *make_policy("least-occupied", {});
  PlanInput input_;

  PlanEntry& wait(std::int64_t id, std::int64_t gpus, std::optional<Millis> limit) {
    input_.waiting.push_back({.entry = {.job = JobId(id),
                                        .order = static_cast<std::uint64_t>(id),
                                        .shape = planned_shape(cluster_, WholeGpu{}, gpus),
                                        .time_limit = limit},
                              .urgency = {}});
    return input_.waiting.back();
  }
  void run(std::int64_t id, std::int64_t gpus, std::optional<Millis> left) {
    const auto placement =
        place_by_scan(cluster_, planned_shape(cluster_, WholeGpu{}, gpus), *policy_);
    ASSERT_TRUE(placement && cluster_.take(*placement));
    input_.running.push_back({.job = JobId(id), .use = *placement, .left = left});
  }
  // `3:60 4:-`, in minutes.
  std::string plan(std::unique_ptr<Rules> rules = nullptr) {
    std::string text;
    Plan plan(cluster_, PriorityModel({}, kHalfLife, sharers(1)), input_, *policy_,
              std::move(rules));
    while (!plan.advance(1)) {
    }
    for (const PlanEntry& one : input_.waiting) {
      const auto start = plan.start(one.entry.job);
      text += fmt::format("{}{}:{}", text.empty() ? "" : " ", one.entry.job,
                          start ? std::to_string(*start / minutes(1)) : "-");
    }
    return text;
  }
};

TEST_F(PlanTest, EachStartsWhenThoseBeforeItEnd) {
  run(1, 2, minutes(30));
  wait(2, 2, minutes(60));
  wait(3, 1, minutes(10));
  wait(4, 1, minutes(10));
  wait(5, 2, minutes(10));
  EXPECT_EQ(plan(), "2:30 3:90 4:90 5:100");
}

TEST_F(PlanTest, ShortOnesSlipInBeforeTheBigOne) {
  run(1, 1, minutes(30));
  wait(2, 2, minutes(60));
  wait(3, 1, minutes(40));
  wait(4, 1, minutes(30));
  EXPECT_EQ(plan(), "2:30 3:90 4:0");
}

TEST_F(PlanTest, BehindWhatHasNoEndNobodyKnows) {
  run(1, 1, std::nullopt);
  wait(2, 1, std::nullopt);
  wait(3, 1, minutes(5));
  wait(4, 2, minutes(5));
  EXPECT_EQ(plan(), "2:0 3:- 4:-");
}

TEST_F(PlanTest, AnArrayRunsSoManyAtOnce) {
  input_.group_limits = {1};
  PlanEntry& array = wait(1, 1, minutes(10));
  array.count = 3;
  array.group = 0;
  wait(2, 1, minutes(100));
  wait(3, 1, minutes(10));
  EXPECT_EQ(plan(), "1:0 2:0 3:30");
}

TEST_F(PlanTest, TimesAndDependenciesOpenLater) {
  wait(1, 1, minutes(10));
  wait(2, 1, minutes(10)).ready = minutes(25);
  wait(3, 1, minutes(10)).gates = {{JobId(1)}, {JobId(2)}};
  wait(4, 1, minutes(10)).gates = {{JobId(2), true, minutes(2)}};
  PlanEntry& any = wait(5, 1, minutes(10));
  any.gates = {{JobId(1)}, {JobId(3)}};
  any.any_gate = true;
  wait(6, 1, minutes(10)).gates = {{JobId(7)}};
  EXPECT_EQ(plan(), "1:0 2:25 3:35 4:27 5:10 6:-");
}

TEST_F(PlanTest, AnAdministratorsPriorityAndATierComeFirst) {
  run(1, 2, minutes(10));
  wait(2, 2, minutes(10));
  wait(3, 2, minutes(10)).urgency.fixed = 1'000'000;
  wait(4, 2, minutes(10)).entry.tier = 1;
  EXPECT_EQ(plan(), "2:30 3:20 4:10");
}

// One that may start in several partitions has an entry for each, and starts once.
TEST_F(PlanTest, TheFirstPartitionThatCanStartsIt) {
  run(1, 2, minutes(10));
  wait(2, 1, minutes(60)).entry.tier = 1;
  wait(2, 1, minutes(5));
  input_.waiting.back().count = input_.waiting.front().count = 2;
  wait(3, 1, minutes(7));
  wait(4, 1, minutes(10)).gates = {{JobId(2)}};
  wait(2, 1, minutes(5));
  input_.waiting.back().count = 2;
  EXPECT_EQ(plan(), "2:10 2:10 3:70 4:70 2:10");
}

TEST_F(PlanTest, RulesAreAskedAndHearOfEnds) {
  struct OneAtATime final : Rules {
    std::set<JobId> running;
    std::optional<std::string_view> hold_back(const QueueEntry&) override {
      if (!running.empty()) return "QOSMaxJobsPerUserLimit";
      return std::nullopt;
    }
    void started(const QueueEntry& entry) override { running.insert(entry.job); }
    void ended(JobId job, std::optional<std::uint32_t>) override { running.erase(job); }
  };
  for (std::int64_t id = 1; id <= 3; ++id) wait(id, 1, minutes(10));
  EXPECT_EQ(plan(std::make_unique<OneAtATime>()), "1:0 2:10 3:20");
}

// What is foretold is what schedule() does, at each end and each job's time, with priorities found
// anew from a book of usage.
RC_GTEST_PROP(Plan, IsWhatHappens, ()) {
  Cluster cluster = planned_machine(3);
  const auto policy =
      *make_policy(*rc::gen::element<std::string>("least-occupied", "aliquot"), generic_profile());
  const std::size_t users = 3;
  const PriorityWeights weights{.job_size = *rc::gen::element<std::int64_t>(0, 5'000)};

  PlanInput input;
  const int count = *rc::gen::inRange(1, 40);
  for (int i = 0; i < count; ++i) {
    PlanEntry one;
    one.entry = {.job = JobId(i + 1),
                 .order = static_cast<std::uint64_t>(i + 1),
                 .shape = *rc::gen::arbitrary<bool>()
                              ? planned_shape(cluster, WholeGpu{}, *rc::gen::inRange(1, 4))
                              : planned_shape(cluster, Amounts{gib(*rc::gen::element(10, 20, 40)),
                                                               std::nullopt}),
                 .time_limit = minutes(*rc::gen::inRange(1, 200))};
    one.urgency.sharer = static_cast<std::size_t>(*rc::gen::inRange(0, static_cast<int>(users)));
    one.urgency.nice = *rc::gen::element(0, 0, 50'000);
    one.urgency.factors.job_size = part_of_all(cluster, one.entry.shape);
    if (*rc::gen::inRange(0, 8) == 0) one.urgency.fixed = *rc::gen::inRange(1, 200'000);
    if (*rc::gen::inRange(0, 4) == 0) one.ready = minutes(*rc::gen::inRange(0, 300));
    one.urgency.waited = one.ready > Millis(0) ? Millis(0) - one.ready : minutes(40 - i);
    input.waiting.push_back(one);
  }

  Plan plan(cluster, PriorityModel(weights, kHalfLife, sharers(users)), input, *policy);
  while (!plan.advance(*rc::gen::inRange(1, 1'000))) {
  }

  struct Running {
    std::size_t entry;
    Use use;
    Millis start;
  };
  std::vector<Running> running;
  std::set<std::size_t> waiting;
  for (std::size_t i = 0; i < input.waiting.size(); ++i) waiting.insert(i);
  UsageBook book(kHalfLife);
  Millis now;
  while (!waiting.empty()) {
    std::vector<Sharer> all = sharers(users);
    for (Sharer& one : all) one.usage = book.usage(one.user, WallTime(now));
    for (const Running& one : running) {
      all[input.waiting[one.entry].urgency.sharer].usage +=
          charge_of(billed(cluster, one.use), now - one.start, kHalfLife);
    }
    const PriorityModel model(weights, kHalfLife, all);
    std::vector<QueueEntry> queue;
    std::vector<std::size_t> from;
    for (const std::size_t i : waiting) {
      const PlanEntry& one = input.waiting[i];
      if (one.ready > now) continue;
      Urgency urgency = one.urgency;
      urgency.waited += now;
      queue.push_back(one.entry);
      queue.back().priority = model.priority(urgency).total;
      from.push_back(i);
    }
    std::vector<RunningEntry> entries;
    for (const Running& one : running) {
      entries.push_back({one.use, one.start + *input.waiting[one.entry].entry.time_limit - now});
    }
    for (const Start& start : schedule(cluster, queue, entries, *policy).starts) {
      const std::size_t i = from[start.entry];
      RC_ASSERT(plan.start(queue[start.entry].job) == now);
      RC_ASSERT(cluster.take(start.placement).has_value());
      running.push_back({i, start.placement, now});
      waiting.erase(i);
    }
    Millis next = kForever;
    for (const Running& one : running) {
      next = std::min(next, one.start + *input.waiting[one.entry].entry.time_limit);
    }
    for (const std::size_t i : waiting) {
      if (input.waiting[i].ready > now) next = std::min(next, input.waiting[i].ready);
    }
    if (waiting.empty()) break;
    RC_ASSERT(next < kForever);
    now = next;
    std::erase_if(running, [&](const Running& one) {
      const PlanEntry& entry = input.waiting[one.entry];
      if (one.start + *entry.entry.time_limit > now) return false;
      book.charge(Uid(static_cast<std::uint32_t>(entry.urgency.sharer)), billed(cluster, one.use),
                  now - one.start, WallTime(now));
      (void)cluster.give_back(one.use);
      return true;
    });
  }
}

}  // namespace
}  // namespace aliquot::core
