#include "slurm/plugins/spank/step.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <initializer_list>
#include <utility>

#include "slurm/plugins/drain.h"

namespace aliquot::spank {
namespace {

constexpr int kWholePatience = 2000;  // ms, for what a job with whole GPUs can do without
constexpr int kLastWord = 1000;       // ms, before a job is sent away
// ms, for the agent to look at the GPUs and to note what a job used; after the agent's own limit
// for the look (kLastLook), as a busy machine needs most of it.
constexpr int kFarewell = 3000;
constexpr std::string_view kGrant = "/v1/slurm/grant";
constexpr std::string_view kDrained = "/v1/slurm/drained";

bool has_any(StepHost& host, std::initializer_list<const char*> names) {
  return std::ranges::any_of(names, [&](const char* name) { return !host.variable(name).empty(); });
}

// SLURM_JOB_GPUS is what Slurm gives a script; the others are for what it forgets. A step finds
// those of its script in its environment, and Slurm sets or unsets what is the step's own.
bool has_gpu(StepHost& host) {
  if (has_any(host, {"SLURM_SHARDS_ON_NODE"})) return true;
  if (host.numbers().step != kBatchStep) return has_any(host, {"SLURM_STEP_GPUS"});
  return has_any(host,
                 {"SLURM_JOB_GPUS", "SLURM_GPUS_ON_NODE", "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"});
}

// What its script has of a GPU is not for a step that was started without one (--gres=none).
void take_gpu_away(StepHost& host) {
  if (!has_any(host, {"ALIQUOT_GRANT", "CUDA_MPS_PIPE_DIRECTORY"})) return;
  for (const char* name :
       {"ALIQUOT_GRANT", "CUDA_MPS_PIPE_DIRECTORY", "CUDA_MPS_LOG_DIRECTORY",
        "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"}) {
    host.unset(name);
  }
  host.set("CUDA_VISIBLE_DEVICES", "");
}

bool holds_shards(StepHost& host) { return !host.variable("SLURM_SHARDS_ON_NODE").empty(); }

// "set NAME=VALUE", "unset NAME", "prepend NAME=VALUE" for lists with colons.
void apply(StepHost& host, const std::string& lines,
           const std::function<void(const std::string&)>& say) {
  for (std::size_t at = 0; at < lines.size();) {
    const std::size_t end = lines.find('\n', at);
    const std::string line = lines.substr(at, end - at);
    at = end == std::string::npos ? lines.size() : end + 1;
    const std::size_t space = line.find(' ');
    if (space == std::string::npos) continue;
    const std::string verb = line.substr(0, space);
    const std::size_t equals = line.find('=', space);
    const std::string name = line.substr(
        space + 1, equals == std::string::npos ? std::string::npos : equals - space - 1);
    if (verb == "unset") {
      host.unset(name);
      continue;
    }
    if (equals == std::string::npos) continue;
    std::string value = line.substr(equals + 1);
    if (verb == "prepend") {
      const std::string old = host.variable(name);
      // A step of a script finds what its script was given.
      if (old == value || old.starts_with(value + ":")) continue;
      if (!old.empty()) value += ":" + old;
    }
    if (!host.set(name, value)) say("cannot set " + name + " in the job's environment");
  }
}

std::string sentence(GivenBack given, const std::string& node) {
  switch (given) {
    case GivenBack::queued:
      return ": the job goes back to the queue";
    case GivenBack::not_wanted:
      return ": the job ends, as it may not be requeued (--no-requeue)";
    default:
      return ": try again; node " + node + " takes no more jobs until it does";
  }
}

}  // namespace

// What is settled once the tasks are forked, in memory that they share with slurmstepd.
struct Step::Settled {
  bool done;
  int status;
  char text[65536];
};

std::string Step::about(StepHost& host) const {
  const StepHost::Numbers step = host.numbers();
  std::string text;
  // A line is a line, whatever the user has in his environment.
  const auto line = [&](const char* name, std::string value) {
    const auto odd = [](unsigned char c) { return c < ' ' || c == 0x7f; };
    value.erase(std::ranges::find_if(value, odd), value.end());
    text.append(name).append("=").append(value).append("\n");
  };
  // Of the two lists one is Slurm's, and the other as the user likes.
  const bool script = step.step == kBatchStep;
  line("job", std::to_string(step.job));
  line("stepd", std::to_string(stepd_));
  line("step", std::to_string(step.step));
  line("uid", std::to_string(step.uid));
  line("gid", std::to_string(step.gid));
  line("tasks", std::to_string(step.tasks));
  line("restarts", std::to_string(step.restarts));
  line(script ? "job_gpus" : "step_gpus",
       host.variable(script ? "SLURM_JOB_GPUS" : "SLURM_STEP_GPUS"));
  line("shards", host.variable("SLURM_SHARDS_ON_NODE"));
  line("visible", host.variable("CUDA_VISIBLE_DEVICES"));
  line("words", host.words());
  return text;
}

// Whether it is an answer.
bool Step::take(StepHost& host, const AgentReply& reply) {
  if (!reply.answers()) return false;
  asking_ = false;
  told_ = reply.status == 200;
  if (told_) {
    apply(host, reply.body, parts_.say);
  } else {
    refusal_ = reply.body;
  }
  return true;
}

void Step::settle(const AgentReply& reply) {
  told_ = reply.status == 200;
  settled_->status = reply.status;
  const std::size_t size = std::min(reply.body.size(), sizeof settled_->text - 1);
  std::memcpy(settled_->text, reply.body.data(), size);
  settled_->text[size] = '\0';
  settled_->done = true;
}

std::string Step::trouble(const AgentReply& reply) const {
  return reply.status == AgentReply::kUnfit
             ? "the node agent cannot hold shares (" + reply.body + ")"
             : "the node agent does not answer at " + parts_.options.socket + " (" + reply.body +
                   ")";
}

// The agent's answer or, where it has none, why no task may start. While neither the agent nor
// slurmctld answers, the job can neither start nor go back to the queue: both are waited for. A
// step of a script waits for the agent however long that takes: requeued, its job would lose what
// it has done, perhaps in days, although its share is held.
AgentReply Step::wait_for_share(StepHost& host) {
  for (bool told = false;;) {
    const long left = deadline_ - parts_.clock.now_ms();
    AgentReply reply =
        parts_.agent.ask(kGrant, about(host), left > 0 ? static_cast<int>(left) : kLastWord);
    if (reply.answers()) return reply;
    const std::string why = trouble(reply);
    if (!parts_.options.refuse) {
      parts_.say(why + ": the share of a GPU is not held");
      return {200, ""};
    }
    const auto takes = parts_.controller.takes_jobs(parts_.node);
    if (!takes) continue;
    // The agent may have been waiting for the same slurmctld.
    reply = parts_.agent.ask(kGrant, about(host), kLastWord);
    if (reply.answers()) return reply;
    if (*takes) {
      parts_.controller.drain(parts_.node,
                              reply.status == 0 ? ALIQUOT_DRAIN_SILENT : ALIQUOT_DRAIN_UNFIT);
      // One that is stopped or busy finds this when it goes on, and need not look for it. Nobody
      // waits for what it says.
      const int connection = parts_.agent.send(kDrained, about(host));
      if (connection >= 0) (void)parts_.agent.take(connection, 0);
    }
    const StepHost::Numbers step = host.numbers();
    const GivenBack given = parts_.controller.give_back(step.job, step.step != kBatchStep);
    if (given == GivenBack::unreachable) continue;
    if (given == GivenBack::goes_on) {
      if (!std::exchange(told, true)) parts_.say(why + ": the step waits until it does");
      deadline_ = parts_.clock.now_ms() + parts_.options.timeout_ms;
      continue;
    }
    return {409, why + sentence(given, parts_.node)};
  }
}

void Step::enter(StepHost& host) {
  // Processes that come in by ssh cannot be given an environment. The batch script and salloc's
  // shell are steps like any other.
  const std::uint32_t step = host.numbers().step;
  if (step == kExternStep || step == kPendingStep) return;
  if (!has_gpu(host)) return take_gpu_away(host);
  stepd_ = getpid();
  asking_ = true;
  void* memory =
      mmap(nullptr, sizeof(Settled), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory != MAP_FAILED) settled_ = static_cast<Settled*>(memory);
  deadline_ = parts_.clock.now_ms() + parts_.options.timeout_ms;
  connection_ = parts_.agent.send(kGrant, about(host));
}

void Step::begin_tasks(StepHost& host) {
  if (!asking_ || connection_ < 0) return;
  const int patience = holds_shards(host) ? parts_.options.timeout_ms : kWholePatience;
  take(host, parts_.agent.take(std::exchange(connection_, -1), patience));
}

void Step::settle_tasks(StepHost& host) {
  if (!asking_ || settled_ == nullptr || settled_->done) return;
  if (holds_shards(host)) return settle(wait_for_share(host));
  // Whole GPUs that Slurm itself gave need nothing of the agent.
  AgentReply reply = parts_.agent.ask(kGrant, about(host), 0);
  if (reply.answers()) return settle(reply);
  parts_.say(trouble(reply) + ": a share of a GPU would not be held");
  settle({200, ""});
  told_ = false;
}

std::string Step::enter_task(StepHost& host) {
  if (asking_ && (settled_ == nullptr || !settled_->done)) return "there is no word of its GPU";
  if (asking_) take(host, {settled_->status, settled_->text});
  return refusal_;
}

void Step::leave(StepHost& host) {
  if (!told_) return;
  // Once: where it does not arrive the agent sees by itself that this process has ended. Until it
  // has answered, the job is not over, and what it used can still be noted in its record.
  const int connection = parts_.agent.send("/v1/slurm/exit", about(host));
  if (connection >= 0) (void)parts_.agent.take(connection, kFarewell);
}

}  // namespace aliquot::spank
