#include "slurm/agent/own_drain.hpp"

#include <gtest/gtest.h>

#include "slurm/fake_client.hpp"
#include "slurm/plugins/drain.h"

namespace aliquot::slurm {
namespace {

class OwnDrainTest : public testing::Test {
 protected:
  OwnDrainTest() { slurm_.known_nodes = {{.name = "n1", .state = "IDLE"}}; }

  void drain(const std::string& reason) {
    slurm_.known_nodes[0].state = "MIXED+DRAIN";
    slurm_.known_nodes[0].reason = reason;
  }
  // As the agent does it, four times a second.
  void pass(Millis time, bool fit = true) {
    for (Millis gone(0); gone < time; gone += Millis(250)) {
      clock_.advance(Millis(250));
      drain_.round(fit);
    }
  }
  [[nodiscard]] bool drained() const { return slurm_.known_nodes[0].state != "IDLE"; }

  FakeSlurm slurm_;
  ManualClock clock_;
  OwnDrain drain_{slurm_, "n1", clock_};
};

TEST_F(OwnDrainTest, AnAgentThatStartsTakesJobsAgain) {
  drain(ALIQUOT_DRAIN_SILENT);
  pass(seconds(1));
  EXPECT_FALSE(drained());
}

TEST_F(OwnDrainTest, OneThatWasStoppedTakesJobsAgain) {
  pass(minutes(10));
  drain(ALIQUOT_DRAIN_SILENT);
  clock_.advance(seconds(20));
  pass(Millis(250));
  EXPECT_FALSE(drained());
  // A step that had given up comes after it.
  drain(ALIQUOT_DRAIN_SILENT);
  pass(seconds(3));
  EXPECT_FALSE(drained());
}

// It was busy, not stopped: no round was late.
TEST_F(OwnDrainTest, OneThatDidNotAnswerInTimeTakesJobsAgain) {
  pass(minutes(10));
  drain_.look_soon();
  pass(Millis(500));
  drain(ALIQUOT_DRAIN_SILENT);
  pass(seconds(3));
  EXPECT_FALSE(drained());
}

TEST_F(OwnDrainTest, WhatTheAgentFoundKeepsJobsAwayUntilItIsOver) {
  pass(minutes(10));
  drain_.keep_away("GPU 0 is broken");
  pass(seconds(1));
  EXPECT_TRUE(drained());
  EXPECT_EQ(slurm_.known_nodes[0].reason, "aliquot-agent: GPU 0 is broken");
  pass(minutes(5));
  EXPECT_TRUE(drained());
  drain_.keep_away("GPUs 0 and 1 are broken");
  pass(seconds(1));
  EXPECT_EQ(slurm_.known_nodes[0].reason, "aliquot-agent: GPUs 0 and 1 are broken");
  drain_.keep_away("");
  pass(seconds(1));
  EXPECT_FALSE(drained());
}

TEST_F(OwnDrainTest, ANodeThatIsNotWhatSlurmctldTakesItForTakesNoJobs) {
  OwnDrain judging(slurm_, "n1", clock_, [](const SlurmNode& node) {
    return node.gres == "gpu:4" ? std::string() : std::string("there are 3 GPUs");
  });
  const auto go_on = [&] {
    for (int i = 0; i < 300; ++i) {
      clock_.advance(Millis(250));
      judging.round(true);
    }
  };
  go_on();
  EXPECT_EQ(slurm_.known_nodes[0].reason, "aliquot-agent: there are 3 GPUs");
  EXPECT_EQ(slurm_.drains, 1);
  slurm_.known_nodes[0].gres = "gpu:4";
  go_on();
  EXPECT_FALSE(drained());
}

TEST_F(OwnDrainTest, AnAdministratorWhoKnowsBetterIsNotContradicted) {
  drain_.keep_away("GPU 0 is broken");
  pass(seconds(1));
  slurm_.known_nodes[0] = {.name = "n1", .state = "IDLE"};
  pass(minutes(5));
  EXPECT_FALSE(drained());
  EXPECT_EQ(slurm_.drains, 1);
}

TEST_F(OwnDrainTest, AnothersDrainComesFirst) {
  drain("bad fan");
  drain_.keep_away("GPU 0 is broken");
  pass(minutes(5));
  EXPECT_EQ(slurm_.known_nodes[0].reason, "bad fan");
  slurm_.known_nodes[0].state = "IDLE";
  pass(minutes(2));
  EXPECT_EQ(slurm_.known_nodes[0].reason, "aliquot-agent: GPU 0 is broken");
}

TEST_F(OwnDrainTest, IsTriedUntilSlurmctldAnswers) {
  slurm_.away = true;
  drain_.keep_away("GPU 0 is broken");
  pass(minutes(5));
  slurm_.away = false;
  pass(seconds(3));
  EXPECT_TRUE(drained());
  slurm_.away = true;
  drain_.keep_away("");
  pass(minutes(5));
  slurm_.away = false;
  pass(seconds(3));
  EXPECT_FALSE(drained()) << "one that is too busy to answer is not asked less often";
}

TEST_F(OwnDrainTest, AnAdministratorsDrainStays) {
  for (const char* reason : {"bad fan", "", "aliquot-agent does not answer, says Bob"}) {
    drain(reason);
    clock_.advance(seconds(20));
    pass(minutes(5));
    EXPECT_TRUE(drained()) << reason;
  }
}

TEST_F(OwnDrainTest, WhatCannotHoldSharesStaysDrained) {
  drain(ALIQUOT_DRAIN_UNFIT);
  pass(minutes(5), false);
  EXPECT_TRUE(drained());
  drain_.trouble();
  pass(seconds(50));
  EXPECT_TRUE(drained());
  pass(minutes(2));
  EXPECT_FALSE(drained());
}

TEST_F(OwnDrainTest, SlurmctldIsAskedSeldom) {
  pass(minutes(10));
  EXPECT_LE(slurm_.node_questions, 16);
}

}  // namespace
}  // namespace aliquot::slurm
