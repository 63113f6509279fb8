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
