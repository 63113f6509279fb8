#include "cli/jobs/job_ids.hpp"

#include <gtest/gtest.h>

#include "base/text.hpp"
#include "cli/view/job_text.hpp"

namespace aliquot::cli {
namespace {

using Ids = std::vector<std::string>;

TEST(JobPattern, NamesJobsAndElements) {
  EXPECT_EQ(parse_job_pattern("7")->targets(), (Ids{"7"}));
  EXPECT_EQ(parse_job_pattern("7_3")->targets(), (Ids{"7_3"}));
  EXPECT_EQ(parse_job_pattern("7_[1-3,9]")->targets(), (Ids{"7_1", "7_2", "7_3", "7_9"}));
  EXPECT_EQ(parse_job_pattern("7_[0-6:3%2]")->targets(), (Ids{"7_0", "7_3", "7_6"}));
  EXPECT_EQ(parse_job_pattern("7_*")->targets(), (Ids{"7"}));
  EXPECT_EQ(parse_job_pattern("last")->targets(), (Ids{"last"}));
  EXPECT_EQ(parse_job_pattern("7.0")->step, "0");
}

TEST(JobPattern, RefusesTheRest) {
  for (const auto* bad : {"", "abc", "-1", "0", "7_", "7_x", "7_[", "7_[]", "7_[3-1]", "7.", "7.x",
                          "7_[0-9999999]", "99999999999999999999", "7_[1-3:0]"}) {
    EXPECT_FALSE(parse_job_pattern(bad).has_value()) << bad;
  }
}

TEST(JobPattern, FindsElementsByArrayAndTask) {
  api::JobInfo job;
  job.id = 56;
  job.array_job_id = 55;
  job.array_task_id = 3;
  EXPECT_TRUE(parse_job_pattern("55")->matches(job));
  EXPECT_TRUE(parse_job_pattern("56")->matches(job));
  EXPECT_TRUE(parse_job_pattern("55_3")->matches(job));
  EXPECT_FALSE(parse_job_pattern("55_4")->matches(job));
  EXPECT_EQ(cancel_id(job), "55_3");
  job.array_task_id.reset();
  job.array_pending = "4-6%2";
  EXPECT_EQ(job_id_text(job), "55_[4-6%2]");
}

TEST(SplitIds, LeavesBracketsWhole) {
  const auto ids = split_outside_brackets("1,7_[1,3],2");
  ASSERT_EQ(ids.size(), 3U);
  EXPECT_EQ(ids[1], "7_[1,3]");
}

}  // namespace
}  // namespace aliquot::cli
