// What clients run themselves: interactive jobs and steps, in groups that we make and they are
// moved into.
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>

#include <utility>

#include "engine/job_info.hpp"
#include "engine/stepd_executor.hpp"
#include "node/environment.hpp"
#include "sys/system_clock.hpp"

namespace aliquot::engine {
namespace {

// How often one looks whether an interactive job's processes have ended.
constexpr Millis kLookAgain(50);
constexpr Millis kSweepAgain(100);
constexpr Millis kStepWatch = seconds(1);
// For the clients, once nothing of what they ran is left: to say so, and to put the terminal right.
constexpr Millis kLastWords = seconds(2);
constexpr Millis kClientless = seconds(5);  // for the kernel to end the others

}  // namespace

node::JobProcesses StepdExecutor::processes(const node::Group& group, const std::string& mark) {
  std::set<Pid> clients;
  for (const sys::ProcessRef& client : clients_of(group.run)) clients.insert(client.pid);
  return {cgroups_, group, mark, enforcer_.mps_of(holder_of(group.run.job)), std::move(clients)};
}

std::set<sys::ProcessRef> StepdExecutor::clients_of(const node::Run& run) {
  std::set<sys::ProcessRef> clients;
  {
    const std::lock_guard lock(clients_mutex_);
    if (const auto known = clients_.find(run); known != clients_.end()) clients = known->second;
  }
  std::erase_if(clients, [](const sys::ProcessRef& one) { return !sys::is_alive(one); });
  return clients;
}

// Who connected may have ended, with another holding its end of the socket, and its pid be somebody
// else's by now: that one must not land in the job's group, where the job's owner can kill it.
void StepdExecutor::list_processes(const Job& job, const std::vector<std::int64_t>& steps,
                                   const TellProcesses& tell) {
  // Without groups it reads memory that the processes can keep from being read.
  post(
      job.run(), job.owner.uid,
      [this, run = job.run(), mark = job.mark, batch = job.spec.batch, steps, tell] {
        api::RunningProcesses all;
        std::set<Pid> in_steps;
        for (const std::int64_t step : steps) {
          api::StepProcesses& one = all.steps.emplace_back();
          one.id = fmt::format("{}", step);
          for (const sys::ProcessRef& process : processes({run, step}, mark).find()) {
            in_steps.insert(process.pid);
            one.pids.push_back(process.pid.value());
          }
        }
        if (batch) {
          api::StepProcesses& script = all.steps.emplace_back();
          script.id = "batch";
          for (const sys::ProcessRef& process : processes({run, std::nullopt}, mark).find()) {
            if (!in_steps.contains(process.pid)) script.pids.push_back(process.pid.value());
          }
        }
        if (const auto measured = enforcer_.measure(holder_of(run.job))) {
          all.gpu_ms = measured->gpu_time.value();
          all.gpu_memory_peak = measured->memory_peak.value();
        }
        on_loop([all = std::move(all), tell] { tell(all); });
      },
      node::Lanes::Pace::slow);
}

Result<void> StepdExecutor::take_in(const node::Group& group, Pid client, Uid user) {
  const auto another = [&] {
    return fail(Error::Code::permission_denied, "process {} is not the one that asked", client);
  };
  const auto info = sys::read_process(client);
  if (!info || !sys::runs_as(client, user)) return another();
  const auto process = sys::open_process(info->ref);
  if (!process || !sys::runs_as(client, user)) return another();
  // What it holds is counted, and ends, with the job it is in: it cannot leave that for another.
  if (const auto in = cgroups_.run_of(client); in && *in != group.run) {
    return fail(Error::Code::permission_denied,
                "process {} is in job {} and cannot go over to job {}: ask from outside of job {}",
                client, in->job, group.run.job, in->job);
  }
  if (const auto added = cgroups_.add(group, client); !added) {
    (void)cgroups_.expel(client);  // v1 may have moved it in some hierarchies
    return added;
  }
  // It is there still, so it was it that was moved. Else somebody may have got its number between
  // the look and the move: out again.
  pollfd ended{process->get(), POLLIN, 0};
  if (::poll(&ended, 1, 0) != 0) {
    (void)cgroups_.expel(client);
    return another();
  }
  remember_client(group.run, info->ref);
  return {};
}

void StepdExecutor::remember_client(const node::Run& run, const sys::ProcessRef& client) {
  auto clients = clients_of(run);
  clients.insert(client);
  const std::lock_guard lock(clients_mutex_);
  clients_[run] = std::move(clients);
}

// Else it would be asked to end with what it runs, and could not say how that went. The daemon
// before us took it in; who is not inside is not spared anything.
void StepdExecutor::attach(const Job& job, Pid client) {
  post(job.run(), job.owner.uid, [this, run = job.run(), client] {
    const auto info = sys::read_process(client);
    if (info && cgroups_.run_of(client) == run) remember_client(run, info->ref);
  });
}

void StepdExecutor::adopt_step(const Job& job, std::int64_t step) {
  watch_step({job.run(), step}, job.owner.uid, job.mark);
}

// Its srun has no connection to us any more, and may still say how the step ended: it came into the
// group first, and has its parent outside.
void StepdExecutor::watch_step(const node::Group& group, Uid user, const std::string& mark) {
  post(group.run, user, [this, group, user, mark] {
    const auto all = node::JobProcesses(cgroups_, group, mark).find();
    std::optional<sys::ProcessRef> client;
    for (const sys::ProcessRef& one : all) {
      const auto info = sys::read_process(one.pid);
      const bool inside =
          info && std::ranges::find(all, info->parent, &sys::ProcessRef::pid) != all.end();
      if (!info || inside) continue;
      if (!client || one.start_time < client->start_time) client = one;
    }
    if (client) remember_client(group.run, *client);
    on_loop([this, group, user, mark, gone = all.empty()] {
      if (!gone)
        return later(kStepWatch, [this, group, user, mark] { watch_step(group, user, mark); });
      deliver([&](ExecutorEvents& events) {
        events.on_step_gone(group.run.job, group.run.attempt, group.step.value_or(0));
      });
    });
  });
}

// The client goes in last: where something fails, it is still outside.
Result<Environment> StepdExecutor::admit(const StartOrder& order) {
  const Job& job = order.job;
  const node::Enforcer::Enforced enforced = TRY(enforcer_.grant(job.grant()));
  tell_enforced(job.run(), enforced.words);
  if (cgroups_.available()) {
    TRY(cgroups_.create({job.run()}, limits_of(job, job.gpus)));
    TRY(take_in({job.run()}, order.client, job.owner.uid));
  }
  const api::JobInfo info = to_info(job);
  return node::allocation_environment(context_of(job, info, enforced));
}

Result<Environment> StepdExecutor::admit_step(const StepOrder& order) {
  const Job& job = order.job;
  const node::Enforcer::Enforced enforced = TRY(enforcer_.of(job.grant(), job.enforcement.empty()));
  if (cgroups_.available()) {
    const node::Group group{job.run(), order.step};
    node::Limits limits;
    if (order.gpus) limits.hidden_devices = limits_of(job, *order.gpus).hidden_devices;
    TRY(cgroups_.create(group, limits));
    TRY(take_in(group, order.caller, order.caller_uid));
  }
  node::StepContext step{.step = order.step,
                         .ntasks = order.step_spec.ntasks,
                         .cpus_per_task = order.step_spec.cpus_per_task};
  if (order.gpus) step.gpus = to_holds(*order.gpus);
  const api::JobInfo info = to_info(job);
  return node::step_environment(context_of(job, info, enforced), step);
}

void StepdExecutor::start_step(StepOrder order) {
  const node::Run run = order.job.run();
  post(run, order.job.owner.uid, [this, run, order = std::move(order)] {
    on_loop([this, run, step = order.step, added = admit_step(order)] {
      deliver([&](ExecutorEvents& events) {
        events.on_step_admitted(run.job, run.attempt, step, added);
      });
    });
  });
}

void StepdExecutor::signal_allocation(const Job& job, int number) {
  post(job.run(), job.owner.uid,
       [this, run = job.run(), mark = job.mark, number] { processes({run}, mark).signal(number); });
}

void StepdExecutor::signal_step(const Job& job, std::int64_t step, int number) {
  post(job.run(), job.owner.uid, [this, run = job.run(), mark = job.mark, step, number] {
    const node::JobProcesses all = processes({run, step}, mark);
    if (number == SIGKILL) {
      (void)all.kill(false, seconds(5));
    } else {
      all.signal(number);
    }
  });
}

void StepdExecutor::forget_step(const Job& job, std::int64_t step) {
  if (!cgroups_.available()) return;
  sweep({job.run(), step}, job.owner.uid, kSweepAgain);
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
  post(job.run(), job.owner.uid, [this, run = job.run(), mark = job.mark, frozen] {
    enforcer_.suspend(holder_of(run.job), frozen);
    if (cgroups_.available()) {
      (void)cgroups_.freeze({run}, frozen);
    } else {
      processes({run}, mark).signal(frozen ? SIGSTOP : SIGCONT);
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
  const node::Run run = job.run();
  if (!ending_.insert(run).second) return;
  // Later: while the record is taken up, nobody knows which MPS server it has.
  on_loop([this, run, user = job.owner.uid, mark = job.mark, patience] {
    post(run, user, [this, run, mark] {
      // Only a batch job that is not on record has a stepd; that one tells its user.
      if (folder(run).send(node::CancelCommand{"DUE TO THE LOSS OF ITS RECORD"})) return;
      const node::JobProcesses all = processes({run}, mark);
      all.signal(SIGCONT);
      all.signal(SIGTERM);
    });
    await_end(run, user, mark, sys::SystemClock().mono() + patience, Awaited::all);
  });
}

// The client itself is not asked to end, but has the same time for it, and a little longer than
// what it runs.
void StepdExecutor::await_end(const node::Run& run, Uid user, const std::string& mark,
                              MonoTime until, Awaited awaited) {
  post(run, user, [this, run, user, mark, until, awaited] {
    const node::JobProcesses all(cgroups_, {run}, mark);
    const auto again = [&](MonoTime limit, Awaited next) {
      on_loop([this, run, user, mark, limit, next] {
        later(kLookAgain,
              [this, run, user, mark, limit, next] { await_end(run, user, mark, limit, next); });
      });
    };
    const MonoTime now = sys::SystemClock().mono();
    if (!all.gone()) {
      if (now < until) return again(until, awaited);
      if (awaited == Awaited::all && cgroups_.available() && !clients_of(run).empty()) {
        (void)processes({run}, mark).kill(false, kClientless);
        return again(sys::SystemClock().mono() + kLastWords, Awaited::clients);
      }
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
        if (usage->oom_kills > 0) record.reason = node::EndReason::oom;
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
