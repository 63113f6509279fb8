#include "cli/control/scontrol_update.hpp"

#include <gtest/gtest.h>

#include "api/json.hpp"

namespace aliquot::cli {
namespace {

constexpr WallTime kUpdateNow{days(20'000)};

Result<JobUpdate> update_of(const std::vector<std::string_view>& words) {
  const auto all = TRY(parse_update(words, kUpdateNow));
  return all.jobs.at(0);
}

TEST(ScontrolUpdate, TakesNamesOfEntitiesCutShort) {
  for (const auto* word : {"job=7", "JobId=7", "JOBI=7"}) {
    const auto read = update_of({word, "Name=x"});
    ASSERT_TRUE(read) << word;
    EXPECT_EQ(read->ids, std::vector<std::string>{"7"});
  }
  EXPECT_FALSE(update_of({"jo=7", "Name=x"}));
  EXPECT_FALSE(update_of({"JobName=x"}));
  EXPECT_EQ(parse_update({"node=here", "State=RESUME"}, kUpdateNow)->nodes.at(0).name, "here");
}

TEST(ScontrolUpdate, ATimeLimitLongerOrShorterThanItIs) {
  const auto longer = update_of({"JobId=7", "TimeLimit=+10", "Name=x"});
  ASSERT_TRUE(longer);
  const auto spec = api::from_json<api::JobSpec>(*longer->body_for(minutes(5)));
  ASSERT_TRUE(spec);
  EXPECT_EQ(spec->name, "x");
  EXPECT_EQ(spec->time_limit_ms, 900'000);
  EXPECT_FALSE(longer->body_for(std::nullopt));
  const auto shorter = update_of({"JobId=7", "TimeLimit=-10"});
  ASSERT_TRUE(shorter);
  EXPECT_EQ(api::from_json<api::JobSpec>(*shorter->body_for(minutes(15)))->time_limit_ms, 300'000);
  const auto none = shorter->body_for(minutes(10));
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().message, "TimeLimit decrement larger than current time limit (10 > 10)");
  EXPECT_EQ(
      api::from_json<api::JobSpec>(*update_of({"JobId=7", "TimeLimit=3"})->body_for(minutes(15)))
          ->time_limit_ms,
      180'000);
  for (const auto* word : {"TimeLimit=+", "TimeLimit=-x", "TimeLimit=+UNLIMITED"}) {
    EXPECT_FALSE(update_of({"JobId=7", word})) << word;
  }
}

}  // namespace
}  // namespace aliquot::cli
