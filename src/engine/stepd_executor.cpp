#include "engine/stepd_executor.hpp"

#include <signal.h>

#include <algorithm>
#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/post.hpp>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <thread>
#include <utility>

#include "base/clock.hpp"
#include "node/environment.hpp"
#include "node/process.hpp"
#include "node/spawn.hpp"

namespace aliquot::engine {

namespace asio = boost::asio;

namespace {

// Who connected may have ended, with another holding its end of the socket, and its pid be somebody
// else's by now: that one must not land in the job's group, where the job's owner can kill it.
Result<void> check_client(node::Pid pid, Uid uid) {
  if (node::runs_as(pid, uid)) return {};
  return fail(Error::Code::permission_denied, "process {} is not the one that asked", pid);
}

// By the words, which come through stepd as well.
bool is_want_of_room(const std::string& why) {
  return why.ends_with(std::strerror(ENOSPC)) || why.ends_with(std::strerror(EDQUOT));
}

}  // namespace

struct StepdExecutor::Watch {
  // A job that is still on its way; commands wait until it has arrived.
  std::vector<node::Command> waiting;
  bool running = false;
  std::optional<asio::posix::stream_descriptor> stepd;
};

StepdExecutor::StepdExecutor(asio::io_context& context, node::Cgroups& cgroups,
                             node::Enforcer& enforcer, StepdOptions options)
    : context_(context), cgroups_(cgroups), enforcer_(enforcer), options_(std::move(options)) {}

StepdExecutor::~StepdExecutor() { stopping_ = true; }

void StepdExecutor::listen(ExecutorEvents& events, std::function<void()> settled) {
  events_ = &events;
  settled_ = std::move(settled);
}

void StepdExecutor::on_loop(std::function<void()> task) {
  asio::post(context_, [alive = std::weak_ptr<int>(alive_), task = std::move(task)] {
    if (!alive.expired()) task();
  });
}

void StepdExecutor::deliver(std::function<void(ExecutorEvents&)> event) {
  if (events_ == nullptr) return;
  event(*events_);
  settled_();
}

node::Limits StepdExecutor::limits_of(const api::JobInfo& job) const {
  node::Limits limits;
  if (options_.enforce_cpus) limits.cpus = kOneCpu * job.cpus;
  if (job.memory > 0) limits.memory = Bytes(job.memory);
  // Every GPU that was not granted is out of sight; without any GPU the driver is, too.
  std::vector<int> others;
  std::vector<int> own;
  for (const gpu::Device& device : options_.gpus) {
    const bool granted = std::ranges::any_of(
        job.gpus, [&](const api::GpuHold& held) { return held.uuid == device.gpu.id.value(); });
    if (device.minor) (granted ? own : others).push_back(*device.minor);
  }
  // Slices of one GPU share its node: whoever has one must open it.
  std::erase_if(others, [&](int minor) { return std::ranges::find(own, minor) != own.end(); });
  if (!options_.standin) limits.hidden_devices = node::nvidia_devices(others, job.gpus.empty());
  return limits;
}

Result<node::ProcessRef> StepdExecutor::launch(const StartOrder& order) {
  const api::JobInfo& job = order.job;
  const api::JobSpec& spec = order.spec;
  const node::Identity identity = TRY(node::find_identity(Uid(job.uid)));
  node::Environment user = order.payload.environment;
  if (spec.login_environment) {
    user = node::merge(node::login_environment(identity).environment, user);
  }
  node::Enforcer::Enforced enforced = TRY(enforcer_.grant(job));
  tell_enforced(job, enforced.words);
  node::JobContext context{.job = job,
                           .spec = spec,
                           .cluster = options_.cluster,
                           .mark = order.mark,
                           .home = identity.home,
                           .shell = identity.shell,
                           .standin = options_.standin,
                           .commands = options_.commands,
                           .socket = options_.socket,
                           .extra = std::move(enforced.environment),
                           .preload = std::move(enforced.preload)};
  // The submitted environment is kept apart from the spec, and says where it was submitted from.
  constexpr std::string_view kSubmitDir = "SLURM_SUBMIT_DIR=";
  for (const std::string& variable : order.payload.environment) {
    if (variable.starts_with(kSubmitDir)) context.submit_dir = variable.substr(kSubmitDir.size());
  }
  const node::JobDirectory directory = folder(JobId(job.id));
  TRY(directory.write_script(order.payload.script, identity.uid, identity.gid));

  node::Launch launch;
  launch.job_id = job.id;
  launch.attempt = job.restarts;
  launch.node = options_.node;
  launch.mark = order.mark;
  launch.uid = identity.uid.value();
  launch.gid = identity.gid.value();
  for (const node::Gid group : identity.groups) launch.groups.push_back(group.value());
  launch.script = directory.script();
  launch.arguments = spec.arguments;
  launch.environment = node::batch_environment(context, user);
  launch.work_dir = spec.work_dir.empty() ? identity.home : spec.work_dir;
  launch.std_in = spec.std_in ? job.std_in : "";
  launch.std_out = job.std_out;
  launch.std_err = spec.std_err ? job.std_err : "";
  launch.append = spec.append || job.restarts > 0;
  launch.umask = spec.umask & 0777U;
  launch.time_limit_ms = job.time_limit_ms;
  launch.kill_wait_ms = options_.kill_wait.value();
  if (spec.signal) {
    launch.signal = {spec.signal->number, spec.signal->before_s, spec.signal->batch_only};
  }
  if (cgroups_.available()) {
    launch.group = TRY(cgroups_.create({JobId(job.id)}, limits_of(job)));
  }
  TRY(directory.prepare(launch));
  return directory.start(options_.stepd);
}

void StepdExecutor::tell_enforced(const api::JobInfo& job, const std::string& words) {
  if (words.empty()) return;
  on_loop([this, id = JobId(job.id), attempt = job.restarts, words] {
    deliver([&](ExecutorEvents& events) { events.on_enforced(id, attempt, words); });
  });
}

// Before the end is told: afterwards nobody keeps the numbers.
void StepdExecutor::add_measured(node::ExitRecord& record) {
  const auto measured = enforcer_.measure(JobId(record.job_id));
  if (!measured) return;
  record.gpu_ms = measured->gpu_time.value();
  record.gpu_memory_peak = measured->memory_peak.value();
}

void StepdExecutor::let_go(JobId job, std::int64_t attempt) {
  keeper_.post([this, job, attempt] { enforcer_.release(job, attempt); });
}

void StepdExecutor::start(StartOrder order) {
  const JobId id(order.job.id);
  watches_[id] = std::make_unique<Watch>();
  node::Worker& worker =
      order.spec.login_environment ? logins_ : launchers_[next_launcher_++ % launchers_.size()];
  worker.post([this, id, order = std::move(order)] {
    auto stepd = launch(order);
    on_loop([this, id, attempt = order.job.restarts, mark = order.mark, stepd = std::move(stepd)] {
      if (stepd) return started(id, attempt, *stepd, mark);
      // It may have started after all, and be over: the folder knows.
      const auto status = folder(id).inspect();
      if (status && !std::holds_alternative<node::JobDirectory::NeverStarted>(*status)) {
        return look(id, attempt, mark);
      }
      watches_.erase(id);
      let_go(id, attempt);
      const std::string& why = stepd.error().message;
      deliver([&](ExecutorEvents& events) {
        if (is_want_of_room(why)) return events.on_postponed(id, attempt, why);
        events.on_never_started(id, attempt, why);
      });
    });
  });
}

void StepdExecutor::adopt(const Job& job) {
  watches_[job.id()] = std::make_unique<Watch>();
  on_loop([this, id = job.id(), attempt = job.info.restarts, mark = job.mark] {
    look(id, attempt, mark);
  });
}

// Watches the stepd until it ends.
void StepdExecutor::started(JobId id, std::int64_t attempt, const node::ProcessRef& stepd,
                            const std::string& mark) {
  const auto found = watches_.find(id);
  if (found == watches_.end()) return;
  Watch& watch = *found->second;
  auto process = node::open_process(stepd);
  if (!process) return look(id, attempt, mark);
  watch.running = true;
  watch.stepd.emplace(context_, process->release());
  watch.stepd->async_wait(asio::posix::stream_descriptor::wait_read,
                          [this, id, attempt, mark](boost::system::error_code error) {
                            if (!error) look(id, attempt, mark);
                          });
  for (const node::Command& waiting : std::exchange(watch.waiting, {})) command(id, waiting);
}

// What became of it: after its stepd has ended, and after the daemon was away.
void StepdExecutor::look(JobId id, std::int64_t attempt, const std::string& mark) {
  using Directory = node::JobDirectory;
  auto status = folder(id).inspect();
  if (!status) {
    // Unreadable is as good as lost.
    status = Directory::Status(Directory::Lost{});
  }
  if (const auto* stepd = std::get_if<node::ProcessRef>(&*status)) {
    return started(id, attempt, *stepd, mark);
  }
  watches_.erase(id);
  if (auto* record = std::get_if<node::ExitRecord>(&*status)) {
    if (record->attempt == attempt) {
      add_measured(*record);
      let_go(id, attempt);
      return deliver([&](ExecutorEvents& events) { events.on_ended(*record); });
    }
    status = Directory::Status(Directory::NeverStarted{});  // of the run before
  }
  if (std::holds_alternative<Directory::NeverStarted>(*status)) {
    let_go(id, attempt);
    return deliver([&](ExecutorEvents& events) { events.on_never_started(id, attempt, ""); });
  }
  // Its processes may be alive with nobody to look after them.
  keeper_.post([this, id, attempt, mark] {
    bury(id, mark);
    enforcer_.release(id, attempt);
    on_loop([this, id, attempt] {
      deliver([&](ExecutorEvents& events) { events.on_lost(id, attempt); });
    });
  });
}

void StepdExecutor::bury(JobId id, const std::string& mark) {
  if (cgroups_.available()) (void)cgroups_.kill({id}, seconds(10));
  if (!mark.empty()) node::kill_tree({.mark = mark}, seconds(10));
}

void StepdExecutor::command(JobId id, const node::Command& command) {
  const auto found = watches_.find(id);
  if (found == watches_.end()) return;
  if (!found->second->running) {
    found->second->waiting.push_back(command);
    return;
  }
  if (std::holds_alternative<node::SuspendCommand>(command)) enforcer_.suspend(id, true);
  if (std::holds_alternative<node::ResumeCommand>(command)) enforcer_.suspend(id, false);
  keeper_.post([directory = folder(id), command] {
    // A stepd that no longer listens has ended; its end is on its way.
    (void)directory.send(command);
  });
}

Result<std::vector<std::string>> StepdExecutor::admit(const StartOrder& order, node::Pid caller) {
  const node::Group group{JobId(order.job.id)};
  if (cgroups_.available()) {
    TRY(check_client(caller, Uid(order.job.uid)));
    TRY(cgroups_.create(group, limits_of(order.job)));
    TRY(cgroups_.add(group, caller));
  }
  // A server that has to be started keeps the loop waiting, for some 20 ms.
  const node::Enforcer::Enforced enforced = TRY(enforcer_.grant(order.job));
  tell_enforced(order.job, enforced.words);
  return node::allocation_environment({.job = order.job,
                                       .spec = order.spec,
                                       .cluster = options_.cluster,
                                       .mark = order.mark,
                                       .standin = options_.standin,
                                       .commands = options_.commands,
                                       .socket = options_.socket,
                                       .extra = enforced.environment,
                                       .preload = enforced.preload});
}

Result<std::vector<std::string>> StepdExecutor::admit_step(const StepOrder& order) {
  const node::Enforcer::Enforced enforced = TRY(enforcer_.of(order.job));
  const node::Group group{JobId(order.job.id), order.step};
  if (cgroups_.available()) {
    TRY(check_client(order.caller, order.caller_uid));
    node::Limits limits;
    if (order.gpus) {
      api::JobInfo narrowed = order.job;
      narrowed.gpus = *order.gpus;
      limits.hidden_devices = limits_of(narrowed).hidden_devices;
    }
    TRY(cgroups_.create(group, limits));
    TRY(cgroups_.add(group, order.caller));
  }
  return node::step_environment({.job = order.job,
                                 .spec = order.spec,
                                 .cluster = options_.cluster,
                                 .mark = order.mark,
                                 .standin = options_.standin,
                                 .commands = options_.commands,
                                 .socket = options_.socket,
                                 .extra = enforced.environment,
                                 .preload = enforced.preload},
                                {.step = order.step,
                                 .ntasks = order.step_spec.ntasks,
                                 .cpus_per_task = order.step_spec.cpus_per_task,
                                 .gpus = order.gpus});
}

void StepdExecutor::signal_allocation(const Job& job, int number) {
  keeper_.post([mark = job.mark, number] {
    node::signal_processes(node::find_processes({.mark = mark}), number);
  });
}

void StepdExecutor::signal_step(const Job& job, std::int64_t step, int number) {
  keeper_.post([mark = job.mark, step, number] {
    const node::Search search{.mark = mark, .step = step};
    if (number == SIGKILL) {
      node::kill_tree(search, seconds(5));
    } else {
      node::signal_processes(node::find_processes(search), number);
    }
  });
}

void StepdExecutor::freeze_allocation(const Job& job, bool frozen) {
  enforcer_.suspend(job.id(), frozen);
  keeper_.post([this, id = job.id(), mark = job.mark, frozen] {
    if (cgroups_.available()) {
      (void)cgroups_.freeze({id}, frozen);
    } else {
      node::signal_processes(node::find_processes({.mark = mark}), frozen ? SIGSTOP : SIGCONT);
    }
  });
}

void StepdExecutor::end_allocation(const Job& job, Millis patience) {
  // A thread of its own: the patience of one must not keep the others waiting.
  auto& worker = enders_[job.id()];
  if (worker) return;
  worker = std::make_unique<node::Worker>("aq-end");
  worker->post([this, id = job.id(), mark = job.mark, attempt = job.info.restarts, patience] {
    const SystemClock clock;
    const auto left = [&] { return node::find_processes({.mark = mark}); };
    // The client itself sits in the group, unmarked: it is not asked to end, but may take its time.
    const auto group_is_empty = [&] {
      if (!cgroups_.available()) return true;
      const auto processes = cgroups_.processes({id});
      return !processes || processes->empty();
    };
    node::signal_processes(left(), SIGCONT);
    node::signal_processes(left(), SIGTERM);
    const MonoTime until = clock.mono() + patience;
    while (clock.mono() < until && !(left().empty() && group_is_empty())) {
      if (stopping_) return;
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    node::ExitRecord record;
    record.job_id = id.value();
    record.attempt = attempt;
    if (cgroups_.available()) {
      if (const auto usage = cgroups_.usage({id})) {
        record.user_cpu_ms = usage->user_cpu.value_or(Millis(0)).value();
        record.system_cpu_ms = usage->system_cpu.value_or(Millis(0)).value();
        record.max_rss = usage->memory_peak.value_or(Bytes(0)).value();
        record.oom_kills = usage->oom_kills;
      }
    }
    add_measured(record);
    bury(id, mark);
    enforcer_.release(id, attempt);
    on_loop([this, id, record] {
      enders_.erase(id);
      deliver([&](ExecutorEvents& events) { events.on_ended(record); });
    });
  });
}

void StepdExecutor::forget(JobId id) {
  keeper_.post([this, id] {
    enforcer_.release(id, std::nullopt);
    if (cgroups_.available()) (void)cgroups_.remove({id});
    (void)folder(id).remove();
  });
}

}  // namespace aliquot::engine
