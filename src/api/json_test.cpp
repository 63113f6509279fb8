#include "api/json.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "api/testing.hpp"

namespace aliquot::api {
namespace {

using testing::HasSubstr;
using testing::Not;

TEST(Json, WritesEveryFieldOfASmallValue) {
  EXPECT_EQ(to_json(Submitted{7}), R"({"job_id":7})");
  EXPECT_EQ(to_json(ErrorInfo{"A", "say \"no\"\n\x01"}),
            R"({"code":"A","message":"say \"no\"\n\u0001"})");
}

TEST(Json, AnAbsentOptionalIsAbsent) {
  EXPECT_THAT(to_json(JobInfo{}), Not(HasSubstr("start_ms")));
  JobInfo job;
  job.start_ms = 5;
  EXPECT_THAT(to_json(job), HasSubstr("\"start_ms\":5"));
}

TEST(Json, ListsLeaveDefaultsOutAndReadThemBack) {
  JobList list;
  list.jobs.resize(2);
  list.jobs[0].id = 4;
  list.jobs[0].requeue = false;
  list.jobs[1].reason = "Resources";
  EXPECT_EQ(to_json(list), R"({"jobs":[{"id":4,"requeue":false},{"reason":"Resources"}]})");
  const auto back = from_json<JobList>(to_json(list));
  ASSERT_TRUE(back);
  EXPECT_EQ(back->jobs[0].reason, "None");
  EXPECT_FALSE(back->jobs[0].requeue);
  EXPECT_TRUE(back->jobs[1].requeue);
}

template <class T>
void expect_every_field_back() {
  const std::string text = to_json(filled<T>());
  const auto back = from_json<T>(text);
  ASSERT_TRUE(back) << back.error().message;
  EXPECT_EQ(to_json(*back), text);
  // As many as were given a value, none of them twice.
  std::int64_t count = 0;
  T value;
  fill(value, count);
  for (std::int64_t i = 101; i <= 100 + count; ++i) {
    EXPECT_THAT(text, HasSubstr(std::to_string(i)));
  }
}

TEST(Json, BringsEveryFieldBack) {
  expect_every_field_back<JobSpec>();
  expect_every_field_back<JobInfo>();
  expect_every_field_back<ClusterInfo>();
  expect_every_field_back<Allocation>();
  expect_every_field_back<StepSpec>();
  expect_every_field_back<StepEnd>();
  expect_every_field_back<WhyInfo>();
  expect_every_field_back<PriorityList>();
  expect_every_field_back<ShareList>();
}

TEST(Json, IgnoresTheUnknownAndKeepsDefaults) {
  const auto spec = from_json<JobSpec>(R"({"name":"x","later":[1],"umask":63,"gres":null})");
  ASSERT_TRUE(spec) << spec.error().message;
  EXPECT_EQ(spec->name, "x");
  EXPECT_EQ(spec->umask, 63U);
  EXPECT_TRUE(spec->batch);
  EXPECT_FALSE(spec->gres);
}

TEST(Json, AnUpdateChangesWhatItNamesAndNullTakesAway) {
  JobSpec spec;
  spec.name = "old";
  spec.time_limit_ms = 60'000;
  spec.gres = "gpu:1";
  ASSERT_TRUE(update_from_json(spec, R"({"name":"new","time_limit_ms":null})"));
  EXPECT_EQ(spec.name, "new");
  EXPECT_FALSE(spec.time_limit_ms);
  EXPECT_EQ(spec.gres, "gpu:1");
}

TEST(Json, NamesTheFieldOfTheWrongType) {
  EXPECT_EQ(from_json<JobSpec>(R"({"nice":"much"})").error().message,
            "nice: expected a whole number in range");
  EXPECT_EQ(from_json<JobSpec>(R"({"environment":["A=1",2]})").error().message,
            "environment[1]: expected a text");
  EXPECT_EQ(from_json<JobSpec>(R"({"signal":{"number":5000000000}})").error().message,
            "signal.number: expected a whole number in range");
  EXPECT_FALSE(from_json<JobSpec>("[]"));
  EXPECT_FALSE(from_json<JobSpec>("{"));
  EXPECT_FALSE(from_json<JobSpec>(std::string(100'000, '[')));
}

// Whatever bytes a user puts into a name or a variable come out as they went in.
RC_GTEST_PROP(Json, TextSurvives, (const std::string& name, const std::vector<std::string>& env)) {
  JobSpec spec;
  spec.name = name;
  spec.environment = env;
  const auto back = from_json<JobSpec>(to_json(spec));
  RC_ASSERT(back.has_value());
  RC_ASSERT(back->name == name);
  RC_ASSERT(back->environment == env);
}

TEST(Json, ABriefListLeavesOutWhatATableDoesNotShow) {
  const auto job = filled<JobInfo>();
  JobListWriter brief(1, true);
  brief.add(job);
  const auto read = from_json<JobList>(brief.take());
  ASSERT_TRUE(read);
  ASSERT_EQ(read->jobs.size(), 1U);
  const JobInfo& shown = read->jobs[0];
  EXPECT_EQ(shown.name, job.name);
  EXPECT_EQ(shown.reason, job.reason);
  EXPECT_EQ(shown.command + shown.work_dir + shown.std_out + shown.std_err + shown.std_in, "");
  EXPECT_EQ(shown.comment + shown.reason_detail + shown.dependency + shown.submit_host, "");
  JobListWriter whole(1);
  whole.add(job);
  EXPECT_EQ(from_json<JobList>(whole.take())->jobs.at(0).reason_detail, job.reason_detail);
}

}  // namespace
}  // namespace aliquot::api
