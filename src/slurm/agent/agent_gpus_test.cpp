// What the agent sees of the GPUs and slurmctld does not.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "slurm/agent/agent_fixture.hpp"

namespace aliquot::slurm {
namespace {

using ::testing::HasSubstr;

std::vector<node::GpuView> views_of(const std::vector<gpu::Device>& gpus) {
  std::vector<node::GpuView> views(gpus.size());
  for (std::size_t i = 0; i < gpus.size(); ++i) views[i].sample.id = gpus[i].gpu.id;
  return views;
}

class AgentGpusTest : public AgentTest {};

TEST_F(AgentGpusTest, ABrokenGpuClosesTheNodeAndItsJobsAreTold) {
  slurm_.known_nodes = {{.name = "n1", .state = "IDLE", .gres = "gpu:a100:4,shard:a100:320"}};
  Stepd stepd;
  ASSERT_TRUE(grant(step(), stepd.pid()));
  auto views = views_of(gpus_);
  views[1].sample.trouble = "xid79";
  observe(views);
  pass(seconds(1));
  EXPECT_EQ(slurm_.known_jobs[0].admin_comment, "aliquot: --gpu-mem=8G; broken GPU on n1");
  EXPECT_EQ(slurm_.known_nodes[0].state, "IDLE+DRAIN");
  EXPECT_EQ(slurm_.known_nodes[0].reason,
            "aliquot-agent: GPU 1 is broken: Xid 79, it has fallen off the bus");
  // One that was on its way goes elsewhere; the other goes on.
  slurm_.known_jobs.push_back(job(8));
  const auto late = grant(step(8), stepd.pid());
  ASSERT_FALSE(late);
  EXPECT_TRUE(is_nodes_fault(late.error()));
  EXPECT_TRUE(grant(step(), stepd.pid()));
  observe(views_of(gpus_));
  pass(seconds(1));
  EXPECT_EQ(slurm_.known_nodes[0].state, "IDLE");
  EXPECT_TRUE(grant(step(8), stepd.pid()));
}

TEST_F(AgentGpusTest, AGpuThatWasLostBeforeIsMissed) {
  slurm_.known_nodes = {{.name = "n1", .state = "IDLE", .gres = "gpu:a100:5,shard:a100:400"}};
  observe(views_of(gpus_));
  pass(seconds(1));
  EXPECT_EQ(slurm_.known_nodes[0].reason,
            "aliquot-agent: slurm.conf gives it 5 GPUs, the driver shows 4");
}

TEST_F(AgentGpusTest, MemoryThatIsNotFreeIsNotPromised) {
  slurm_.known_nodes = {{.name = "n1", .state = "IDLE", .gres = "gpu:a100:4,shard:a100:320"}};
  auto views = views_of(gpus_);
  views[1].processes = {{.pid = 1, .user = "eve", .memory = gib(115)}};
  observe(views);
  Stepd stepd;
  const auto refused = grant(step(), stepd.pid());
  ASSERT_FALSE(refused);
  EXPECT_TRUE(is_nodes_fault(refused.error()));
  EXPECT_THAT(refused.error().message, HasSubstr("processes of no job hold 117760 MiB of GPU 1"));
  EXPECT_EQ(slurm_.known_nodes[0].state, "IDLE");
  clock_.advance(seconds(2));
  observe(views);
  pass(seconds(1));
  EXPECT_EQ(slurm_.known_nodes[0].reason,
            "aliquot-agent: processes of no job hold memory of GPU 1 that was given to jobs");
  views[1].processes.clear();
  observe(views);
  pass(seconds(1));
  EXPECT_EQ(slurm_.known_nodes[0].state, "IDLE");
  EXPECT_TRUE(grant(step(), stepd.pid()));
}

// They need nothing of the agent, and run: so it watches them, and keeps nobody away for them.
TEST_F(AgentGpusTest, WholeGpusOfSlurmsStartWhateverHoldsTheirMemory) {
  slurm_.known_nodes = {{.name = "n1", .state = "IDLE", .gres = "gpu:a100:4,shard:a100:320"}};
  slurm_.known_jobs[0].details = {{"n1", "gpu:a100:1(IDX:1)"}};
  slurm_.known_jobs[0].admin_comment = "aliquot: gpu:1";
  StepFacts whole = step();
  whole.shards = 0;
  auto views = views_of(gpus_);
  views[1].processes = {{.pid = 1, .user = "eve", .memory = gib(2)}};
  observe(views);
  Stepd stepd;
  EXPECT_TRUE(grant(whole, stepd.pid()));
  EXPECT_EQ(agent_->jobs(), 1U);
  clock_.advance(seconds(5));
  observe(views);
  pass(seconds(1));
  EXPECT_EQ(slurm_.known_nodes[0].state, "IDLE");
  views[1].sample.trouble = "xid79";
  observe(views);
  EXPECT_EQ(slurm_.known_jobs[0].admin_comment, "aliquot: gpu:1; broken GPU on n1");
}

// A drain for a broken GPU outlives the agent that found it.
TEST_F(AgentGpusTest, AnAgentThatStartsLooksBeforeItTakesJobs) {
  slurm_.known_nodes = {{.name = "n1", .state = "IDLE", .gres = "gpu:a100:4,shard:a100:320"}};
  auto views = views_of(gpus_);
  views[1].sample.trouble = "ecc";
  observe(views);
  pass(seconds(1));
  ASSERT_EQ(slurm_.known_nodes[0].state, "IDLE+DRAIN");
  start();
  pass(seconds(1));
  EXPECT_EQ(slurm_.known_nodes[0].state, "IDLE+DRAIN") << "it has not looked yet";
  observe(views);
  pass(seconds(1));
  EXPECT_EQ(slurm_.known_nodes[0].state, "IDLE+DRAIN");
  observe(views_of(gpus_));
  pass(seconds(1));
  EXPECT_EQ(slurm_.known_nodes[0].state, "IDLE");
}

// What is over holds nothing, if slurmctld is asked.
TEST_F(AgentGpusTest, WhoFindsNoRoomHasTheIdleJobsAskedFor) {
  slurm_.known_jobs[0].admin_comment = "aliquot: --gpu-mem=60G";
  slurm_.known_jobs[0].details = {{"n1", "shard:a100:120(IDX:1)"}};
  Stepd stepd;
  ASSERT_TRUE(grant(step(), stepd.pid()));
  leave(step(), stepd.pid());
  for (int i = 0; i < 100; ++i) pass(seconds(1));  // it may be an idle salloc's
  slurm_.known_jobs[0].state = "COMPLETED";
  slurm_.known_jobs.push_back(job(8));
  slurm_.known_jobs[1].admin_comment = "aliquot: --gpu-mem=60G";
  slurm_.known_jobs[1].details = {{"n1", "shard:a100:120(IDX:1)"}};
  auto views = views_of(gpus_);
  views[1].processes = {{.pid = 1, .user = "eve", .memory = gib(40)}};
  agent_->observe(views);
  EXPECT_FALSE(grant(step(8), stepd.pid()));
  pass(Millis(250));
  EXPECT_TRUE(grant(step(8), stepd.pid()));
}

TEST_F(AgentGpusTest, WhatAJobUsedIsInItsRecordWhenItsLastStepEnds) {
  slurm_.known_jobs[0].details = {{"n1", "gpu:a100:1(IDX:1)"}};
  Stepd first;
  Stepd second;
  ASSERT_TRUE(grant(step(), first.pid()));
  ASSERT_TRUE(grant(step(), second.pid()));
  auto views = view_of(gpus_[1], first.pid(), 7, gib(6));
  views[0].sample.utilisation = Compute(5'000);
  clock_.advance(seconds(1));
  observe(views);
  clock_.advance(seconds(10));
  observe(views);
  leave(step(), first.pid());
  EXPECT_EQ(slurm_.known_jobs[0].admin_comment, "aliquot: --gpu-mem=8G");
  leave(step(), second.pid());
  EXPECT_EQ(slurm_.known_jobs[0].admin_comment, "aliquot: --gpu-mem=8G; used 5.0 s 6144M on n1");
}

}  // namespace
}  // namespace aliquot::slurm
