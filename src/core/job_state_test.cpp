#include "core/job_state.hpp"

#include <gtest/gtest.h>

#include <vector>

namespace aliquot::core {
namespace {

std::vector<JobState> all_states() {
  std::vector<JobState> states;
  for (int i = 0; i <= static_cast<int>(JobState::deadline); ++i) {
    states.push_back(static_cast<JobState>(i));
  }
  return states;
}

TEST(JobState, NamesAreReadBack) {
  for (const JobState state : all_states()) {
    EXPECT_EQ(parse_job_state(long_name(state)), state);
    EXPECT_EQ(parse_job_state(short_name(state)), state);
  }
  EXPECT_EQ(parse_job_state("running"), JobState::running);
  EXPECT_EQ(parse_job_state("nonsense"), std::nullopt);
}

TEST(JobState, EveryStateIsWaitingActiveOrOver) {
  for (const JobState state : all_states()) {
    EXPECT_EQ((state == JobState::pending) + is_active(state) + is_final(state), 1);
  }
}

TEST(JobState, WhatIsOverOnlyComesBackByRequeue) {
  for (const JobState from : all_states()) {
    EXPECT_FALSE(may_change(from, from));
    for (const JobState to : all_states()) {
      if (is_final(from)) {
        EXPECT_EQ(may_change(from, to), to == JobState::pending);
      }
      if (from == JobState::pending && is_active(to)) {
        EXPECT_EQ(may_change(from, to), to == JobState::running);
      }
    }
  }
}

}  // namespace
}  // namespace aliquot::core
