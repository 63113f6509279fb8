#include "sim/report.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace aliquot::sim {
namespace {

using ::testing::HasSubstr;

TEST(Report, EscapesStrings) {
  EXPECT_EQ(json_string("a\"b\\c\n\xff\xc3\xa9"), "\"a\\\"b\\\\c\\u000a\\ufffd\xc3\xa9\"");
  EXPECT_EQ(json_string(""), "\"\"");
}

struct Sample {
  Workload workload;
  Plan plan{.policies = {"fgd"}, .seeds = {42, 43, 51}};
  Outcome outcome;
  Sample() {
    workload.nodes_name = "nodes.csv";
    workload.pods_name = "pods.csv";
    workload.gpus = 6212;
    PolicySummary policy;
    policy.policy = "fgd";
    policy.points = {{100, 95.23, 0.1}};
    policy.replays.resize(3);
    for (auto& replay : policy.replays) replay.points = {{100, 95.23}};
    policy.decisions = 300;
    policy.placed = 200;
    policy.cpu_ns = 10'000'000;
    outcome.policies = {policy};
  }
  [[nodiscard]] Report report() const { return {workload, plan, outcome, Compute(11'300), 1, {}}; }
};

TEST(Report, PrintsMeansDeviationsAndSpeed) {
  const Sample sample;
  const auto text = format_text(sample.report());
  EXPECT_THAT(text, HasSubstr("seeds 42-43,51, compute over-committed 1.13 times"));
  EXPECT_THAT(text, HasSubstr("95.23 ±0.10"));
  EXPECT_THAT(text, HasSubstr("30.0k"));
}

TEST(Report, ComparesWithWhatIsPublished) {
  const Sample sample;
  auto report = sample.report();
  report.expected = {{"w", "fgd", 4, {{100, 95.00, 0.5}, {130, 99.0, {}}}}, {"w", "random", 4, {}}};
  const auto text = format_text(report);
  EXPECT_THAT(text, HasSubstr("95.00     95.23      +0.23     0.250"));
  EXPECT_THAT(format_json(report), HasSubstr("\"difference\": 0.2300, \"standard_error\": 0.2500"));
}

}  // namespace
}  // namespace aliquot::sim
