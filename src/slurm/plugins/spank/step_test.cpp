#include "slurm/plugins/spank/step.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <vector>

#include "slurm/plugins/drain.h"

namespace aliquot::spank {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

const AgentReply kSilent{0, "Connection refused"};
const AgentReply kCannot{AgentReply::kUnfit, "no driver"};
const AgentReply kView{200, "set CUDA_VISIBLE_DEVICES=GPU-1\n"};

class FakeHost final : public StepHost {
 public:
  Numbers step{.job = 7, .step = 0, .tasks = 2, .restarts = 1, .uid = 1000, .gid = 100};
  std::map<std::string, std::string> environment{
      {"SLURM_JOB_GPUS", "1"}, {"SLURM_STEP_GPUS", "1"}, {"SLURM_SHARDS_ON_NODE", "8"}};

  Numbers numbers() override { return step; }
  std::string variable(const std::string& name) override {
    const auto found = environment.find(name);
    return found == environment.end() ? "" : found->second;
  }
  bool set(const std::string& name, const std::string& value) override {
    environment[name] = value;
    return name != "READONLY";
  }
  void unset(const std::string& name) override { environment.erase(name); }
};

// Replies in turn, the last one for ever; each question takes as long as it may.
class FakeAgent final : public AgentLink {
 public:
  explicit FakeAgent(long& now) : now_(now) {}

  AgentReply at_once = kSilent;  // to the question that is sent when the step begins
  std::vector<AgentReply> replies = {kSilent};
  std::vector<int> waited;  // ms, for each question
  std::string asked;        // the last question
  std::string left;         // what was said at the end
  int told_of_drain = 0;    // that its node was drained

  AgentReply ask(std::string_view path, std::string_view body, int timeout_ms) override {
    EXPECT_EQ(path, "/v1/slurm/grant");
    asked = body;
    waited.push_back(timeout_ms);
    const AgentReply reply = replies.front();
    if (replies.size() > 1) replies.erase(replies.begin());
    if (!reply.answers()) now_ += timeout_ms;
    return reply;
  }
  int send(std::string_view path, std::string_view body) override {
    if (path == "/v1/slurm/exit") {
      left = body;
      return 4;
    }
    if (path == "/v1/slurm/drained") {
      ++told_of_drain;
      return 5;
    }
    EXPECT_EQ(path, "/v1/slurm/grant");
    asked = body;
    return at_once.status == 0 ? -1 : 3;
  }
  AgentReply take(int connection, int timeout_ms) override {
    if (connection == 4) return {200, ""};
    if (connection == 5) {
      EXPECT_EQ(timeout_ms, 0) << "nobody waits for it";
      return kSilent;
    }
    EXPECT_EQ(connection, 3);
    if (!at_once.answers()) now_ += timeout_ms;
    return at_once;
  }

 private:
  long& now_;
};

class FakeController final : public Controller {
 public:
  std::vector<std::optional<bool>> takes = {true};  // in turn, the last one for ever
  std::vector<GivenBack> given = {GivenBack::queued};
  std::vector<std::string> drains;
  std::vector<bool> began;

  std::optional<bool> takes_jobs(const std::string& node) override {
    EXPECT_EQ(node, "n1");
    return next(takes);
  }
  void drain(const std::string& node, const char* why) override {
    drains.push_back(node + ": " + why);
  }
  GivenBack give_back(std::uint32_t job, bool has_begun) override {
    EXPECT_EQ(job, 7U);
    began.push_back(has_begun);
    return next(given);
  }

 private:
  template <class T>
  static T next(std::vector<T>& values) {
    const T value = values.front();
    if (values.size() > 1) values.erase(values.begin());
    return value;
  }
};

class StepTest : public testing::Test {
 protected:
  // All hooks up to the task's; why the task does not start.
  std::string start() {
    step_.emplace(Step::Parts{options_,
                              "n1",
                              agent_,
                              controller_,
                              {[this] { return now_; }, [this](int ms) { now_ += ms; }},
                              [this](const std::string& text) { said_.push_back(text); }});
    step_->enter(host_);
    step_->begin_tasks(host_);
    step_->settle_tasks(host_);
    Step task = *step_;  // a fork: slurmstepd does not see what it does
    return task.enter_task(host_);
  }
  std::string left() {
    step_->leave(host_);
    return agent_.left;
  }

  long now_ = 1'000'000;
  PluginOptions options_;
  FakeHost host_;
  FakeAgent agent_{now_};
  FakeController controller_;
  std::vector<std::string> said_;
  std::optional<Step> step_;
};

TEST_F(StepTest, TasksHaveWhatTheAgentSays) {
  host_.environment["LD_PRELOAD"] = "/theirs.so";
  host_.environment["PATH"] = "/standin:/bin";
  host_.environment["CUDA_MPS_PIPE_DIRECTORY"] = "/old";
  agent_.at_once = {200,
                    "set CUDA_VISIBLE_DEVICES=GPU-1\nunset CUDA_MPS_PIPE_DIRECTORY\n"
                    "prepend LD_PRELOAD=/lib/libaliquot.so\nprepend PATH=/standin\nset READONLY=1\n"
                    "nonsense\nset NOTHING\n"};
  EXPECT_EQ(start(), "");
  EXPECT_EQ(host_.variable("CUDA_VISIBLE_DEVICES"), "GPU-1");
  EXPECT_FALSE(host_.environment.contains("CUDA_MPS_PIPE_DIRECTORY"));
  EXPECT_EQ(host_.variable("LD_PRELOAD"), "/lib/libaliquot.so:/theirs.so");
  EXPECT_EQ(host_.variable("PATH"), "/standin:/bin") << "a step in a script has it already";
  EXPECT_THAT(said_, ElementsAre("cannot set READONLY in the job's environment"));
  EXPECT_THAT(agent_.waited, ElementsAre()) << "it is asked once";
  EXPECT_THAT(left(), HasSubstr("job=7\n"));
}

TEST_F(StepTest, SaysWhoseStepItIs) {
  host_.environment["SLURM_STEP_GPUS"] = "0";
  agent_.at_once = kView;
  start();
  EXPECT_EQ(agent_.asked, "job=7\nstepd=" + std::to_string(::getpid()) +
                              "\nstep=0\nuid=1000\ngid=100\ntasks=2\nrestarts=1\n"
                              "step_gpus=0\nshards=8\nvisible=\nwords=\n");
}

TEST_F(StepTest, WhatTheUserHasInHisEnvironmentAddsNoLine) {
  host_.environment["SLURM_STEP_GPUS"] = "0\njob=8\nuid=0\nrestarts=99";
  host_.environment["SLURM_JOB_GPUS"] = "0\njob=9";
  host_.environment["CUDA_VISIBLE_DEVICES"] = "0\rjob=9";
  agent_.at_once = kView;
  start();
  EXPECT_EQ(agent_.asked, "job=7\nstepd=" + std::to_string(::getpid()) +
                              "\nstep=0\nuid=1000\ngid=100\ntasks=2\nrestarts=1\n"
                              "step_gpus=0\nshards=8\nvisible=0\nwords=\n");
}

TEST_F(StepTest, StepsWithoutAGpuAreLeftAlone) {
  host_.environment.clear();
  EXPECT_EQ(start(), "");
  EXPECT_EQ(agent_.asked, "");
  EXPECT_EQ(left(), "");
  host_.environment = {{"SLURM_JOB_GPUS", "1"}, {"SLURM_STEP_GPUS", "1"}};
  for (const std::uint32_t step : {kExternStep, kPendingStep}) {
    host_.step.step = step;
    EXPECT_EQ(start(), "");
    EXPECT_EQ(agent_.asked, "");
  }
}

// --gres=none, in a script that has a share.
TEST_F(StepTest, AStepWithoutAGpuHasNothingOfItsScripts) {
  host_.environment = {{"SLURM_JOB_GPUS", "1"},
                       {"SLURM_GPUS_ON_NODE", "1"},
                       {"ALIQUOT_GRANT", "/run/7"},
                       {"CUDA_MPS_PIPE_DIRECTORY", "/run/mps"},
                       {"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "25"}};
  EXPECT_EQ(start(), "");
  EXPECT_EQ(agent_.asked, "");
  EXPECT_EQ(host_.environment, (std::map<std::string, std::string>{{"SLURM_JOB_GPUS", "1"},
                                                                   {"SLURM_GPUS_ON_NODE", "1"},
                                                                   {"CUDA_VISIBLE_DEVICES", ""}}));
}

TEST_F(StepTest, ARefusalIsTheTasksLastWord) {
  agent_.at_once = {409, "job 7 is another user's"};
  EXPECT_EQ(start(), "job 7 is another user's");
  EXPECT_EQ(left(), "") << "the agent does not hold it";
}

TEST_F(StepTest, AnAgentThatComesBackInTimeIsWaitedFor) {
  agent_.replies = {kView};
  EXPECT_EQ(start(), "");
  EXPECT_EQ(host_.variable("CUDA_VISIBLE_DEVICES"), "GPU-1");
  EXPECT_THAT(agent_.waited, ElementsAre(15'000));
  EXPECT_THAT(controller_.drains, ElementsAre());
}

TEST_F(StepTest, WhatWasWaitedForBeforeCounts) {
  agent_.at_once = kCannot;  // for all of its patience
  agent_.replies = {kCannot};
  EXPECT_THAT(start(), HasSubstr("cannot hold shares (no driver): the job goes back to the queue"));
  EXPECT_THAT(agent_.waited, ElementsAre(1'000, 1'000));
  EXPECT_THAT(controller_.drains, ElementsAre(std::string("n1: ") + ALIQUOT_DRAIN_UNFIT));
}

TEST_F(StepTest, ASilentAgentDrainsItsNodeAndGivesTheJobBack) {
  host_.step.step = kBatchStep;
  EXPECT_THAT(start(), HasSubstr("the node agent does not answer at /run/aliquot/agent.sock "
                                 "(Connection refused): the job goes back to the queue"));
  EXPECT_THAT(agent_.waited, ElementsAre(15'000, 1'000));
  EXPECT_THAT(controller_.drains, ElementsAre(std::string("n1: ") + ALIQUOT_DRAIN_SILENT));
  EXPECT_THAT(controller_.began, ElementsAre(false)) << "nothing of a batch job has run yet";
  EXPECT_EQ(agent_.told_of_drain, 1) << "it undoes what it knows of";
}

TEST_F(StepTest, ANodeThatIsDrainedAlreadyKeepsItsReason) {
  controller_.takes = {false};
  start();
  EXPECT_THAT(controller_.drains, ElementsAre());
  EXPECT_EQ(agent_.told_of_drain, 0);
  EXPECT_THAT(controller_.began, ElementsAre(true));
}

TEST_F(StepTest, WhoCannotGoBackHearsWhatToDo) {
  controller_.given = {GivenBack::not_wanted};
  EXPECT_THAT(start(), HasSubstr("may not be requeued (--no-requeue)"));
  controller_.given = {GivenBack::not_possible};
  EXPECT_THAT(start(), HasSubstr("try again; node n1 takes no more jobs until it does"));
}

TEST_F(StepTest, WhileNobodyAnswersItWaits) {
  controller_.takes = {std::nullopt, std::nullopt, true};
  agent_.replies = {kSilent, kSilent, kSilent, kView};
  EXPECT_EQ(start(), "");
  EXPECT_THAT(agent_.waited, ElementsAre(15'000, 1'000, 1'000, 1'000));
  EXPECT_THAT(controller_.drains, ElementsAre());
  // slurmctld went away in between: the job is given back when it answers.
  controller_.takes = {true};
  controller_.given = {GivenBack::unreachable, GivenBack::queued};
  agent_.replies = {kSilent};
  EXPECT_THAT(start(), HasSubstr("goes back to the queue"));
}

// What its script has done in days is not lost because a later srun finds no agent.
TEST_F(StepTest, AStepOfAScriptThatRunsWaits) {
  controller_.takes = {true, false};
  controller_.given = {GivenBack::goes_on};
  agent_.replies = {kSilent, kSilent, kSilent, kCannot, kView};
  EXPECT_EQ(start(), "");
  EXPECT_EQ(host_.variable("CUDA_VISIBLE_DEVICES"), "GPU-1");
  EXPECT_THAT(agent_.waited, ElementsAre(15'000, 1'000, 15'000, 1'000, 15'000));
  EXPECT_THAT(said_, ElementsAre(HasSubstr("the step waits until it does"))) << "once";
  EXPECT_THAT(controller_.drains, ElementsAre(std::string("n1: ") + ALIQUOT_DRAIN_SILENT));
}

TEST_F(StepTest, WhereTheSiteSaysSoAShareRunsUnheld) {
  options_.refuse = false;
  EXPECT_EQ(start(), "");
  EXPECT_THAT(said_, ElementsAre(HasSubstr("the share of a GPU is not held")));
  EXPECT_THAT(controller_.drains, ElementsAre());
}

TEST_F(StepTest, WholeGpusNeedNoAgent) {
  host_.environment.erase("SLURM_SHARDS_ON_NODE");
  EXPECT_EQ(start(), "");
  EXPECT_THAT(agent_.waited, ElementsAre(0));
  EXPECT_THAT(said_, ElementsAre(HasSubstr("a share of a GPU would not be held")));
  EXPECT_THAT(controller_.drains, ElementsAre());
  EXPECT_EQ(left(), "") << "the agent never heard of it";
  // An agent that takes its time is not waited for as long as a share would be.
  agent_.at_once = kCannot;
  agent_.replies = {kCannot};
  const long before = now_;
  EXPECT_EQ(start(), "");
  EXPECT_EQ(now_ - before, 2'000);
  EXPECT_THAT(said_.back(), HasSubstr("the node agent cannot hold shares (no driver)"));
}

}  // namespace
}  // namespace aliquot::spank
