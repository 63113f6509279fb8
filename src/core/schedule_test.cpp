#include "core/schedule.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <map>

namespace aliquot::core {
namespace {

Cluster machine(int gpus) {
  Node node{.id = NodeId("n"), .cpus = CpuMilli(64'000), .memory = gib(512)};
  for (int i = 0; i < gpus; ++i) {
    node.gpus.push_back({.id = GpuId("GPU-" + std::to_string(i)), .model = "m", .memory = gib(80)});
  }
  return *Cluster::create({node});
}

Shape shape_of(const Cluster& cluster, GpuRequest gpus) {
  Request request;
  request.gpus = std::move(gpus);
  request.cpus = kOneCpu;
  return *cluster.shape(request);
}
Shape whole_shape(const Cluster& cluster, std::int64_t count) {
  GpuRequest gpus;
  gpus.count = count;
  return shape_of(cluster, gpus);
}
Shape share_shape(const Cluster& cluster, std::int64_t gigabytes) {
  GpuRequest gpus;
  gpus.what = Amounts{gib(gigabytes), std::nullopt};
  return shape_of(cluster, gpus);
}

class ScheduleTest : public testing::Test {
 protected:
  Cluster cluster_ = machine(4);
  std::unique_ptr<Policy> policy_ = *make_policy("least-occupied", {});
  std::vector<RunningEntry> running_;
  std::vector<QueueEntry> queue_;

  void run(const Shape& shape, std::optional<Millis> left) {
    const auto placement = place_by_scan(cluster_, shape, *policy_);
    ASSERT_TRUE(placement);
    ASSERT_TRUE(cluster_.take(*placement));
    running_.push_back({*placement, left});
  }
  void queue(const Shape& shape, std::optional<Millis> limit, std::int64_t priority = 0) {
    queue_.push_back({.job = JobId(std::ssize(queue_) + 1),
                      .priority = priority,
                      .order = queue_.size(),
                      .shape = shape,
                      .time_limit = limit});
  }
  // `1 start`, `2 Resources 60000`, …, in order of the queue.
  std::vector<std::string> decide(Rules* rules = nullptr) {
    std::map<std::size_t, std::string> lines;
    const Decision decision = schedule(cluster_, queue_, running_, *policy_, rules);
    for (const Start& one : decision.starts) lines[one.entry] = "start";
    for (const Wait& one : decision.waits) {
      lines[one.entry] = one.reason;
      if (one.start_in) lines[one.entry] += fmt::format(" {}", *one.start_in);
    }
    std::vector<std::string> result;
    for (const auto& [entry, line] : lines) result.push_back(line);
    return result;
  }
};

using testing::ElementsAre;

TEST_F(ScheduleTest, ByPriorityThenAge) {
  queue(whole_shape(cluster_, 3), minutes(10));
  queue(whole_shape(cluster_, 3), minutes(10), 5);
  EXPECT_THAT(decide(), ElementsAre("Resources 600000", "start"));
  queue_[0].priority = 5;
  EXPECT_THAT(decide(), ElementsAre("start", "Resources 600000"));
}

TEST_F(ScheduleTest, ShortJobsFillWhatTheBigOneCannotUseYet) {
  run(whole_shape(cluster_, 2), minutes(10));
  queue(whole_shape(cluster_, 4), minutes(60));
  queue(whole_shape(cluster_, 1), minutes(10));
  queue(whole_shape(cluster_, 1), minutes(11));
  queue(whole_shape(cluster_, 1), std::nullopt);
  EXPECT_THAT(decide(), ElementsAre("Resources 600000", "start", "Priority", "Priority"));
}

TEST_F(ScheduleTest, LongJobsStartBesideTheReservation) {
  run(whole_shape(cluster_, 2), minutes(10));
  queue(whole_shape(cluster_, 3), minutes(60));
  queue(share_shape(cluster_, 40), std::nullopt);
  queue(share_shape(cluster_, 40), std::nullopt);
  queue(share_shape(cluster_, 40), std::nullopt);
  EXPECT_THAT(decide(), ElementsAre("Resources 600000", "start", "start", "Priority"));
}

TEST_F(ScheduleTest, TheImpossibleBlocksNobody) {
  queue(whole_shape(cluster_, 5), minutes(1));
  queue(whole_shape(cluster_, 4), minutes(1));
  EXPECT_THAT(decide(), ElementsAre("ReqNodeNotAvail", "start"));
}

TEST_F(ScheduleTest, ABigJobIsNotStarvedWithoutAnyTimeLimits) {
  run(share_shape(cluster_, 10), std::nullopt);
  queue(whole_shape(cluster_, 4), std::nullopt);
  queue(share_shape(cluster_, 10), std::nullopt);
  EXPECT_THAT(decide(), ElementsAre("Resources 31536000000", "Priority"));
}

TEST_F(ScheduleTest, AHigherTierComesBeforeAnyPriority) {
  queue(whole_shape(cluster_, 3), minutes(10), 1'000);
  queue(whole_shape(cluster_, 3), minutes(10));
  queue_[1].tier = 1;
  EXPECT_THAT(decide(), ElementsAre("Resources 600000", "start"));
}

// The job is in the queue once for each of its partitions.
TEST_F(ScheduleTest, AJobStartsOnceAndWhereItCan) {
  queue(whole_shape(cluster_, 2), minutes(10));
  queue_[0].shape.devices = 1;
  queue(whole_shape(cluster_, 2), minutes(10));
  queue(whole_shape(cluster_, 2), minutes(10));
  queue_[1].job = queue_[2].job = queue_[0].job;
  queue(whole_shape(cluster_, 2), minutes(10));
  EXPECT_THAT(decide(), ElementsAre("ReqNodeNotAvail", "start", "start"));
}

TEST_F(ScheduleTest, RulesHoldBackAndCount) {
  struct AtMostTwo final : Rules {
    int count = 0;
    std::optional<std::string_view> hold_back(const QueueEntry&) override {
      if (count >= 2) return "QOSMaxJobsPerUserLimit";
      return std::nullopt;
    }
    void started(const QueueEntry&) override { ++count; }
  } rules;
  for (int i = 0; i < 3; ++i) queue(share_shape(cluster_, 1), minutes(1));
  EXPECT_THAT(decide(&rules), ElementsAre("start", "start", "QOSMaxJobsPerUserLimit"));
}

// Jobs come at random, their limits are what they really take. Once the top job has been promised
// a start it starts by then, however many others are let past it.
RC_GTEST_PROP(Schedule, BackfillNeverDelaysTheReservation, ()) {
  Cluster cluster = machine(4);
  const auto policy = *make_policy(
      *rc::gen::element<std::string>("least-occupied", "best-fit", "aliquot"), generic_profile());
  struct Job {
    QueueEntry entry;
    std::int64_t minutes_left = 0;
    std::optional<Use> use;
  };
  std::vector<Job> jobs;
  std::map<std::int64_t, std::int64_t> promised;  // job → minute
  for (std::int64_t minute = 0; minute < 60; ++minute) {
    for (Job& job : jobs) {
      if (job.use && --job.minutes_left == 0) RC_ASSERT(cluster.give_back(*job.use).has_value());
    }
    std::erase_if(jobs, [](const Job& job) { return job.use && job.minutes_left == 0; });
    const int arriving = minute < 40 ? *rc::gen::inRange(0, 4) : 0;
    for (int i = 0; i < arriving; ++i) {
      const auto number = static_cast<std::uint64_t>(minute * 10 + i);
      const std::int64_t length = *rc::gen::inRange(1, 12);
      const Shape shape = *rc::gen::arbitrary<bool>()
                              ? whole_shape(cluster, *rc::gen::inRange(1, 5))
                              : share_shape(cluster, *rc::gen::element(5, 10, 20, 40));
      jobs.push_back({.entry = {.job = JobId(static_cast<std::int64_t>(number) + 1),
                                .order = number,
                                .shape = shape,
                                .time_limit = minutes(length)},
                      .minutes_left = length,
                      .use = std::nullopt});
    }
    std::vector<QueueEntry> queue;
    std::vector<RunningEntry> running;
    for (const Job& job : jobs) {
      if (job.use) {
        running.push_back({*job.use, minutes(job.minutes_left)});
      } else {
        queue.push_back(job.entry);
      }
    }
    const Decision decision = schedule(cluster, queue, running, *policy);
    RC_ASSERT(decision.starts.size() + decision.waits.size() == queue.size());
    for (const Start& start : decision.starts) {
      const auto job = std::ranges::find(jobs, queue[start.entry].job,
                                         [](const Job& one) { return one.entry.job; });
      RC_ASSERT(cluster.take(start.placement).has_value());
      job->use = start.placement;
      promised.erase(job->entry.job.value());
    }
    for (const Wait& wait : decision.waits) {
      if (!wait.start_in) continue;
      const std::int64_t at = minute + *wait.start_in / minutes(1);
      const auto [promise, fresh] = promised.try_emplace(queue[wait.entry].job.value(), at);
      RC_ASSERT(at <= promise->second);
      promise->second = at;
    }
    for (const auto& [job, at] : promised) RC_ASSERT(at > minute);
  }
}

}  // namespace
}  // namespace aliquot::core
