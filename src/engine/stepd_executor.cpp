#include "engine/stepd_executor.hpp"

#include <signal.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <utility>

#include "engine/job_info.hpp"
#include "node/environment.hpp"
#include "node/process_tree.hpp"
#include "node/spawn.hpp"
#include "sys/clock.hpp"

namespace aliquot::engine {

namespace asio = boost::asio;

namespace {

constexpr Millis kLoginPatience = seconds(10);
// What is killed and stays for so long is looked at again, and again.
constexpr Millis kKillPatience = seconds(5);
// How long a stepd may take longer than the job may to end.
constexpr Millis kStepdPatience = seconds(5);
// Where a stepd has not read what it was told so far.
constexpr Millis kSendAgain(100);
// For who is still in the group of a job that is over.
constexpr std::int64_t kLastWordsMs = 200;

// By the words, which come through stepd as well.
bool is_want_of_room(const std::string& why) {
  return why.ends_with(std::strerror(ENOSPC)) || why.ends_with(std::strerror(EDQUOT));
}

bool is_signal(const node::Command& command) {
  return std::holds_alternative<node::SignalCommand>(command);
}

}  // namespace

StepdExecutor::StepdExecutor(asio::io_context& context, node::Cgroups& cgroups,
                             node::Enforcer& enforcer, StepdOptions options)
    : context_(context), cgroups_(cgroups), enforcer_(enforcer), options_(std::move(options)) {}

StepdExecutor::~StepdExecutor() = default;

void StepdExecutor::listen(ExecutorEvents& events, std::function<void()> settled) {
  events_ = &events;
  settled_ = std::move(settled);
}

void StepdExecutor::on_loop(std::function<void()> task) {
  asio::post(context_, [alive = std::weak_ptr<int>(alive_), task = std::move(task)] {
    if (!alive.expired()) task();
  });
}

void StepdExecutor::later(Millis wait, std::function<void()> task) {
  const auto timer = std::make_shared<asio::steady_timer>(context_);
  timer->expires_after(std::chrono::milliseconds(wait.value()));
  timer->async_wait([alive = std::weak_ptr<int>(alive_), timer,
                     task = std::move(task)](boost::system::error_code error) {
    if (!error && !alive.expired()) task();
  });
}

void StepdExecutor::post(const node::Run& run, Uid user, std::function<void()> task,
                         node::Lanes::Pace pace) {
  lanes_.post(user, run.job.value(), std::move(task), pace);
}

void StepdExecutor::deliver(std::function<void(ExecutorEvents&)> event) {
  if (events_ == nullptr) return;
  event(*events_);
  settled_();
}

node::Limits StepdExecutor::limits_of(const Job& job, const std::vector<HeldGpu>& gpus) const {
  node::Limits limits;
  if (options_.enforce_cpus) limits.cpus = job.cpus;
  if (job.memory > Bytes(0)) limits.memory = job.memory;
  limits.processes = options_.processes;
  // Every GPU that was not granted is out of sight; without any GPU the driver is, too.
  std::vector<int> others;
  std::vector<int> own;
  for (const gpu::Device& device : options_.gpus) {
    const bool granted = std::ranges::any_of(
        gpus, [&](const HeldGpu& held) { return held.granted.gpu == device.gpu.id; });
    if (device.minor) (granted ? own : others).push_back(*device.minor);
  }
  // Slices of one GPU share its node: whoever has one must open it.
  std::erase_if(others, [&](int minor) { return std::ranges::find(own, minor) != own.end(); });
  if (!options_.standin) limits.hidden_devices = node::nvidia_devices(others, gpus.empty());
  return limits;
}

// An MPS server has one GPU, which is number 0 to its clients whichever it is.
node::GpuNames StepdExecutor::gpu_names(const node::Enforcer::Enforced& enforced) const {
  if (node::get(enforced.environment, "CUDA_MPS_PIPE_DIRECTORY")) return node::GpuNames::own_index;
  if (!options_.standin && cgroups_.hides_devices()) return node::GpuNames::own_index;
  // Beside slices a GPU's index is not what nvidia-smi counts.
  const bool slices = std::ranges::any_of(
      options_.gpus, [](const gpu::Device& device) { return !device.gpu.mig_profile.empty(); });
  return slices ? node::GpuNames::uuid : node::GpuNames::index;
}

node::JobContext StepdExecutor::context_of(const Job& job, const api::JobInfo& info,
                                           const node::Enforcer::Enforced& enforced) const {
  return {.job = info,
          .spec = job.spec,
          .cluster = options_.cluster,
          .mark = job.mark,
          .standin = options_.standin,
          .gpu_names = gpu_names(enforced),
          .commands = options_.commands,
          .socket = options_.socket,
          .extra = enforced.environment,
          .preload = enforced.preload};
}

Result<sys::ProcessRef> StepdExecutor::launch(const StartOrder& order) {
  const node::Run run = order.job.run();
  const api::JobInfo job = to_info(order.job);
  const api::JobSpec& spec = order.job.spec;
  const sys::Identity identity = TRY(sys::find_identity(order.job.owner.uid));
  node::GroupPaths fence;
  if (cgroups_.available()) {
    fence = TRY(cgroups_.create({run}, limits_of(order.job, order.job.gpus)));
  }
  // From here on a run has its folder: one without is lost, not yet to begin.
  const node::JobDirectory directory = folder(run);
  TRY(directory.write_script(order.payload.script, identity.uid, identity.gid));
  node::Environment user = order.payload.environment;
  if (spec.login_environment) {
    user = node::merge(
        node::login_environment(identity, kLoginPatience, options_.limits, fence).environment,
        user);
  }
  const node::Enforcer::Enforced enforced = TRY(enforcer_.grant(order.job.grant()));
  tell_enforced(run, enforced.words);
  node::JobContext context = context_of(order.job, job, enforced);
  context.home = identity.home;
  context.shell = identity.shell;
  // The submitted environment is kept apart from the spec, and says where it was submitted from.
  constexpr std::string_view kSubmitDir = "SLURM_SUBMIT_DIR=";
  for (const std::string& variable : order.payload.environment) {
    if (variable.starts_with(kSubmitDir)) context.submit_dir = variable.substr(kSubmitDir.size());
  }

  node::Launch launch;
  launch.job_id = job.id;
  launch.attempt = job.restarts;
  launch.node = options_.node;
  launch.mark = order.job.mark;
  launch.uid = identity.uid.value();
  launch.gid = identity.gid.value();
  for (const Gid group : identity.groups) launch.groups.push_back(group.value());
  launch.script = directory.script();
  launch.arguments = spec.arguments;
  launch.environment = node::batch_environment(context, user);
  launch.work_dir = spec.work_dir.empty() ? identity.home : spec.work_dir;
  launch.std_in = spec.std_in ? job.std_in : "";
  launch.std_out = job.std_out;
  launch.std_err = spec.std_err ? job.std_err : "";
  launch.append = spec.append || job.restarts > 0;
  launch.umask = spec.umask & 0777U;
  launch.limits = node::job_limits(options_.limits, spec.limits, spec.propagate);
  launch.time_limit_ms = job.time_limit_ms;
  launch.kill_wait_ms = options_.kill_wait.value();
  if (spec.signal) {
    launch.signal = {spec.signal->number, spec.signal->before_s, spec.signal->batch_only};
  }
  launch.mps = enforcer_.mps_of(holder_of(run.job));
  launch.group = std::move(fence);
  TRY(directory.prepare(launch));
  return directory.start(options_.stepd);
}

void StepdExecutor::tell_enforced(const node::Run& run, const std::string& words) {
  if (words.empty()) return;
  on_loop([this, run, words] {
    deliver([&](ExecutorEvents& events) { events.on_enforced(run.job, run.attempt, words); });
  });
}

// Before the end is told: afterwards nobody keeps the numbers.
void StepdExecutor::add_measured(node::ExitRecord& record) {
  const auto measured = enforcer_.measure(holder_of(JobId(record.job_id)));
  if (!measured) return;
  record.gpu_ms = measured->gpu_time.value();
  record.gpu_memory_peak = measured->memory_peak.value();
}

StepdExecutor::Watch* StepdExecutor::watched(const node::Run& run) {
  const auto found = watches_.find(run.job);
  if (found == watches_.end() || found->second->run != run) return nullptr;
  return found->second.get();
}

bool StepdExecutor::has_program(const std::string& path) const {
  return path.starts_with('/') && ::access(path.c_str(), X_OK) == 0;
}

void StepdExecutor::start(StartOrder order) {
  const node::Run run = order.job.run();
  const Uid user = order.job.owner.uid;
  const bool batch = order.job.spec.batch;
  if (batch) watches_[run.job] = std::make_unique<Watch>(Watch{run, user, order.job.mark});
  // Somebody's profile may take as long as it is let.
  const auto pace = batch && order.job.spec.login_environment ? node::Lanes::Pace::slow
                                                              : node::Lanes::Pace::usual;
  const auto failed = [this, run](const std::string& why) {
    deliver([&](ExecutorEvents& events) { events.on_never_started(run.job, run.attempt, why); });
  };
  if (!batch) {
    return post(run, user, [this, run, failed, order = std::move(order)] {
      on_loop([this, run, failed, added = admit(order)] {
        if (!added) return failed(added.error().message);
        deliver([&](ExecutorEvents& events) { events.on_admitted(run.job, run.attempt, *added); });
      });
    });
  }
  const auto task = [this, run, user, failed, order = std::move(order)] {
    const auto stepd = launch(order);
    if (stepd) return on_loop([this, run, stepd] { started(run, *stepd); });
    // It may have started after all, and be over: the folder knows.
    const auto status = folder(run).inspect();
    const bool began = status && !std::holds_alternative<node::JobDirectory::NeverStarted>(*status);
    on_loop([this, run, user, failed, began, why = stepd.error().message] {
      if (began) return look(run);
      if (watched(run) != nullptr) watches_.erase(run.job);
      forget(run, user);
      if (!is_want_of_room(why)) return failed(why);
      deliver([&](ExecutorEvents& events) { events.on_postponed(run.job, run.attempt, why); });
    });
  };
  post(run, user, task, pace);
}

void StepdExecutor::adopt(const Job& job) {
  watches_[job.id] = std::make_unique<Watch>(Watch{job.run(), job.owner.uid, job.mark});
  on_loop([this, run = job.run()] { look(run); });
}

// Watches the stepd until it ends.
void StepdExecutor::started(const node::Run& run, const sys::ProcessRef& stepd) {
  Watch* watch = watched(run);
  if (watch == nullptr) return;
  auto process = sys::open_process(stepd);
  if (!process) return look(run);
  watch->running = true;
  watch->stepd.emplace(context_, process->release());
  watch->stepd->async_wait(asio::posix::stream_descriptor::wait_read,
                           [this, run](boost::system::error_code error) {
                             if (!error) look(run);
                           });
  send_next(run);
}

void StepdExecutor::look(const node::Run& run) {
  if (watched(run) == nullptr) return;
  looks_.post([this, run] {
    auto status = folder(run).inspect();
    // Unreadable is as good as lost.
    if (!status) status = node::JobDirectory::Status(node::JobDirectory::Lost{});
    if (auto* record = std::get_if<node::ExitRecord>(&*status)) add_measured(*record);
    on_loop([this, run, status = std::move(*status)] { found(run, status); });
  });
}

void StepdExecutor::found(const node::Run& run, node::JobDirectory::Status status) {
  using Directory = node::JobDirectory;
  const Watch* watch = watched(run);
  if (watch == nullptr) return;
  if (const auto* stepd = std::get_if<sys::ProcessRef>(&status)) return started(run, *stepd);
  const Uid user = watch->user;
  const std::string mark = watch->mark;
  const bool ran = watch->running;
  watches_.erase(run.job);
  if (const auto* record = std::get_if<node::ExitRecord>(&status)) {
    if (record->attempt == run.attempt) {
      const auto tell = [this, record = *record] {
        deliver([&](ExecutorEvents& events) { events.on_ended(record); });
      };
      // Its stepd left nobody, but a step may have been let in from outside since.
      if (cgroups_.available()) return bury(run, user, mark, tell);
      post(run, user, [this, run] { enforcer_.release(holder_of(run.job), run.attempt); });
      return tell();
    }
    status = Directory::NeverStarted{};  // of the run before
  }
  // Its processes may be alive with nobody to look after them.
  if (ran || !std::holds_alternative<Directory::NeverStarted>(status)) {
    return bury_lost(run, user, mark);
  }
  post(run, user, [this, run, user, mark] {
    std::error_code error;
    const bool lost = !std::filesystem::exists(folder(run).path(), error) &&
                      !node::JobProcesses(cgroups_, {run}, mark).gone();
    on_loop([this, run, user, mark, lost] {
      if (lost) return bury_lost(run, user, mark);
      bury(run, user, mark, [this, run] {
        deliver([&](ExecutorEvents& events) { events.on_never_started(run.job, run.attempt, ""); });
      });
    });
  });
}

void StepdExecutor::bury_lost(const node::Run& run, Uid user, const std::string& mark) {
  bury(run, user, mark, [this, run] {
    deliver([&](ExecutorEvents& events) { events.on_lost(run.job, run.attempt); });
  });
}

void StepdExecutor::bury(const node::Run& run, Uid user, const std::string& mark,
                         std::function<void()> then, bool again) {
  post(run, user, [this, run, user, mark, then = std::move(then), again] {
    const node::JobProcesses all(cgroups_, {run}, mark,
                                 again ? std::nullopt : enforcer_.mps_of(holder_of(run.job)));
    if (all.kill(true, kKillPatience).all_gone) {
      enforcer_.release(holder_of(run.job), run.attempt);
      return on_loop(then);
    }
    tell_stuck(run, all);
    on_loop([this, run, user, mark, then] {
      later(kKillPatience, [this, run, user, mark, then] { bury(run, user, mark, then, true); });
    });
  });
}

// The GPUs stay the job's: what sleeps in the kernel may hold something of them until it wakes.
void StepdExecutor::tell_stuck(const node::Run& run, const node::JobProcesses& all) {
  std::string who = all.describe_left();
  if (who.empty()) return;
  who += " was killed and does not die";
  on_loop([this, run, who = std::move(who)] {
    deliver([&](ExecutorEvents& events) { events.on_stuck(run.job, run.attempt, who); });
  });
}

void StepdExecutor::command(JobId id, const node::Command& command) {
  const auto found = watches_.find(id);
  if (found == watches_.end()) return;
  Watch& watch = *found->second;
  if (!is_signal(command)) {
    watch.waiting.insert(std::ranges::find_if(watch.waiting, is_signal), command);
  } else if (std::ranges::find(watch.waiting, node::to_line(command), node::to_line) ==
             watch.waiting.end()) {
    // As the kernel has it: one that waits to be taken is not made two by being sent again.
    watch.waiting.push_back(command);
  }
  // Whether it hears of it or not.
  if (std::holds_alternative<node::CancelCommand>(command) && !std::exchange(watch.ending, true)) {
    later(options_.kill_wait + kStepdPatience, [this, run = watch.run] { press(run); });
  }
  if (watch.running) send_next(watch.run);
}

// One after the other, each until the stepd has it.
void StepdExecutor::send_next(const node::Run& run) {
  Watch* watch = watched(run);
  if (watch == nullptr || !watch->running || watch->sending || watch->waiting.empty()) return;
  watch->sending = true;
  const node::Command command = watch->waiting.front();
  watch->waiting.pop_front();
  commands_.post([this, run, directory = folder(run), command] {
    const HolderId holder = holder_of(run.job);
    if (std::holds_alternative<node::ResumeCommand>(command)) enforcer_.suspend(holder, false);
    const auto sent = directory.send(command);
    const bool full = !sent && sent.error().code == Error::Code::unavailable;
    if (sent && std::holds_alternative<node::SuspendCommand>(command)) {
      enforcer_.suspend(holder, true);
    }
    on_loop([this, run, command, full] {
      Watch* one = watched(run);
      if (one == nullptr) return;
      // A stepd that no longer listens has ended; its end is on its way.
      if (!full) {
        one->sending = false;
        return send_next(run);
      }
      // Before what came after it, and behind what does not wait for signals.
      const auto place =
          is_signal(command) ? std::ranges::find_if(one->waiting, is_signal) : one->waiting.begin();
      one->waiting.insert(place, command);
      later(kSendAgain, [this, run] {
        Watch* still = watched(run);
        if (still == nullptr) return;
        still->sending = false;
        send_next(run);
      });
    });
  });
}

// Its stepd should have ended it long ago. Whatever holds that up, the job is ended.
void StepdExecutor::press(const node::Run& run) {
  const Watch* late = watched(run);
  if (late == nullptr) return;
  if (late->pressed == 0) spdlog::warn("job {} does not end: its processes are killed", run.job);
  post(run, late->user, [this, run, mark = late->mark, again = late->pressed > 0] {
    const node::JobProcesses all(cgroups_, {run}, mark,
                                 again ? std::nullopt : enforcer_.mps_of(holder_of(run.job)));
    const auto killed = all.kill(true, kKillPatience);
    if (!killed.all_gone) tell_stuck(run, all);
    on_loop([this, run, gone = killed.all_gone] {
      Watch* watch = watched(run);
      if (watch == nullptr) return;
      // With nothing left to look after, and still there: it hangs. Then look() buries the job.
      if (gone && watch->pressed > 0 && watch->stepd) {
        sys::signal_process(watch->stepd->native_handle(), SIGKILL);
      }
      ++watch->pressed;
      later(kStepdPatience, [this, run] { press(run); });
    });
  });
}

void StepdExecutor::forget(const node::Run& run, Uid user) {
  post(run, user, [this, run] {
    {
      const std::lock_guard lock(clients_mutex_);
      clients_.erase(run);
    }
    enforcer_.release(holder_of(run.job), run.attempt);
    // Who is still inside came while the job ended, as the client of a step that was refused: it
    // may say so, and then goes with the group.
    if (cgroups_.available() && !cgroups_.remove({run})) {
      sys::sleep_ms(kLastWordsMs);
      (void)cgroups_.kill({run}, kKillPatience, {});
      (void)cgroups_.remove({run});
    }
    (void)folder(run).remove();
  });
}

}  // namespace aliquot::engine
