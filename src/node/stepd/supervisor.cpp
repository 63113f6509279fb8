#include "node/stepd/supervisor.hpp"

#include <fcntl.h>
#include <linux/sched.h>
#include <poll.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <set>
#include <utility>

#include "base/timestamp.hpp"
#include "node/parting.hpp"
#include "sys/clock.hpp"

namespace aliquot::node {
namespace {

// What a job that could not open its files ends with in Slurm: 0:53.
constexpr int kIoFailedSignal = 53;
constexpr Millis kKillPatience = seconds(20);
// For so long after the job was asked to end one looks for processes that have not heard it.
constexpr Millis kMissedFor = seconds(3);
constexpr Millis kLookForMissed(100);
// How long the end of a job waits for its last words to be written.
constexpr Millis kLastWords = seconds(3);

std::int64_t to_ms(const timeval& time) { return time.tv_sec * 1000 + time.tv_usec / 1000; }

SpawnSpec make_spec(const Launch& launch) {
  SpawnSpec spec;
  spec.identity = {.uid = Uid(launch.uid), .gid = Gid(launch.gid)};
  for (const auto gid : launch.groups) spec.identity.groups.emplace_back(gid);
  spec.file = launch.script;
  spec.argv = {launch.script};
  spec.argv.insert(spec.argv.end(), launch.arguments.begin(), launch.arguments.end());
  spec.environment = launch.environment;
  spec.directory = launch.work_dir;
  spec.fallback_directory = "/tmp";
  if (!launch.std_in.empty()) spec.in = FromFile{launch.std_in};
  if (!launch.std_out.empty()) spec.out = ToFile{launch.std_out, launch.append};
  if (launch.std_err.empty() || launch.std_err == launch.std_out) {
    spec.err = LikeStdout{};
  } else {
    spec.err = ToFile{launch.std_err, launch.append};
  }
  spec.umask = launch.umask;
  spec.limits = launch.limits;
  spec.group = launch.group;
  spec.pid_variable = "SLURM_TASK_PID";
  spec.message_prefix = "slurmstepd-" + launch.node + ": error: ";
  return spec;
}

}  // namespace

Supervisor::Supervisor(Launch launch, sys::Fd control)
    : launch_(std::move(launch)),
      spec_(make_spec(launch_)),
      control_(std::move(control)),
      voice_(spec_.identity) {
  record_.job_id = launch_.job_id;
  record_.attempt = launch_.attempt;
}

ExitRecord Supervisor::run() {
  sigset_t wanted;
  sigemptyset(&wanted);
  sigaddset(&wanted, SIGCHLD);
  sigaddset(&wanted, SIGTERM);
  sigprocmask(SIG_BLOCK, &wanted, nullptr);
  ::signal(SIGPIPE, SIG_IGN);
  ::signal(SIGHUP, SIG_IGN);
  signals_.reset(signalfd(-1, &wanted, SFD_CLOEXEC | SFD_NONBLOCK));
  start();
  while (!done()) {
    std::array<pollfd, 3> fds = {pollfd{signals_.get(), POLLIN, 0},
                                 pollfd{control_.get(), POLLIN, 0},
                                 pollfd{starting_ ? starting_->channel.get() : -1, POLLIN, 0}};
    if (poll(fds.data(), fds.size(), poll_timeout()) < 0 && errno != EINTR) break;
    if (fds[2].revents != 0) on_starting();
    if (fds[0].revents != 0) on_signals();
    if (fds[1].revents != 0) on_control();
    on_time();
  }
  finish();
  return record_;
}

// The script has ended: so has the job, unless it is being ended and others still have their grace.
bool Supervisor::done() const {
  if (starting_ || shell_) return false;
  return !ending_ || !children_left_;
}

void Supervisor::start() {
  record_.start_ms = sys::wall_ms();
  started_at_ = sys::boot_ms();
  auto starting = begin_spawn(spec_);
  if (!starting) return fail_launch(starting.error());
  shell_ = starting->pid;
  children_left_ = true;
  starting_ = std::move(*starting);
}

void Supervisor::fail_launch(const SpawnFailure& failure) {
  starting_.reset();
  shell_.reset();
  record_.reason = EndReason::launch_failed;
  record_.detail = failure.what;
  switch (failure.stage) {
    case SpawnStage::std_in:
    case SpawnStage::std_out:
    case SpawnStage::std_err:
      record_.exit_signal = kIoFailedSignal;
      break;
    case SpawnStage::exec:
      record_.exit_code = failure.error;
      break;
    default:
      record_.exit_code = 1;
  }
}

void Supervisor::on_starting() {
  const auto progress = advance(&*starting_, spec_);
  if (!progress) return fail_launch(progress.error());
  if (starting_->std_err) voice_.set_file(std::move(starting_->std_err));
  if (*progress == Progress::running) starting_.reset();
}

void Supervisor::on_signals() {
  signalfd_siginfo info{};
  while (read(signals_.get(), &info, sizeof info) == static_cast<ssize_t>(sizeof info)) {
    if (info.ssi_signo == SIGTERM) begin_end(EndReason::cancelled, "");
  }
  reap();
}

void Supervisor::reap() {
  while (true) {
    int status = 0;
    const pid_t pid = waitpid(-1, &status, WNOHANG);
    if (pid < 0 && errno == EINTR) continue;
    if (pid <= 0) {
      children_left_ = pid == 0;
      return;
    }
    if (!shell_ || pid != shell_->value()) continue;
    // Told before the script is: what a failed start says must not be taken for its end.
    while (starting_) on_starting();
    if (record_.reason != EndReason::launch_failed) {
      record_.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 0;
      record_.exit_signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
    }
    shell_.reset();
  }
}

void Supervisor::on_control() {
  std::array<char, 4096> buffer{};
  ssize_t n = 0;
  while ((n = read(control_.get(), buffer.data(), buffer.size())) > 0) {
    control_text_.append(buffer.data(), static_cast<std::size_t>(n));
  }
  for (auto end = control_text_.find('\n'); end != std::string::npos;
       end = control_text_.find('\n')) {
    if (const auto command = command_from_line(control_text_.substr(0, end))) obey(*command);
    control_text_.erase(0, end + 1);
  }
}

void Supervisor::obey(const Command& command) {
  struct Visitor {
    Supervisor* self;
    void operator()(const CancelCommand& cancel) const {
      self->begin_end(EndReason::cancelled, cancel.cause, cancel.patience);
    }
    void operator()(const SignalCommand& one) const { self->signal(one.number, one.target); }
    void operator()(const SuspendCommand&) const { self->suspend(); }
    void operator()(const ResumeCommand&) const { self->resume(); }
    void operator()(const LimitCommand& limit) const {
      self->launch_.time_limit_ms =
          limit.limit ? std::optional(limit.limit->value()) : std::nullopt;
    }
  };
  std::visit(Visitor{this}, command);
}

std::optional<std::int64_t> Supervisor::deadline() const {
  if (!launch_.time_limit_ms) return std::nullopt;
  return started_at_ + suspended_ms_ + *launch_.time_limit_ms;
}

std::optional<std::int64_t> Supervisor::early_signal_at() const {
  const auto end = deadline();
  // Not before it runs: there is nobody yet to hear it.
  if (!end || !launch_.signal || early_signal_sent_ || starting_) return std::nullopt;
  return *end - launch_.signal->before_s * 1000;
}

int Supervisor::poll_timeout() const {
  std::optional<std::int64_t> next = kill_at_;
  if (!ending_ && !suspended_at_) {
    next = deadline();
    if (const auto early = early_signal_at(); early && *early < *next) next = early;
  }
  if (!next) return -1;
  const std::int64_t now = sys::boot_ms();
  if (ending_ && now - asked_until_ < kMissedFor.value()) {
    next = std::min(*next, now + kLookForMissed.value());
  }
  return static_cast<int>(std::clamp<std::int64_t>(*next - now, 0, 3'600'000));
}

void Supervisor::on_time() {
  const std::int64_t now = sys::boot_ms();
  if (ending_) {
    if (now - asked_until_ < kMissedFor.value()) ask_missed();
    if (kill_at_ && now >= *kill_at_) {
      kill_all();
      // What is stuck in the kernel dies when it comes out; until then the job has not ended.
      kill_at_ = sys::boot_ms() + kKillPatience.value();
    }
    return;
  }
  if (suspended_at_) return;
  if (const auto early = early_signal_at(); early && now >= *early) {
    early_signal_sent_ = true;
    signal(launch_.signal->number, launch_.signal->batch_only ? Target::batch : Target::steps);
  }
  if (const auto end = deadline(); end && now >= *end) {
    begin_end(EndReason::timeout, "DUE TO TIME LIMIT");
  }
}

void Supervisor::begin_end(EndReason reason, const std::string& cause,
                           std::optional<Millis> patience) {
  if (ending_ || !shell_) return;
  ending_ = true;
  record_.reason = reason;
  const Millis wait(launch_.kill_wait_ms);
  kill_at_ = sys::boot_ms() + std::min(patience.value_or(wait), wait).value();
  resume();
  const auto all = all_processes_of_job();
  sys::signal_processes(all, SIGCONT);
  part_and_signal(all, SIGTERM);
  asked_.insert(all.begin(), all.end());
  asked_until_ = sys::boot_ms();
  say(fmt::format("*** JOB {} ON {} CANCELLED AT {} {}{}***", launch_.job_id, launch_.node,
                  format_timestamp(WallTime(sys::wall_ms())), cause, cause.empty() ? "" : " "));
}

// Whoever was forked between the look at the processes and the signal to its parent has heard
// nothing, and its parent is gone. What a handler starts in its last moments has a parent that
// waits for it, or is younger: it is let be.
void Supervisor::ask_missed() {
  const auto tick = sysconf(_SC_CLK_TCK);
  const auto last = static_cast<std::uint64_t>(asked_until_ * tick / 1000 + 1);
  std::vector<sys::ProcessRef> missed;
  for (const sys::ProcessRef& one : all_processes_of_job()) {
    if (one.start_time > last || asked_.contains(one)) continue;
    const auto process = sys::read_process(one.pid);
    if (!process || process->ref != one || process->parent != Pid(getpid())) continue;
    missed.push_back(one);
    asked_.insert(one);
  }
  if (!missed.empty()) part_and_signal(missed, SIGTERM);
}

std::vector<sys::ProcessRef> Supervisor::all_processes_of_job() const {
  return find_processes({.ancestor = Pid(getpid())});
}

// By their groups, where there are any: what stands in a process's memory may take forever to read.
std::vector<sys::ProcessRef> Supervisor::step_processes() const {
  if (launch_.group.empty()) {
    return find_processes({.ancestor = Pid(getpid()), .steps_only = true});
  }
  const auto pids = inner_processes(launch_.group);
  const std::set<Pid> inside(pids.begin(), pids.end());
  std::vector<sys::ProcessRef> found;
  for (const Pid pid : pids) {
    const auto process = sys::read_process(pid);
    if (!process || process->state == 'Z' || pid == shell_) continue;
    // A srun has come into its step's group and has its parent outside; what a task has left behind
    // is ours.
    const bool orphan = process->parent == Pid(getpid()) || process->parent == Pid(1);
    if (orphan || inside.contains(process->parent)) found.push_back(process->ref);
  }
  return found;
}

void Supervisor::suspend() {
  if (suspended_at_ || ending_) return;
  suspended_at_ = sys::boot_ms();
  if (!freeze_group(launch_.group, true)) {
    sys::signal_processes(all_processes_of_job(), SIGSTOP);
  }
}

void Supervisor::resume() {
  if (!suspended_at_) return;
  suspended_ms_ += sys::boot_ms() - *suspended_at_;
  suspended_at_.reset();
  if (!freeze_group(launch_.group, false)) {
    sys::signal_processes(all_processes_of_job(), SIGCONT);
  }
}

void Supervisor::signal(int number, Target target) {
  if (target == Target::batch) {
    const auto shell = shell_ ? sys::read_process(*shell_) : std::nullopt;
    if (shell) part_and_signal({shell->ref}, number);
    return;
  }
  part_and_signal(target == Target::steps ? step_processes() : all_processes_of_job(), number);
}

// By a child of our parent's: a control program that hangs and is left behind must not be ours, as
// we wait for our children. What it complains of nobody else hears.
void Supervisor::part(const std::vector<sys::ProcessRef>& processes, int number) {
  if (!launch_.mps || processes.empty()) return;
  sys::Pipe pipe = sys::make_pipe();
  if (!pipe) return;
  if (syscall(SYS_clone, CLONE_PARENT | SIGCHLD, nullptr, nullptr, nullptr, nullptr) == 0) {
    const std::string complaint = node::part(launch_.mps, processes, number);
    _exit(write(pipe.write.get(), complaint.data(), complaint.size()) < 0 ? 1 : 0);
  }
  pipe.write.reset();
  std::array<char, 1024> complaint{};
  ssize_t n = 0;
  while ((n = read(pipe.read.get(), complaint.data(), complaint.size())) < 0 && errno == EINTR) {
  }
  if (n > 0 && record_.detail.empty()) {
    record_.detail.assign(complaint.data(), static_cast<std::size_t>(n));
  }
}

void Supervisor::part_and_signal(const std::vector<sys::ProcessRef>& processes, int number) {
  part(processes, number);
  sys::signal_processes(processes, number);
}

void Supervisor::kill_all() {
  auto all = all_processes_of_job();
  // Who came into the job from outside is nobody's child here.
  for (const Pid pid : group_processes(launch_.group).value_or(std::vector<Pid>{})) {
    if (const auto process = sys::read_process(pid)) all.push_back(process->ref);
  }
  // Once each: what is stuck in the kernel is killed again and again.
  std::erase_if(all, [&](const sys::ProcessRef& one) { return !killed_.insert(one).second; });
  part(all, SIGKILL);
  const auto in_group = kill_group(launch_.group, kKillPatience);
  const auto in_tree = kill_tree({.ancestor = Pid(getpid())}, kKillPatience);
  record_.leftovers += in_tree.count + in_group.count;
  if (!in_tree.all_gone || !in_group.all_gone) {
    record_.detail = "some processes of the job would not die";
  }
  reap();
}

void Supervisor::finish() {
  resume();
  reap();
  // As a subreaper we have no children left only if the job has no processes left.
  while (children_left_ || !group_processes(launch_.group).value_or(std::vector<Pid>{}).empty()) {
    kill_all();
    if (children_left_) usleep(1000);
  }
  const auto usage = group_usage(launch_.group);
  rusage children{};
  getrusage(RUSAGE_CHILDREN, &children);
  record_.user_cpu_ms =
      std::max(to_ms(children.ru_utime), usage.user_cpu.value_or(Millis(0)).value());
  record_.system_cpu_ms =
      std::max(to_ms(children.ru_stime), usage.system_cpu.value_or(Millis(0)).value());
  record_.max_rss = usage.memory_peak.value_or(Bytes(children.ru_maxrss * 1024)).value();
  record_.oom_kills = usage.oom_kills;
  record_.suspended_ms = suspended_ms_;
  if (usage.oom_kills > 0) {
    if (record_.reason == EndReason::none) record_.reason = EndReason::oom;
    say(
        fmt::format("Detected {} oom_kill event{} in StepId={}.batch. Some of the step tasks have "
                    "been OOM Killed.",
                    usage.oom_kills, usage.oom_kills == 1 ? "" : "s", launch_.job_id));
  }
  record_.end_ms = sys::wall_ms();
  voice_.finish(kLastWords);
}

}  // namespace aliquot::node
