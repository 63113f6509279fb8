#include "engine/end_words.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace aliquot::engine {
namespace {

using ::testing::ElementsAre;

api::JobInfo ended_as(std::string state) {
  api::JobInfo job;
  job.id = 7;
  job.state = std::move(state);
  job.start_ms = 1'700'000'000'000;
  job.end_ms = *job.start_ms + 12'000;
  return job;
}

TEST(EndWords, SayWhatTheJobRanInto) {
  auto late = ended_as("TIMEOUT");
  late.time_limit_ms = 60'000;
  EXPECT_THAT(end_sentences(late),
              ElementsAre("Job 7 is over: TIMEOUT.",
                          "It ran into its time limit, 1:00: ask for more with --time=2:00."));
  auto large = ended_as("OUT_OF_MEMORY");
  large.memory = 50 << 20;
  EXPECT_THAT(end_sentences(large),
              ElementsAre("Job 7 is over: OUT_OF_MEMORY.",
                          "It used more memory than its 50M: ask for more with --mem=100M."));
}

TEST(EndWords, SayHowItEnded) {
  auto failed = ended_as("FAILED");
  failed.exit_code = 3;
  failed.reason_detail = "process 31 held 9 GiB of gpu0, and was ended";
  EXPECT_THAT(end_sentences(failed),
              ElementsAre("Job 7 is over: FAILED.", "It ended with exit code 3 after 0:12.",
                          "Process 31 held 9 GiB of gpu0, and was ended."));
  failed.exit_signal = 11;
  EXPECT_EQ(end_sentences(failed).at(1), "Signal 11 (Segmentation fault) ended it after 0:12.");
}

TEST(EndWords, ThinkOfTheGpusMemory) {
  auto failed = ended_as("FAILED");
  failed.exit_code = 1;
  failed.gpus.push_back({.index = 0,
                         .uuid = "GPU-a",
                         .model = {},
                         .memory = std::int64_t{8} << 30,
                         .compute = 5'000});
  failed.gpu_memory_peak = (std::int64_t{8} << 30) - 1024;
  EXPECT_THAT(end_sentences(failed).back(), ::testing::HasSubstr("ask for more with --gpu-mem"));
  failed.gpu_memory_peak = 1 << 30;
  EXPECT_EQ(end_sentences(failed).size(), 2U);
}

TEST(EndWords, ACompletedJobNeedsNone) {
  EXPECT_THAT(end_sentences(ended_as("COMPLETED")), ElementsAre("Job 7 is over: COMPLETED."));
}

}  // namespace
}  // namespace aliquot::engine
