#include "cli/view/job_text.hpp"

#include <gtest/gtest.h>

#include "cli/view/samples.hpp"

namespace aliquot::cli {
namespace {

using namespace samples;

TEST(JobText, KnowsTheStates) {
  EXPECT_EQ(compact_state("OUT_OF_MEMORY"), "OOM");
  EXPECT_EQ(find_state("pd"), "PENDING");
  EXPECT_EQ(find_state("Running"), "RUNNING");
  EXPECT_FALSE(find_state("purple"));
}

TEST(JobText, MatchesIds) {
  const auto waiting = array(7, "1-6%2");
  EXPECT_TRUE(matches_job_id(waiting, "7"));
  EXPECT_TRUE(matches_job_id(waiting, "7_3"));
  EXPECT_FALSE(matches_job_id(waiting, "7_9"));
  auto element = running(9, "arr");
  element.array_job_id = 7;
  element.array_task_id = 2;
  EXPECT_TRUE(matches_job_id(element, "7"));
  EXPECT_TRUE(matches_job_id(element, "9"));
  EXPECT_TRUE(matches_job_id(element, "7_2"));
  EXPECT_FALSE(matches_job_id(element, "7_3"));
  EXPECT_FALSE(matches_job_id(element, "x"));
}

TEST(JobText, ReadsTheElementsOfAnArray) {
  using Elements = std::vector<std::int64_t>;
  EXPECT_EQ(array_elements("1-3,7,9-15:2%2"), (Elements{1, 2, 3, 7, 9, 11, 13, 15}));
  EXPECT_EQ(array_elements("1-3,..."), Elements{});
  EXPECT_EQ(array_elements("0-99999999999"), Elements{});
}

TEST(JobText, CountsTheTimeThatRan) {
  auto one = running(1, "x");
  EXPECT_EQ(time_used(one, kNow), seconds(29));
  one.state = "SUSPENDED";
  one.suspend_ms = kSubmit + 16'000;
  EXPECT_EQ(time_used(one, kNow), seconds(15));
  one.state = "RUNNING";
  one.suspended_total_ms = 4'000;
  EXPECT_EQ(time_used(one, kNow), seconds(25));
}

TEST(JobText, WritesResources) {
  auto one = job(1, "x", "None");
  one.gres = "gpu:titanrtx:2";
  EXPECT_EQ(requested_tres(one), "cpu=4,mem=4G,node=1,billing=4,gres/gpu=2,gres/gpu:titanrtx=2");
  EXPECT_EQ(tres_per_node(one), "gres/gpu:titanrtx:2");
  one.gres = "mps:25";
  EXPECT_EQ(tres_per_node(one), "gres/mps:25");
  one.gres = "shard:4 --gpus=2";
  EXPECT_EQ(tres_per_node(one), "gres/shard:8");
  one.gres = "--gpu-mem=8G --gpu-share=12.5% --gpus=2";
  EXPECT_EQ(tres_per_node(one), "gres/gpumem:16G,gres/gpuutil:25");
  one.gres = "gpu:1 --constraint=a100|h100";
  EXPECT_EQ(tres_per_node(one), "gres/gpu:1");
  EXPECT_EQ(memory_text(gib(1).value() + mib(512).value()), "1536M");
  EXPECT_EQ(memory_text(gib(4).value(), false), "4096M");
  EXPECT_EQ(gres_type("NVIDIA H200 (x)"), "nvidia_h200__x_");
}

}  // namespace
}  // namespace aliquot::cli
