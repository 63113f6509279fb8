#include "cli/view/usage_text.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/size.hpp"

namespace aliquot::cli {
namespace {

constexpr std::int64_t kHourMs = 3'600'000;

api::NodeInfo machine() {
  api::NodeInfo node;
  node.gpus.resize(1);
  node.gpus[0].uuid = "GPU-0";
  node.gpus[0].memory = gib(100).value();
  return node;
}
api::JobInfo job(const std::string& user, std::int64_t start, std::int64_t end) {
  api::JobInfo job;
  job.id = 7;
  job.user = user;
  job.account = "vision";
  job.state = "COMPLETED";
  job.start_ms = start;
  job.end_ms = end;
  job.gpus.push_back({.uuid = "GPU-0", .model = {}, .memory = gib(50).value(), .compute = 2'500});
  return job;
}
const UsageWanted kAll{.since = WallTime(0), .until = WallTime(100 * kHourMs)};

TEST(UsageTextTest, AShareCountsAsTheLargerOfItsParts) {
  auto one = job("ann", 0, 4 * kHourMs);
  one.gpu_ms = kHourMs / 2;
  const auto rows = count_usage({one, job("bob", 0, 2 * kHourMs)}, machine(), kAll);
  EXPECT_EQ(usage_csv(rows, kAll),
            "user,jobs,granted_gpu_hours,used_gpu_hours,wasted_gpu_hours\n"
            "ann,1,2.0000,0.5000,1.5000\nbob,1,1.0000,0.0000,1.0000\n");
}

TEST(UsageTextTest, OnlyWhatLiesInTheTimeCounts) {
  auto one = job("ann", 0, 4 * kHourMs);
  one.gpus[0].whole = true;
  one.gpu_ms = 2 * kHourMs;
  const auto rows = count_usage({one}, machine(),
                                {.since = WallTime(3 * kHourMs), .until = WallTime(9 * kHourMs)});
  ASSERT_EQ(rows.size(), 1U);
  EXPECT_EQ(rows[0].granted_ms, kHourMs);
  EXPECT_EQ(rows[0].used_ms, kHourMs / 2);
  EXPECT_TRUE(count_usage({one}, machine(),
                          {.since = WallTime(5 * kHourMs), .until = WallTime(9 * kHourMs)})
                  .empty());
}

TEST(UsageTextTest, WhatRunsHasUsedWhatItsGpusSay) {
  auto one = job("ann", 0, 50 * kHourMs);
  one.state = "RUNNING";
  api::NodeInfo node = machine();
  node.gpus[0].uses.push_back({.job_id = 7, .gpu_ms = 3 * kHourMs});
  const auto rows =
      count_usage({one}, node, {.since = WallTime(0), .until = WallTime(10 * kHourMs)});
  ASSERT_EQ(rows.size(), 1U);
  EXPECT_EQ(rows[0].granted_ms, 5 * kHourMs);
  EXPECT_EQ(rows[0].used_ms, 3 * kHourMs);
}

TEST(UsageTextTest, ByAccountAndOneAlone) {
  auto other = job("ann", 0, kHourMs);
  other.account.clear();
  UsageWanted wanted = kAll;
  wanted.by = UsageBy::account;
  const auto rows = count_usage({job("ann", 0, 2 * kHourMs), other}, machine(), wanted);
  ASSERT_EQ(rows.size(), 2U);
  EXPECT_EQ(rows[0].name, "vision");
  EXPECT_EQ(rows[1].name, "(none)");
  EXPECT_THAT(usage_table(rows, wanted), testing::HasSubstr("all             2         1.50"));
  wanted.name = "vision";
  EXPECT_EQ(count_usage({job("ann", 0, kHourMs), other}, machine(), wanted).size(), 1U);
  EXPECT_THAT(usage_table({}, wanted),
              testing::StartsWith("No job has held a GPU since 1970-01-01T"));
  EXPECT_THAT(usage_json(rows, wanted), testing::HasSubstr(R"("account": "vision")"));
}

}  // namespace
}  // namespace aliquot::cli
