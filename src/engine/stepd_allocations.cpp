// What clients run themselves: interactive jobs and steps, in groups that we make and they are
// moved into.
#include <poll.h>
#include <signal.h>

#include <algorithm>
#include <utility>

#include "base/clock.hpp"
#include "engine/stepd_executor.hpp"
#include "node/environment.hpp"
#include "node/job_grant.hpp"

namespace aliquot::engine {
namespace {

// How often one looks whether an interactive job's processes have ended.
constexpr Millis kLookAgain(50);
constexpr Millis kSweepAgain(100);

// For what a client runs in a job: a StartOrder's or a StepOrder's.
template <class Order>
node::JobContext context_of(const Order& order, const StepdOptions& options,
                            const node::Enforcer::Enforced& enforced) {
  return {.job = order.job,
          .spec = order.spec,
          .cluster = options.cluster,
          .mark = order.mark,
          .standin = options.standin,
          .commands = options.commands,
          .socket = options.socket,
          .extra = enforced.environment,
          .preload = enforced.preload};
}

}  // namespace

node::JobProcesses StepdExecutor::processes(const Job& job,
                                            std::optional<std::int64_t> step) const {
  std::set<node::Pid> clients;
  if (const auto known = clients_.find(job.run()); known != clients_.end()) {
    for (const node::ProcessRef& client : known->second) {
      if (node::is_alive(client)) clients.insert(client.pid);
    }
  }
  return {cgroups_,
          {job.run(), step},
          job.mark,
          enforcer_.mps_of(holder_of(job.id())),
          std::move(clients)};
}

// Who connected may have ended, with another holding its end of the socket, and its pid be somebody
// else's by now: that one must not land in the job's group, where the job's owner can kill it.
Result<void> StepdExecutor::take_in(const node::Group& group, node::Pid client, Uid user) {
  const auto another = [&] {
    return fail(Error::Code::permission_denied, "process {} is not the one that asked", client);
  };
  const auto info = node::read_process(client);
  if (!info || !node::runs_as(client, user)) return another();
  const auto process = node::open_process(info->ref);
  if (!process || !node::runs_as(client, user)) return another();
  // What it holds is counted, and ends, with the job it is in: it cannot leave that for another.
  if (const auto in = cgroups_.run_of(client); in && *in != group.run) {
    return fail(Error::Code::permission_denied,
                "process {} is in job {} and cannot go over to job {}: ask from outside of job {}",
                client, in->job, group.run.job, in->job);
  }
  TRY(cgroups_.add(group, client));
  // It is there still, so it was it that was moved. Else somebody may have got its number between
  // the look and the move: out again.
  pollfd ended{process->get(), POLLIN, 0};
  if (::poll(&ended, 1, 0) != 0) {
    (void)cgroups_.expel(client);
    return another();
  }
  auto& clients = clients_[group.run];
  std::erase_if(clients, [](const node::ProcessRef& one) { return !node::is_alive(one); });
  clients.insert(info->ref);
  return {};
}

Result<std::vector<std::string>> StepdExecutor::admit(const StartOrder& order, node::Pid caller) {
  if (cgroups_.available()) {
    const node::Group group{{JobId(order.job.id), order.job.restarts}};
    TRY(cgroups_.create(group, limits_of(order.job)));
    TRY(take_in(group, caller, Uid(order.job.uid)));
  }
  // A server that has to be started keeps the loop waiting, for some 20 ms.
  const node::Enforcer::Enforced enforced = TRY(enforcer_.grant(node::grant_of(order.job)));
  tell_enforced(order.job, enforced.words);
  return node::allocation_environment(context_of(order, options_, enforced));
}

Result<std::vector<std::string>> StepdExecutor::admit_step(const StepOrder& order) {
  const node::Enforcer::Enforced enforced =
      TRY(enforcer_.of(node::grant_of(order.job), order.job.enforcement.empty()));
  if (cgroups_.available()) {
    const node::Group group{{JobId(order.job.id), order.job.restarts}, order.step};
    node::Limits limits;
    if (order.gpus) {
      api::JobInfo narrowed = order.job;
      narrowed.gpus = *order.gpus;
      limits.hidden_devices = limits_of(narrowed).hidden_devices;
    }
    TRY(cgroups_.create(group, limits));
    TRY(take_in(group, order.caller, order.caller_uid));
  }
  return node::step_environment(context_of(order, options_, enforced),
                                {.step = order.step,
                                 .ntasks = order.step_spec.ntasks,
                                 .cpus_per_task = order.step_spec.cpus_per_task,
                                 .gpus = order.gpus});
}

void StepdExecutor::signal_allocation(const Job& job, int number) {
  post(job.run(), Uid(job.info.uid), [all = processes(job), number] { all.signal(number); });
}

void StepdExecutor::signal_step(const Job& job, std::int64_t step, int number) {
  post(job.run(), Uid(job.info.uid), [all = processes(job, step), number] {
    if (number == SIGKILL) {
      (void)all.kill(false, seconds(5));
    } else {
      all.signal(number);
    }
  });
}

void StepdExecutor::forget_step(const Job& job, std::int64_t step) {
  if (!cgroups_.available()) return;
  sweep({job.run(), step}, Uid(job.info.uid), kSweepAgain);
}

// Its srun is still inside when it says that the step is over. What stays longer is looked for more
// and more rarely, and goes with the job.
void StepdExecutor::sweep(const node::Group& group, Uid user, Millis wait) {
  post(group.run, user, [this, group, user, wait] {
    const auto removed = cgroups_.remove(group);
    if (removed || removed.error().code != Error::Code::unavailable) return;
    on_loop([this, group, user, wait] {
      later(wait, [this, group, user, wait] { sweep(group, user, wait * 2); });
    });
  });
}

void StepdExecutor::freeze_allocation(const Job& job, bool frozen) {
  enforcer_.suspend(holder_of(job.id()), frozen);
  post(job.run(), Uid(job.info.uid), [this, run = job.run(), all = processes(job), frozen] {
    if (cgroups_.available()) {
      (void)cgroups_.freeze({run}, frozen);
    } else {
      all.signal(frozen ? SIGSTOP : SIGCONT);
    }
  });
}

Result<std::vector<Leftover>> StepdExecutor::leftovers() {
  std::map<node::Run, Leftover> found;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(options_.jobs, error)) {
    const auto name = node::parse_run_name(entry.path().filename().string());
    if (!name) continue;
    Leftover one{*name};
    if (const auto launch = folder(*name).read_launch()) {
      one.uid = Uid(launch->uid);
      one.mark = launch->mark;
      // Once every run was named by its job alone.
      if (launch->attempt != name->attempt) {
        one.run.attempt = launch->attempt;
        cgroups_.name_by_job(one.run);
      }
    }
    found[one.run] = std::move(one);
  }
  if (error) {
    return fail(Error::Code::unavailable, "cannot list {}: {}", options_.jobs.string(),
                error.message());
  }
  for (const node::Run& run : TRY(cgroups_.runs())) found.try_emplace(run, Leftover{run});
  std::vector<Leftover> left;
  for (auto& [run, one] : found) left.push_back(std::move(one));
  return left;
}

void StepdExecutor::end_allocation(const Job& job, Millis patience) {
  if (!ending_.insert(job.run()).second) return;
  // Later: while the record is taken up, nobody knows which MPS server it has.
  on_loop([this, job, patience] {
    post(job.run(), Uid(job.info.uid), [directory = folder(job.run()), all = processes(job)] {
      // Only a batch job that is not on record has a stepd; that one tells its user.
      if (directory.send(node::CancelCommand{"DUE TO THE LOSS OF ITS RECORD"})) return;
      all.signal(SIGCONT);
      all.signal(SIGTERM);
    });
    await_end(job.run(), Uid(job.info.uid), job.mark, SystemClock().mono() + patience);
  });
}

// The client itself is not asked to end, but has the same time for it.
void StepdExecutor::await_end(const node::Run& run, Uid user, const std::string& mark,
                              MonoTime until) {
  post(run, user, [this, run, user, mark, until] {
    const node::JobProcesses all(cgroups_, {run}, mark);
    if (SystemClock().mono() < until && !all.gone()) {
      return on_loop([this, run, user, mark, until] {
        later(kLookAgain, [this, run, user, mark, until] { await_end(run, user, mark, until); });
      });
    }
    node::ExitRecord record;
    record.job_id = run.job.value();
    record.attempt = run.attempt;
    if (cgroups_.available()) {
      if (const auto usage = cgroups_.usage({run})) {
        record.user_cpu_ms = usage->user_cpu.value_or(Millis(0)).value();
        record.system_cpu_ms = usage->system_cpu.value_or(Millis(0)).value();
        record.max_rss = usage->memory_peak.value_or(Bytes(0)).value();
        record.oom_kills = usage->oom_kills;
      }
    }
    add_measured(record);
    on_loop([this, run, user, mark, record] {
      bury(run, user, mark, [this, run, record] {
        ending_.erase(run);
        deliver([&](ExecutorEvents& events) { events.on_ended(record); });
      });
    });
  });
}

}  // namespace aliquot::engine
