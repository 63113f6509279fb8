#include "slurm/agent/agent.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "node/grant_folder.hpp"
#include "node/mapped_usage_fixture.hpp"
#include "slurm/admin_comment.hpp"
#include "slurm/agent/agent_fixture.hpp"
#include "slurm/gres.hpp"
#include "slurm/plugins/drain.h"

namespace aliquot::slurm {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::Not;

TEST_F(AgentTest, AStepGetsTheViewOfItsJobsGpu) {
  Stepd stepd;
  const auto lines = grant(step(), stepd.pid());
  ASSERT_TRUE(lines) << lines.error().message;
  EXPECT_THAT(*lines,
              HasSubstr("set CUDA_VISIBLE_DEVICES=GPU-00000000-0000-0000-0000-000000000001"));
  EXPECT_THAT(*lines, HasSubstr("prepend LD_PRELOAD=" + library().string()));
  EXPECT_THAT(*lines, HasSubstr("set ALIQUOT_GRANT="));
  EXPECT_TRUE(held());
  // The next step asks nobody.
  const int asked = slurm_.questions;
  Stepd second;
  EXPECT_EQ(grant(step(), second.pid()).value(), *lines);
  EXPECT_EQ(slurm_.questions, asked);
}

TEST_F(AgentTest, SomebodyElsesJobIsRefused) {
  Stepd stepd;
  StepFacts other = step();
  other.uid = 4242;
  EXPECT_FALSE(grant(other, stepd.pid()));
  EXPECT_FALSE(held());
  ASSERT_TRUE(grant(step(), stepd.pid()));
  EXPECT_FALSE(grant(other, stepd.pid()));
}

TEST_F(AgentTest, AJobSlurmDoesNotKnowIsRefused) {
  Stepd stepd;
  EXPECT_FALSE(grant(step(8), stepd.pid()));
}

TEST_F(AgentTest, ReleasesWhenSlurmSaysItIsOver) {
  Stepd stepd;
  ASSERT_TRUE(grant(step(), stepd.pid()));
  pass(seconds(100));
  EXPECT_TRUE(held());
  stepd.end();
  pass(seconds(1));
  pass(seconds(1));
  EXPECT_TRUE(held()) << "salloc without a step still holds its share";
  slurm_.known_jobs[0].state = "COMPLETED";
  pass(seconds(31));
  EXPECT_FALSE(held());
  EXPECT_EQ(agent_->jobs(), 0U);
}

TEST_F(AgentTest, AJobThatSlurmForgotIsOver) {
  Stepd stepd;
  ASSERT_TRUE(grant(step(), stepd.pid()));
  stepd.end();
  slurm_.known_jobs.clear();
  pass(seconds(1));
  pass(seconds(1));
  EXPECT_FALSE(held());
}

TEST_F(AgentTest, KeepsEverythingWhileSlurmctldIsAway) {
  Stepd stepd;
  ASSERT_TRUE(grant(step(), stepd.pid()));
  stepd.end();
  slurm_.away = true;
  for (int i = 0; i < 10; ++i) pass(seconds(60));
  EXPECT_TRUE(held());
  // And starts what slurmstepd vouches for.
  Stepd other;
  EXPECT_TRUE(grant(step(9), other.pid()));
  EXPECT_TRUE(held(9));
}

Bytes limit_of(const fs::path& run, const std::string& holder) {
  const auto folder = node::GrantFolder::open(run / "grants", HolderId(holder));
  return folder->gpus().at(0).portion.memory;
}
Bytes limit_of(const fs::path& run, std::int64_t job) { return limit_of(run, std::to_string(job)); }

TEST_F(AgentTest, WhatWasGrantedWithoutSlurmctldIsPutRight) {
  const std::int64_t all = shards_of(gib(120), ShareSettings{}.unit);
  slurm_.away = true;
  Stepd stepd;
  ASSERT_TRUE(grant(step(), stepd.pid()));
  EXPECT_EQ(limit_of(run(), 7), shard_memory(gib(120), all, 8)) << "what was booked";
  slurm_.known_jobs[0].admin_comment = "aliquot: --gpu-mem=2G --gpu-share=10%";
  for (int i = 0; i < 3; ++i) pass(seconds(1));
  start();  // it remembers what is to be asked
  slurm_.away = false;
  pass(seconds(1));
  EXPECT_EQ(limit_of(run(), 7), gib(2));
  const int asked = slurm_.questions;
  pass(seconds(1));
  EXPECT_EQ(slurm_.questions, asked) << "once";
  EXPECT_EQ(agent_->jobs(), 1U);
}

// Whoever takes all that there is must not be ended for it.
TEST_F(AgentTest, WhatAJobHasTakenOfItsBookingStaysItsOwnWhenItIsPutRight) {
  slurm_.away = true;
  Stepd stepd;
  ASSERT_TRUE(grant(step(), stepd.pid()));
  const Bytes booked = limit_of(run(), 7);
  ASSERT_GT(booked, gib(6));
  test::MappedUsage usage(run() / "grants" / "7");
  usage->high_water = 1;
  const Pid process = usage.take(0);
  usage->slots[0].gpus[0].charged = gib(5).value();
  slurm_.known_jobs[0].admin_comment = "aliquot: --gpu-mem=2G --gpu-share=10%";
  slurm_.away = false;
  pass(seconds(2));
  EXPECT_EQ(limit_of(run(), 7), gib(5));
  // Nor after a restart.
  start();
  observe(view_of(gpus_[1], process, 7, gib(5)));
  pass(seconds(1));
  EXPECT_EQ(limit_of(run(), 7), gib(5));
  EXPECT_EQ(::kill(process.value(), 0), 0);
  EXPECT_TRUE(sys::is_alive(sys::read_process(process)->ref));
}

// The file is the job's own.
TEST_F(AgentTest, WhatAJobSaysThatItHoldsIsNoMoreThanItsBooking) {
  slurm_.away = true;
  Stepd stepd;
  ASSERT_TRUE(grant(step(), stepd.pid()));
  const Bytes booked = limit_of(run(), 7);
  test::MappedUsage usage(run() / "grants" / "7");
  usage->high_water = 1;
  usage.take(0);
  usage->slots[0].gpus[0].charged = gib(100).value();
  slurm_.known_jobs[0].admin_comment = "aliquot: --gpu-mem=2G --gpu-share=10%";
  slurm_.away = false;
  pass(seconds(2));
  EXPECT_EQ(limit_of(run(), 7), booked);
}

// Its words cannot get it more than was booked.
TEST_F(AgentTest, AScriptHasWhatItAskedForAlsoWithoutSlurmctld) {
  const std::int64_t all = shards_of(gib(120), ShareSettings{}.unit);
  slurm_.away = true;
  StepFacts script{.job = 7,
                   .step = kBatchStep,
                   .uid = ::getuid(),
                   .gid = ::getgid(),
                   .job_gpus = {1},
                   .shards = 8,
                   .words = "--gpu-mem=2G --gpu-share=5%"};
  Stepd stepd;
  ASSERT_TRUE(grant(script, stepd.pid()));
  EXPECT_EQ(limit_of(run(), 7), gib(2));
  script.job = 8;
  script.words = "--gpu-mem=100G";
  Stepd other;
  ASSERT_TRUE(grant(script, other.pid()));
  EXPECT_EQ(limit_of(run(), 8), shard_memory(gib(120), all, 8));
}

// A word that cannot be understood is not asked for in every look.
TEST_F(AgentTest, WhatCannotBePutRightIsAskedForInAWhile) {
  slurm_.away = true;
  Stepd stepd;
  ASSERT_TRUE(grant(step(), stepd.pid()));
  slurm_.away = false;
  slurm_.known_jobs[0].details = {{"n1", "shard:a100:8(IDX:9)"}};
  pass(seconds(2));
  const int asked = slurm_.questions;
  for (int i = 0; i < 20; ++i) pass(Millis(250));
  EXPECT_EQ(slurm_.questions, asked);
  slurm_.known_jobs[0] = job(7);
  pass(seconds(10));
  EXPECT_EQ(slurm_.questions, asked + 1);
  EXPECT_EQ(limit_of(run(), 7), gib(8));
}

// The grants of those that ask meanwhile must not wait for it.
TEST_F(AgentTest, OneThatDoesNotAnswerIsNotWaitedForTwice) {
  slurm_.away = true;
  Stepd stepd;
  ASSERT_TRUE(grant(step(), stepd.pid()));
  EXPECT_FALSE(agent_->wants_word(step(8)));
  Stepd second;
  ASSERT_TRUE(grant(step(9), second.pid()));
  clock_.advance(seconds(2));
  const auto first = agent_->questions();
  const auto next = agent_->questions();
  ASSERT_EQ(first.size(), 1U);
  ASSERT_EQ(next.size(), 1U);
  EXPECT_NE(first, next);
  slurm_.away = false;
  pass(seconds(1));
  EXPECT_TRUE(agent_->wants_word(step(8)));
  EXPECT_FALSE(agent_->wants_word(step(7)));
}

TEST_F(AgentTest, AJobThatHoldsNothingHereHasNothing) {
  slurm_.away = true;
  Stepd stepd;
  ASSERT_TRUE(grant(step(), stepd.pid()));
  slurm_.away = false;
  slurm_.known_jobs[0].details = {{"n2", "shard:a100:8(IDX:1)"}};
  pass(seconds(1));
  EXPECT_EQ(limit_of(run(), 7), Bytes(1));
}

// SLURM_JOB_GPUS is the user's in all steps but the script's, where SLURM_STEP_GPUS is.
TEST_F(AgentTest, WithoutSlurmctldOnlyWhatSlurmHasSetCounts) {
  slurm_.away = true;
  Stepd stepd;
  StepFacts one = step(8);
  one.job_gpus = {0, 1, 2, 3};
  EXPECT_THAT(grant(one, stepd.pid()).value(),
              HasSubstr("=GPU-00000000-0000-0000-0000-000000000001\n"));
  StepFacts script = step(9);
  script.step = kBatchStep;
  script.job_gpus = {2};
  EXPECT_THAT(grant(script, stepd.pid()).value(),
              HasSubstr("=GPU-00000000-0000-0000-0000-000000000002\n"));
  StepFacts none = step(10);
  none.step_gpus.clear();
  none.job_gpus = {3};
  const auto refused = grant(none, stepd.pid());
  ASSERT_FALSE(refused);
  EXPECT_TRUE(is_nodes_fault(refused.error()));
  EXPECT_THAT(refused.error().message, HasSubstr("slurmctld does not answer"));
}

TEST_F(AgentTest, TakesEverythingUpAgainAfterItsEnd) {
  Stepd stepd;
  const auto lines = grant(step(), stepd.pid());
  ASSERT_TRUE(lines);
  start();
  EXPECT_EQ(agent_->jobs(), 1U);
  EXPECT_TRUE(held());
  EXPECT_EQ(grant(step(), stepd.pid()).value(), *lines);
  stepd.end();
  slurm_.known_jobs[0].state = "COMPLETED";
  pass(seconds(1));
  pass(seconds(1));
  EXPECT_FALSE(held());
}

TEST_F(AgentTest, WhatEndedWhileItWasAwayIsCleanedUp) {
  {
    Stepd stepd;
    ASSERT_TRUE(grant(step(), stepd.pid()));
  }
  slurm_.known_jobs.clear();
  start();
  pass(seconds(1));
  pass(seconds(1));
  EXPECT_FALSE(held());
  EXPECT_TRUE(fs::is_empty(run() / "jobs"));
}

TEST_F(AgentTest, ARequeuedJobIsHeldAnew) {
  Stepd stepd;
  ASSERT_TRUE(grant(step(), stepd.pid()));
  slurm_.known_jobs[0].restarts = 1;
  slurm_.known_jobs[0].details = {{"n1", "shard:a100:8(IDX:3)"}};
  StepFacts again = step();
  again.restarts = 1;
  again.step_gpus = {3};
  Stepd next;
  const auto lines = grant(again, next.pid());
  ASSERT_TRUE(lines);
  EXPECT_THAT(*lines, HasSubstr("-000000000003"));
}

TEST_F(AgentTest, DamagedNotesDoNotStopIt) {
  std::ofstream(run() / "jobs" / "12") << "half";
  std::ofstream(run() / "jobs" / "rubbish") << "{}";
  start();
  EXPECT_EQ(agent_->jobs(), 0U);
  EXPECT_TRUE(fs::is_empty(run() / "jobs"));
}

TEST_F(AgentTest, WholeGpusAreLeftToSlurm) {
  slurm_.known_jobs[0].details = {{"n1", "gpu:a100:2(IDX:0-1)"}};
  slurm_.known_jobs[0].admin_comment = "aliquot: gpu:2";
  StepFacts one = step();
  one.step_gpus = {1};
  one.shards = 0;
  Stepd stepd;
  const auto lines = grant(one, stepd.pid());
  ASSERT_TRUE(lines);
  EXPECT_THAT(*lines, Not(HasSubstr("CUDA_VISIBLE_DEVICES")));
  EXPECT_THAT(*lines, Not(HasSubstr("LD_PRELOAD")));
}

// Slurm's gres/mps plugin wipes it away.
TEST_F(AgentTest, AWholeGpuThatIsBookedAsShardsIsTold) {
  const std::int64_t all = shards_of(gib(120), ShareSettings{}.unit);
  slurm_.known_jobs[0].details = {{"n1", fmt::format("shard:a100:{}(IDX:1)", all)}};
  slurm_.known_jobs[0].admin_comment = "aliquot: gpu:1";
  StepFacts one = step();
  one.shards = all;
  Stepd stepd;
  const auto lines = grant(one, stepd.pid());
  ASSERT_TRUE(lines);
  EXPECT_THAT(*lines, HasSubstr("set CUDA_VISIBLE_DEVICES=GPU-"));
  EXPECT_THAT(*lines, Not(HasSubstr("LD_PRELOAD")));
  one.visible = "0";
  EXPECT_THAT(*grant(one, stepd.pid()), Not(HasSubstr("CUDA_VISIBLE_DEVICES")));
}

TEST(NodeSample, NamesTheLargestOfThoseWithoutAJob) {
  const NodeGpus node{"n1", gpu::fake_gpus(2, "a100", gib(80)), ShareSettings{}};
  auto views = view_of(node.devices[1], Pid(7), 7, gib(60));
  views[0].sample.utilisation = Compute(3'527);
  for (std::int64_t i = 1; i <= 6; ++i) {
    views[0].processes.push_back({.pid = i, .user = i == 6 ? "e e" : "eve", .memory = gib(i)});
  }
  const NodeSample sample = node_sample(node, views);
  ASSERT_EQ(sample.gpus.size(), 1U);
  EXPECT_EQ(sample.gpus[0].index, 1);
  EXPECT_EQ(sample.gpus[0].utilisation, Compute(3'527));
  EXPECT_EQ(
      sample.gpus[0].foreign,
      (std::vector<ForeignProcess>{
          {6, "unknown", gib(6)}, {5, "eve", gib(5)}, {4, "eve", gib(4)}, {3, "eve", gib(3)}}));
}

TEST_F(AgentTest, AJobThatNeverAskedIsHeldToItsShare) {
  Stepd process;
  observe(view_of(gpus_[1], process.pid(), 7, gib(60)));
  EXPECT_TRUE(held());
  EXPECT_EQ(agent_->jobs(), 1U);
  // Everybody can see it, and its words are as they were.
  EXPECT_EQ(slurm_.known_jobs[0].admin_comment, "aliquot: --gpu-mem=8G; escape on n1");
  EXPECT_EQ(asked_words(slurm_.known_jobs[0].admin_comment), "--gpu-mem=8G");
  observe(view_of(gpus_[1], process.pid(), 7, gib(60)));
  EXPECT_EQ(slurm_.known_jobs[0].admin_comment, "aliquot: --gpu-mem=8G; escape on n1");
  // One that asks after all has what it would have had.
  Stepd stepd;
  EXPECT_THAT(grant(step(), stepd.pid()).value(), HasSubstr("set ALIQUOT_GRANT="));
  stepd.end();
  slurm_.known_jobs[0].state = "COMPLETED";
  pass(seconds(1));
  pass(seconds(31));
  EXPECT_FALSE(held());
}

TEST_F(AgentTest, AnEscapeWhileSlurmctldIsAwayIsNotedWhenItIsBack) {
  Stepd stepd;
  ASSERT_TRUE(grant(step(), stepd.pid()));
  slurm_.away = true;
  Stepd process;
  const auto views = view_of(gpus_[1], process.pid(), 7, gib(60));
  observe(views);
  observe(views);
  const int asked = slurm_.questions;
  for (int i = 0; i < 10; ++i) pass(seconds(1));
  EXPECT_LE(slurm_.questions, asked + 10) << "once a second is enough";
  slurm_.away = false;
  for (int i = 0; i < 11; ++i) pass(seconds(1));
  EXPECT_EQ(slurm_.known_jobs[0].admin_comment, "aliquot: --gpu-mem=8G; escape on n1");
}

// To read what it was started with may take for ever.
TEST_F(AgentTest, WhereSlurmMakesGroupsNobodysEnvironmentIsRead) {
  Stepd stepd;
  ASSERT_TRUE(grant(step(), stepd.pid()));
  const std::string mark = agent_->running().at(0).mark;
  const pid_t marked = ::fork();
  if (marked == 0) {
    ::execl("/usr/bin/env", "env", "-i", (std::string(node::kMarkVariable) + "=" + mark).c_str(),
            "/bin/sleep", "600", nullptr);
    ::_exit(127);
  }
  while (sys::environment_of(Pid(marked), node::kMarkVariable) != mark) ::usleep(1'000);
  gpu::FakeDevices devices(gpu::fake_gpus(1, "a100", gib(80)));
  devices.samples()[0].processes = {{.pid = marked, .memory = gib(1)}};
  const auto holder = [&] {
    return agent_->look_at(devices, agent_->running())->at(0).processes.at(0).holder;
  };
  EXPECT_EQ(holder(), std::nullopt);
  by_mark_ = true;
  start();
  EXPECT_EQ(holder(), HolderId("7"));
  ::kill(marked, SIGKILL);
  ::waitpid(marked, nullptr, 0);
}

// Nobody gave it the library: it cannot help being without.
TEST_F(AgentTest, WhatWasThereBeforeItsJobAskedIsNotJudgedForItsTime) {
  slurm_.known_jobs.push_back(job(8));
  Stepd neighbour;
  ASSERT_TRUE(grant(step(8), neighbour.pid()));
  Stepd process;
  auto views = view_of(gpus_[1], process.pid(), 7, mib(500));
  observe(views);
  Stepd stepd;
  ::testing::internal::CaptureStdout();
  EXPECT_THAT(grant(step(), stepd.pid()).value(), HasSubstr("prepend LD_PRELOAD="));
  EXPECT_THAT(::testing::internal::GetCapturedStdout(),
              testing::AllOf(HasSubstr("job 7 was only watched"), Not(HasSubstr("is over"))));
  const auto ends_beside = [&] {
    Stepd beside;
    views[0].processes.push_back(view_of(gpus_[1], beside.pid(), 8, mib(500))[0].processes[0]);
    for (std::int64_t i = 0; i < 2 * (core::kStrangerTime / core::kWatchInterval); ++i) {
      clock_.advance(core::kWatchInterval);
      observe(views);
    }
    views[0].processes.pop_back();
    return beside.dies();
  };
  EXPECT_TRUE(ends_beside()) << "it was told and got around it";
  EXPECT_TRUE(process.lives());
  start();
  EXPECT_TRUE(ends_beside());
  EXPECT_TRUE(process.lives()) << "also after a restart";
}

TEST_F(AgentTest, WhatHoldsNoShareIsNobodysToJudge) {
  Stepd process;
  slurm_.known_jobs[0].details = {{"n1", "gpu:a100:1(IDX:1)"}};
  observe(view_of(gpus_[1], process.pid(), 7, gib(60)));
  // Over, or of another cluster: a process that is on its way out is no escape.
  slurm_.known_jobs.push_back(job(8));
  slurm_.known_jobs[1].state = "COMPLETING";
  observe(view_of(gpus_[1], process.pid(), 8, gib(60)));
  observe(view_of(gpus_[1], process.pid(), 9, gib(60)));
  EXPECT_EQ(agent_->jobs(), 0U);
  EXPECT_EQ(slurm_.known_jobs[0].admin_comment, "aliquot: --gpu-mem=8G");
}

TEST_F(AgentTest, AStrangerIsAskedForOnceInAWhile) {
  Stepd process;
  slurm_.known_jobs[0].details = {{"n1", "gpu:a100:1(IDX:1)"}};
  const auto views = view_of(gpus_[1], process.pid(), 7, gib(60));
  for (int i = 0; i < 5; ++i) observe(views);
  EXPECT_EQ(slurm_.questions, 1);
  slurm_.away = true;
  clock_.advance(seconds(11));
  for (int i = 0; i < 5; ++i) observe(views);
  EXPECT_EQ(slurm_.questions, 2);
}

// What it sent away would come back to it at once.
TEST_F(AgentTest, ANodeThatCannotHoldSharesIsNotOpenedAgainAtOnce) {
  slurm_.known_nodes = {{.name = "n1", .state = "IDLE+DRAIN", .reason = ALIQUOT_DRAIN_UNFIT}};
  slurm_.known_jobs[0].details = {{"n1", "shard:a100:8(IDX:9)"}};
  observe({});
  slurm_.known_nodes[0] = {.name = "n1", .state = "IDLE+DRAIN", .reason = ALIQUOT_DRAIN_UNFIT};
  Stepd stepd;
  ASSERT_FALSE(grant(step(), stepd.pid()));
  for (int i = 0; i < 50; ++i) pass(seconds(1));
  EXPECT_EQ(slurm_.known_nodes[0].state, "IDLE+DRAIN");
  for (int i = 0; i < 80; ++i) pass(seconds(1));
  EXPECT_EQ(slurm_.known_nodes[0].state, "IDLE");
}

TEST_F(AgentTest, AStepHasThePartThatItAsksFor) {
  Stepd script;
  StepFacts batch = step();
  batch.step = kBatchStep;
  batch.job_gpus = {1};
  ASSERT_TRUE(grant(batch, script.pid()));
  StepFacts part = step();
  part.step = 3;
  part.shards = 3;
  part.words = "--gpu-mem=2G";
  Stepd stepd;
  const auto lines = grant(part, stepd.pid());
  ASSERT_TRUE(lines) << lines.error().message;
  EXPECT_THAT(*lines, HasSubstr("set ALIQUOT_GRANT=" + (run() / "grants" / "7.3").string() + "\n"));
  EXPECT_EQ(limit_of(run(), "7.3"), gib(2));
  EXPECT_EQ(limit_of(run(), 7), gib(6)) << "what is left";
  EXPECT_EQ(grant(part, stepd.pid()).value(), *lines) << "who asks again has the same";
  // More than Slurm gave it is not for the asking.
  StepFacts more = part;
  more.step = 4;
  more.words = "--gpu-mem=7G";
  Stepd other;
  ASSERT_TRUE(grant(more, other.pid()));
  EXPECT_LT(limit_of(run(), "7.4"), gib(4));
  other.end();
  start();
  pass(seconds(1));
  EXPECT_EQ(limit_of(run(), "7.3"), gib(2)) << "also after a restart";
  EXPECT_FALSE(fs::exists(run() / "grants" / "7.4"));
  EXPECT_EQ(limit_of(run(), 7), gib(6));
  leave(part, stepd.pid());
  EXPECT_EQ(limit_of(run(), 7), gib(8));
  EXPECT_FALSE(fs::exists(run() / "grants" / "7.3"));
  EXPECT_FALSE(fs::exists(run() / "jobs" / "7.3"));
}

// Slurm counts no shards of steps that overlap.
TEST_F(AgentTest, StepsTogetherHaveNoMoreThanTheirJob) {
  Stepd script;
  StepFacts batch = step();
  batch.step = kBatchStep;
  batch.job_gpus = {1};
  ASSERT_TRUE(grant(batch, script.pid()));
  StepFacts part = step();
  part.shards = 6;
  part.words = "--gpu-mem=6G";
  Stepd first;
  Stepd second;
  part.step = 3;
  ASSERT_TRUE(grant(part, first.pid()));
  part.step = 4;
  const auto more = grant(part, second.pid());
  ASSERT_FALSE(more);
  EXPECT_FALSE(is_nodes_fault(more.error()));
  EXPECT_THAT(more.error().message, HasSubstr("its other steps have all but 2048 MiB"));
  EXPECT_FALSE(fs::exists(run() / "grants" / "7.4"));
  part.step = 3;
  leave(part, first.pid());
  part.step = 4;
  EXPECT_TRUE(grant(part, second.pid()));
}

TEST_F(AgentTest, AnotherUsersStepChangesNothing) {
  Stepd own;
  ASSERT_TRUE(grant(step(), own.pid()));
  Stepd other;
  StepFacts forged = step();
  forged.uid += 1;
  forged.restarts = 99;
  const auto refused = grant(forged, other.pid());
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Error::Code::permission_denied);
  leave(forged, own.pid());
  pass(seconds(5));
  EXPECT_EQ(limit_of(run(), 7), gib(8));
}

TEST_F(AgentTest, AStepOnAnotherGpuFailsAlone) {
  Stepd script;
  StepFacts batch = step();
  batch.step = kBatchStep;
  batch.job_gpus = {1};
  ASSERT_TRUE(grant(batch, script.pid()));
  Stepd stepd;
  for (const std::int64_t gpu : {2, 9}) {
    StepFacts part = step();
    part.shards = 3;
    part.step_gpus = {gpu};
    const auto refused = grant(part, stepd.pid());
    ASSERT_FALSE(refused);
    EXPECT_FALSE(is_nodes_fault(refused.error()));
    EXPECT_THAT(refused.error().message, HasSubstr("its step 0 has another GPU than the job"));
  }
  EXPECT_EQ(limit_of(run(), 7), gib(8));
}

TEST_F(AgentTest, WhatSlurmSaysAndCannotBeReadIsNotTheJobsFault) {
  slurm_.known_jobs[0].details = {{"n1", "shard:a100:8(SLOT:1)"}};
  Stepd stepd;
  const auto refused = grant(step(), stepd.pid());
  ASSERT_FALSE(refused);
  EXPECT_TRUE(is_nodes_fault(refused.error()));
}

TEST_F(AgentTest, TheNodesFaultIsNotTheJobs) {
  slurm_.known_jobs[0].details = {{"n1", "shard:a100:8(IDX:9)"}};
  Stepd stepd;
  const auto lines = grant(step(), stepd.pid());
  ASSERT_FALSE(lines);
  EXPECT_TRUE(is_nodes_fault(lines.error()));
  EXPECT_FALSE(is_nodes_fault(grant(step(8), stepd.pid()).error()));
  // Whatever the error's own name is.
  slurm_.known_jobs[0] = job(7);
  fs::remove(run() / "jobs");
  EXPECT_TRUE(is_nodes_fault(grant(step(), stepd.pid()).error()));
  EXPECT_FALSE(held());
}

}  // namespace
}  // namespace aliquot::slurm
