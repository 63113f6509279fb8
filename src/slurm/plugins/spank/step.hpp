// A step of a job, inside slurmstepd: it asks the node agent for the view of its job's GPU, and
// every task starts with that view or says why it does not start.
//
// The question is sent when the step begins, and the answer taken before its tasks begin: what
// slurmstepd does in between takes longer. An answer that is missing then is waited for once, after
// the tasks are forked: they find it in memory that they share with slurmstepd.
//
// Slurm, the agent, slurmctld and the clock are handed in (step_hooks.cpp has the real ones), so
// this needs none of Slurm's headers.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace aliquot::spank {

// From plugstack.conf: `optional aliquot_spank.so socket=PATH without=refuse timeout=15000
// whole=a,b foreign=c*`.
struct PluginOptions {
  std::string socket = "/run/aliquot/agent.sock";  // %n: the node's name
  bool refuse = true;                              // where the agent does not answer
  // For so long a step waits for the agent: one that answers nothing at all is killed and started
  // again by then; one that waits for its driver or for slurmctld is not.
  int timeout_ms = 15000;
  // Partitions, with commas, the default one with a star: where a whole GPU is never booked as
  // shards, and where Aliquot does not manage the GPUs.
  std::string whole = {};
  std::string foreign = {};
  bool several = false;  // several whole GPUs of a node are booked as shards as well
};

struct AgentReply {
  int status = 0;  // of HTTP; 0: nobody answered, and body says why
  std::string body = {};

  static constexpr int kUnfit = 503;  // the agent answers that it cannot hold shares now
  // It is an answer to the question, whatever it says.
  [[nodiscard]] bool answers() const { return status != 0 && status != kUnfit; }
};

class AgentLink {
 public:
  virtual ~AgentLink() = default;
  // Tries again while nobody listens or the agent cannot, for as long as the timeout is; at least
  // once.
  virtual AgentReply ask(std::string_view path, std::string_view body, int timeout_ms) = 0;
  // The same in two parts: a connection with the request on its way, or -1; and its reply.
  virtual int send(std::string_view path, std::string_view body) = 0;
  virtual AgentReply take(int connection, int timeout_ms) = 0;
};

// Milliseconds of a clock that is never set back, and a pause.
struct StepClock {
  std::function<long()> now_ms;
  std::function<void(int)> pause_ms;
};

enum class GivenBack {
  queued,
  not_wanted,    // --no-requeue
  not_possible,  // Slurm requeues batch jobs alone; or it says no for good
  goes_on,       // its script runs: nothing of it is ended because a step cannot begin
  unreachable,   // slurmctld does not answer
};

// slurmctld, for a job that this node cannot hold.
class Controller {
 public:
  virtual ~Controller() = default;
  // Nothing: slurmctld does not answer.
  virtual std::optional<bool> takes_jobs(const std::string& node) = 0;
  virtual void drain(const std::string& node, const char* why) = 0;
  // began: something of the job has run.
  virtual GivenBack give_back(std::uint32_t job, bool began) = 0;
};

// The step as Slurm describes it, and the environment of its tasks.
class StepHost {
 public:
  virtual ~StepHost() = default;
  struct Numbers {
    std::uint32_t job = 0, step = 0, tasks = 0, restarts = 0;
    uid_t uid = 0;
    gid_t gid = 0;
  };
  virtual Numbers numbers() = 0;
  virtual std::string words() { return {}; }  // "--gpu-mem=8G", as the user wrote them
  virtual std::string variable(const std::string& name) = 0;  // empty: there is none
  virtual bool set(const std::string& name, const std::string& value) = 0;
  virtual void unset(const std::string& name) = 0;
};

// Numbers above all that ordinary steps have.
inline constexpr std::uint32_t kBatchStep = 0xfffffffb;
inline constexpr std::uint32_t kExternStep = 0xfffffffc;  // processes that come in by ssh, …
inline constexpr std::uint32_t kPendingStep = 0xfffffffd;

class Step {
 public:
  struct Parts {
    PluginOptions options;
    std::string node;
    AgentLink& agent;
    Controller& controller;
    StepClock clock;
    std::function<void(const std::string&)> say;
  };
  explicit Step(Parts parts) : parts_(std::move(parts)) {}

  // slurmstepd's hooks, in their order.
  void enter(StepHost& host);
  void begin_tasks(StepHost& host);
  void settle_tasks(StepHost& host);
  // In the task, which is a fork: why it must not start; empty: it may.
  std::string enter_task(StepHost& host);
  void leave(StepHost& host);

 private:
  struct Settled;

  std::string about(StepHost& host) const;
  std::string trouble(const AgentReply& reply) const;
  bool take(StepHost& host, const AgentReply& reply);
  void settle(const AgentReply& reply);
  AgentReply wait_for_share(StepHost& host);

  Parts parts_;
  std::string refusal_;  // why no task may start; empty: they may
  bool asking_ = false;  // an answer is missing
  bool told_ = false;    // the agent knows of this step
  int connection_ = -1;  // with the question on its way
  pid_t stepd_ = 0;
  long deadline_ = 0;           // ms; until then the agent may take its time
  Settled* settled_ = nullptr;  // shared with the tasks, for as long as the process lives
};

}  // namespace aliquot::spank
