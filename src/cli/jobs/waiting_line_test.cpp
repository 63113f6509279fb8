#include "cli/jobs/waiting_line.hpp"

#include <gtest/gtest.h>

#include <cstdlib>
#include <ctime>

namespace aliquot::cli {
namespace {

TEST(WaitingLine, HasThePlaceAndTheTime) {
  ::setenv("TZ", "UTC", 1);
  ::tzset();
  const WallTime now(1'800'057'600'000);  // 2027-01-16T00:00:00
  api::WhyInfo why;
  why.job_id = 7;
  why.sentences = {"No GPU is free.",
                   "2 jobs are before it in the queue, the first of them job 5 of ann."};
  EXPECT_EQ(waiting_line("srun", why, now), "srun: job 7: 2 jobs are before it");
  why.earliest_start_ms = (now + minutes(12)).ms();
  EXPECT_EQ(waiting_line("srun", why, now),
            "srun: job 7: 2 jobs are before it; expected to start at 00:12:00, in 12:00");
  why.sentences = {"No GPU is free."};
  why.earliest_start_ms = (now + hours(30)).ms();
  EXPECT_EQ(waiting_line("salloc", why, now),
            "salloc: job 7: No GPU is free; expected to start at 2027-01-17T06:00:00, in "
            "1-06:00:00");
  why.earliest_start_ms = now.ms();
  EXPECT_EQ(waiting_line("salloc", why, now),
            "salloc: job 7: No GPU is free; expected to start at any moment");
}

TEST(WaitingLine, IsCutBetweenCharacters) {
  EXPECT_EQ(cut_to_columns("Straße", 5), "Straß");
  EXPECT_EQ(cut_to_columns("Straße", 6), "Straße");
  EXPECT_EQ(cut_to_columns("", 3), "");
}

}  // namespace
}  // namespace aliquot::cli
