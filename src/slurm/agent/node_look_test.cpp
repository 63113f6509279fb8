#include "slurm/agent/node_look.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "slurm/agent/agent_fixture.hpp"

namespace aliquot::slurm {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class NodeLookTest : public AgentTest {
 protected:
  NodeLookTest() : look_({*agent_, *enforcer_, node_, names_, clock_, "550.1"}) {
    slurm_.known_jobs[0].name = "train\x1b[2J";
    slurm_.known_jobs[0].account = "physics";
    slurm_.known_jobs[0].partition = "gpu";
    slurm_.known_jobs[0].start_s = 1'790'000'000;
    slurm_.known_jobs[0].time_limit_s = 3'600;
  }
  void see(std::vector<node::GpuView> views) {
    agent_->observe(views);
    look_.observe(std::move(views));
  }
  UserNames names_{[](Uid uid) { return "user" + std::to_string(uid.value()); }};
  NodeLook look_;
};

TEST_F(NodeLookTest, ShowsWhatJobsHoldAndWhatOthersDo) {
  Stepd stepd;
  ASSERT_TRUE(grant(step(), stepd.pid()));
  auto views = view_of(gpus_[1], stepd.pid(), 7, gib(5));
  views[0].sample.utilisation = Compute(8'000);
  views[0].sample.memory_used = gib(7);
  views[0].processes.push_back({.pid = 1, .user = "eve", .command = "x\x1b", .memory = gib(2)});
  see(views);
  const api::Overview all = look_.overview();
  ASSERT_EQ(all.cluster.node.gpus.size(), 4U);
  const api::GpuInfo& gpu = all.cluster.node.gpus[1];
  EXPECT_EQ(gpu.index, 1);
  EXPECT_FALSE(gpu.stale);
  EXPECT_EQ(gpu.memory_used, gib(7).value());
  EXPECT_EQ(gpu.jobs, std::vector<std::int64_t>{7});
  EXPECT_EQ(gpu.memory_granted, gib(8).value());
  ASSERT_EQ(gpu.processes.size(), 2U);
  EXPECT_EQ(gpu.processes[0].job_id, 7);
  EXPECT_FALSE(gpu.processes[1].job_id.has_value());
  EXPECT_THAT(gpu.processes[1].command, Not(HasSubstr("\x1b")));
  ASSERT_EQ(gpu.uses.size(), 1U);
  EXPECT_EQ(gpu.uses[0].memory, gib(5).value());
  EXPECT_TRUE(all.cluster.node.gpus[0].stale) << "nothing was seen of it";
  ASSERT_EQ(all.jobs.size(), 1U);
  const api::JobInfo& job = all.jobs[0];
  EXPECT_THAT(job.name, Not(HasSubstr("\x1b")));
  EXPECT_EQ(job.account, "physics");
  EXPECT_EQ(job.start_ms, 1'790'000'000'000);
  EXPECT_EQ(job.end_ms, 1'790'003'600'000);
  ASSERT_EQ(job.gpus.size(), 1U);
  EXPECT_EQ(job.gpus[0].memory, gib(8).value());
  EXPECT_EQ(all.cluster.node.state, "mixed");
}

// A job is the same job to those who look after its agent was killed.
TEST_F(NodeLookTest, KnowsJobsOfTheAgentBefore) {
  Stepd stepd;
  ASSERT_TRUE(grant(step(), stepd.pid()));
  start();
  const NodeLook after({*agent_, *enforcer_, node_, names_, clock_, ""});
  const api::Overview all = after.overview();
  ASSERT_EQ(all.jobs.size(), 1U);
  EXPECT_EQ(all.jobs[0].account, "physics");
  EXPECT_EQ(all.jobs[0].partition, "gpu");
  EXPECT_EQ(all.jobs[0].start_ms, 1'790'000'000'000);
}

TEST_F(NodeLookTest, UsersAreNamedUnlessTheyAreNotToBe) {
  Stepd stepd;
  ASSERT_TRUE(grant(step(), stepd.pid()));
  auto views = view_of(gpus_[1], stepd.pid(), 7, gib(5));
  names_.add(agent_->running(), views);
  see(std::move(views));
  const std::string user = fmt::format("user{}", ::getuid());
  const auto known = [&] { return names_.of(Uid(::getuid())) == user; };
  for (int i = 0; i < 5'000 && !known(); ++i) ::usleep(1'000);
  const std::string said = look_.metrics({.users = true});
  EXPECT_THAT(said, HasSubstr("aliquot_build_info{program=\"aliquot-agent\""));
  EXPECT_THAT(said, HasSubstr("job=\"7\",user=\"" + user + "\",account=\"physics\""));
  EXPECT_THAT(said, HasSubstr("driver=\"550.1\""));
  const std::string less = look_.metrics({.users = false});
  EXPECT_THAT(less, HasSubstr("job=\"7\""));
  EXPECT_THAT(less, Not(HasSubstr("physics")));
}

// A user database that does not answer holds up nobody's look.
TEST_F(NodeLookTest, AUserWithoutANameHasHisNumber) {
  UserNames silent([](Uid) -> std::string {
    for (;;) ::pause();
  });
  std::vector<node::GpuView> views(1);
  views[0].processes = {{.pid = 1, .uid = Uid(7)}};
  silent.add({{HolderId("7"), Uid(8), ""}}, views);
  silent.add({{HolderId("7"), Uid(9), ""}}, views);
  EXPECT_EQ(views[0].processes[0].user, "7");
  EXPECT_EQ(silent.of(Uid(8)), "8");
}

TEST_F(NodeLookTest, WhatIsNotSeenAnyMoreIsOld) {
  see(view_of(gpus_[1], Pid(1), 7, gib(5)));
  EXPECT_FALSE(look_.overview().cluster.node.gpus[1].stale);
  look_.observe(std::nullopt);
  EXPECT_TRUE(look_.overview().cluster.node.gpus[1].stale);
  EXPECT_THAT(look_.metrics({}), Not(HasSubstr("aliquot_gpu_utilization_ratio{gpu=\"1\"")));
}

TEST_F(NodeLookTest, ABrokenGpuClosesTheNode) {
  auto views = view_of(gpus_[1], Pid(1), 7, gib(5));
  views[0].processes.clear();
  views[0].sample.trouble = "xid79";
  see(views);
  const api::NodeInfo node = look_.overview().cluster.node;
  EXPECT_EQ(node.state, "drained");
  EXPECT_THAT(node.reason, HasSubstr("GPU 1 is broken"));
  EXPECT_THAT(node.gpus[1].health, HasSubstr("Xid 79"));
  EXPECT_THAT(look_.metrics({}), HasSubstr("aliquot_gpu_healthy{gpu=\"1\","
                                           "uuid=\"GPU-00000000-0000-0000-0000-000000000001\"} 0"));
}

}  // namespace
}  // namespace aliquot::slurm
