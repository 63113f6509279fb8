// One loop over all that can happen to a step; long, because its parts share one state.
#include "cli/jobs/tasks.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <pty.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <map>
#include <utility>

#include "base/number_ranges.hpp"
#include "base/text.hpp"
#include "cli/jobs/labelled_output.hpp"
#include "cli/jobs/oom_kills.hpp"
#include "cli/jobs/step_voice.hpp"
#include "cli/jobs/task_io.hpp"
#include "cli/jobs/task_process.hpp"
#include "sys/fd.hpp"
#include "sys/program.hpp"
#include "sys/system_clock.hpp"

namespace aliquot::cli {
namespace {

constexpr Millis kKillWait = seconds(30);
constexpr Millis kDoubleInterrupt = seconds(1);
// How long the daemon may take to kill the step.
constexpr Millis kStepKill = seconds(10);
// Tasks that end so soon one after the other are named in one line.
constexpr Millis kGather = Millis(250);

class Runner {
 public:
  Runner(const StepPlan& plan, const Voice& voice)
      : plan_(plan),
        voice_(voice),
        words_(plan, voice),
        running_(plan.tasks.size()),
        labelled_(plan.tasks.size()) {}

  StepOutcome run() {
    block_signals();
    ::signal(SIGPIPE, SIG_IGN);
    {
      const RawTerminal raw(plan_.pty);
      raw_ = &raw;
      if (plan_.time_limit) limit_ = clock_.mono() + *plan_.time_limit;
      if (start()) loop();
      raw_ = nullptr;
    }
    // Only now: a raw terminal would garble it, and the task's last output comes first.
    say_ends();
    ::pthread_sigmask(SIG_SETMASK, &before_, nullptr);
    return outcome_;
  }

 private:
  struct Running {
    pid_t pid = -1;  // -1: not running
    sys::Fd in;      // where its input is written
    std::string pending;
  };
  void block_signals() {
    ::sigemptyset(&awaited_);
    for (const int signal : {SIGCHLD, SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGALRM,
                             SIGCONT, SIGWINCH}) {
      ::sigaddset(&awaited_, signal);
    }
    ::pthread_sigmask(SIG_BLOCK, &awaited_, &before_);
    signals_ = sys::Fd(::signalfd(-1, &awaited_, SFD_CLOEXEC | SFD_NONBLOCK));
  }

  [[nodiscard]] std::string file_path(const std::string& pattern, std::size_t task) const {
    auto names = plan_.names;
    names.task = static_cast<std::int64_t>(task);
    return resolve_path(expand_pattern(pattern, names), plan_.folder);
  }

  // The file behind `choice` for the task; -1: srun's own stream, or one that passes through it.
  bool open_output(const std::optional<std::string>& choice, std::size_t task, int own, int& file) {
    file = own;
    if (!choice || *choice == "all") return true;
    std::string path = *choice;
    if (path == "none") path = "/dev/null";
    if (is_digits(path)) {
      if (parse_digits(path) == static_cast<std::int64_t>(task)) return true;
      path = "/dev/null";
    }
    path = file_path(path, task);
    auto& opened = files_[path];
    if (!opened) {
      const int flags = O_WRONLY | O_CREAT | O_CLOEXEC | (plan_.append ? O_APPEND : O_TRUNC);
      opened = sys::Fd(::open(path.c_str(), flags, 0666));
      if (!opened && errno == ENOENT) {
        std::error_code error;
        std::filesystem::create_directories(std::filesystem::path(path).parent_path(), error);
        opened = sys::Fd(::open(path.c_str(), flags, 0666));
      }
    }
    if (!opened) {
      voice_.error(fmt::format("Could not open stdout file: {}", std::strerror(errno)));
      return false;
    }
    file = opened.get();
    return true;
  }

  // What the task gets as its input; the other end, where srun writes, stays in `running`.
  bool open_input(std::size_t task, sys::Fd& file) {
    const std::string choice = plan_.std_in.value_or("all");
    const bool fed = choice == "all" ||
                     (is_digits(choice) && parse_digits(choice) == static_cast<std::int64_t>(task));
    if (choice == "all" && plan_.tasks.size() == 1 && ::isatty(STDIN_FILENO) == 0) return true;
    if (fed) {
      auto pipe = sys::make_pipe();
      if (!pipe.read) return false;
      ::fcntl(pipe.write.get(), F_SETFL, O_NONBLOCK);
      file = std::move(pipe.read);
      running_[task].in = std::move(pipe.write);
      feeding_ = true;
      return true;
    }
    std::string path = "/dev/null";
    if (choice != "none" && !is_digits(choice)) {
      path = file_path(choice, task);
    }
    file = sys::Fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    if (file) return true;
    voice_.error(fmt::format("Could not open stdin file: {}", std::strerror(errno)));
    return false;
  }

  bool start() {
    for (std::size_t task = 0; task < plan_.tasks.size(); ++task) {
      const bool good = plan_.pty && task == 0 ? start_pty() : start_plain(task);
      if (!good) {
        outcome_.status = outcome_.end.exit_code = 1;
        signal_tasks(SIGKILL);
        return alive() > 0;
      }
    }
    return true;
  }

  bool start_plain(std::size_t task) {
    int out = -1;
    int err = -1;
    sys::Fd in;
    if (plan_.pty) {
      in = sys::Fd(::open("/dev/null", O_RDWR | O_CLOEXEC));
      out = err = in.get();
    } else {
      if (!open_output(plan_.std_out, task, STDOUT_FILENO, out)) return false;
      const bool merged = !plan_.std_err && plan_.std_out && *plan_.std_out != "all";
      if (!open_output(merged ? plan_.std_out : plan_.std_err, task, STDERR_FILENO, err)) {
        return false;
      }
      if (!open_input(task, in)) return false;
    }
    TaskFiles given{in.get(), out, err};
    sys::Pipe out_pipe;
    sys::Pipe err_pipe;
    if (plan_.label) {
      out_pipe = sys::make_pipe();
      err_pipe = sys::make_pipe();
      given.out = out_pipe.write.get();
      given.err = err_pipe.write.get();
    }
    running_[task].pid = start_task(plan_.tasks[task], plan_, given, before_);
    if (running_[task].pid < 0) {
      voice_.error(fmt::format("fork: {}", std::strerror(errno)));
      return false;
    }
    if (plan_.label) {
      labelled_.add(task, std::move(out_pipe.read), out);
      labelled_.add(task, std::move(err_pipe.read), err);
    }
    return true;
  }

  bool start_pty() {
    winsize size{};
    ::ioctl(STDIN_FILENO, TIOCGWINSZ, &size);
    int master = -1;
    const pid_t pid = ::forkpty(&master, nullptr, nullptr, &size);
    if (pid < 0) {
      voice_.error(fmt::format("forkpty: {}", std::strerror(errno)));
      return false;
    }
    if (pid == 0) become_task(plan_.tasks[0], plan_, before_);
    ::fcntl(master, F_SETFD, FD_CLOEXEC);
    running_[0].pid = pid;
    terminal_ = sys::Fd(master);
    return true;
  }

  [[nodiscard]] std::size_t alive() const {
    return static_cast<std::size_t>(
        std::ranges::count_if(running_, [](const Running& task) { return task.pid > 0; }));
  }

  void signal_tasks(int signal) {
    if (signal != SIGCONT && plan_.signal_step && !left_alone_ && plan_.signal_step(signal)) {
      // Whatever becomes of it, the tasks end.
      if (signal == SIGKILL) {
        left_alone_ = true;
        deadline_ = clock_.mono() + kStepKill;
      }
      return;
    }
    for (const auto& task : running_) {
      if (task.pid <= 0) continue;
      // The group, or at least the task where it has none yet.
      if (::kill(-task.pid, signal) != 0) ::kill(task.pid, signal);
    }
  }

  void loop() {
    while (alive() > 0 || !labelled_.empty() || terminal_) {
      std::vector<pollfd> polled;
      polled.push_back({signals_.get(), POLLIN, 0});
      const bool read_input = wants_input();
      polled.push_back({read_input ? STDIN_FILENO : -1, POLLIN, 0});
      polled.push_back({terminal_.get(), POLLIN, 0});
      polled.push_back({plan_.notice == nullptr ? -1 : plan_.notice->descriptor(), POLLIN, 0});
      for (const auto& task : running_) {
        polled.push_back({task.pending.empty() ? -1 : task.in.get(), POLLOUT, 0});
      }
      const std::size_t streams = polled.size();
      labelled_.poll_for(polled);
      const auto ready = ::poll(polled.data(), polled.size(), timeout());
      if (ready < 0 && errno != EINTR) return;
      if (polled[0].revents != 0) read_signals();
      if (polled[1].revents != 0) read_stdin();
      if (polled[2].revents != 0) read_terminal();
      if (polled[3].revents != 0) read_notice();
      labelled_.read(polled, streams);
      for (auto& task : running_) feed(task);
      if (limit_ && clock_.mono() >= *limit_) {
        limit_.reset();
        out_of_time();
      }
      if (deadline_ && clock_.mono() >= *deadline_) {
        deadline_.reset();
        signal_tasks(SIGKILL);
      }
      if (say_at_ && clock_.mono() >= *say_at_) say_ends();
      // A task's children may hold its output open; nobody waits for them.
      if (alive() == 0 && ready == 0) {
        labelled_.flush();
        return;
      }
    }
  }

  [[nodiscard]] int timeout() const {
    if (alive() == 0) return 100;
    auto next = deadline_;
    if (limit_ && (!next || *limit_ < *next)) next = limit_;
    if (say_at_ && (!next || *say_at_ < *next)) next = say_at_;
    if (!next) return -1;
    return static_cast<int>(std::clamp<std::int64_t>((*next - clock_.mono()).value(), 0, 60'000));
  }

  [[nodiscard]] bool wants_input() const {
    if (input_ended_) return false;
    if (terminal_) return true;
    if (!feeding_) return false;
    if (std::ranges::any_of(running_, [](const Running& task) { return !task.pending.empty(); })) {
      return false;
    }
    // In the background reading the terminal would stop us.
    return ::isatty(STDIN_FILENO) == 0 || ::tcgetpgrp(STDIN_FILENO) == ::getpgrp();
  }

  void read_stdin() {
    char buffer[4096];
    const auto got = ::read(STDIN_FILENO, buffer, sizeof buffer);
    if (got < 0 && (errno == EINTR || errno == EAGAIN)) return;
    if (got <= 0) {
      input_ended_ = true;
      for (auto& task : running_) {
        if (task.pending.empty()) task.in.reset();
      }
      return;
    }
    const std::string_view text(buffer, static_cast<std::size_t>(got));
    if (terminal_) {
      sys::write_all(terminal_.get(), text);
      return;
    }
    for (auto& task : running_) {
      if (task.in) task.pending += text;
    }
  }

  void feed(Running& task) const {
    if (!task.in || task.pending.empty()) return;
    const auto wrote = ::write(task.in.get(), task.pending.data(), task.pending.size());
    if (wrote > 0) task.pending.erase(0, static_cast<std::size_t>(wrote));
    if (wrote < 0 && errno != EAGAIN && errno != EINTR) {
      task.pending.clear();
      task.in.reset();
    }
    if (task.pending.empty() && input_ended_) task.in.reset();
  }

  void read_terminal() {
    char buffer[4096];
    const auto got = ::read(terminal_.get(), buffer, sizeof buffer);
    if (got > 0) {
      sys::write_all(STDOUT_FILENO, {buffer, static_cast<std::size_t>(got)});
    } else if (got == 0 || errno != EINTR) {
      terminal_.reset();  // EIO: the task's side is closed
    }
  }

  void read_signals() {
    signalfd_siginfo info{};
    while (::read(signals_.get(), &info, sizeof info) == sizeof info) {
      const auto signal = static_cast<int>(info.ssi_signo);
      switch (signal) {
        case SIGCHLD:
          reap();
          break;
        case SIGINT:
          interrupted();
          break;
        case SIGWINCH:
          resize();
          break;
        case SIGTERM:
        case SIGHUP:
        case SIGQUIT:
          voice_.info("forcing job termination");
          abort_step(SIGTERM);
          break;
        default:
          if (signal == SIGCONT) voice_.info("got SIGCONT");
          signal_tasks(signal);
      }
    }
  }

  void resize() const {
    winsize size{};
    if (terminal_ && ::ioctl(STDIN_FILENO, TIOCGWINSZ, &size) == 0) {
      ::ioctl(terminal_.get(), TIOCSWINSZ, &size);
    }
  }

  // The daemon ends the job: it asks the tasks, and kills them when their time is over.
  void read_notice() {
    const auto job = plan_.notice->take();
    if (!job || aborting_) return;
    aborting_ = true;
    raw_->pause([&] {
      words_.waiting(kKillWait);
      words_.cancelled(ran_out_of_time(*job), clock_.wall());
    });
    // A shell at a terminal ignores being asked to end.
    if (plan_.pty) signal_tasks(SIGHUP);
  }

  void out_of_time() {
    if (aborting_) return;
    outcome_.end.timed_out = true;
    raw_->pause([&] { words_.cancelled(true, clock_.wall()); });
    abort_step(SIGTERM);
  }

  // Known by the time its victim is reaped.
  void look_for_oom() {
    const auto kills = count_oom_kills() - oom_kills_before_;
    if (kills <= 0 || outcome_.end.out_of_memory) return;
    outcome_.end.out_of_memory = true;
    raw_->pause([&] { words_.out_of_memory(kills); });
  }

  void interrupted() {
    const auto now = clock_.mono();
    const bool again = last_interrupt_ && now - *last_interrupt_ <= kDoubleInterrupt;
    last_interrupt_ = now;
    if (aborting_) {
      voice_.info("forcing job termination");
      signal_tasks(SIGKILL);
      return;
    }
    if (!again && !plan_.quit_on_interrupt) {
      voice_.info("interrupt (one more within 1 sec to abort)");
      std::vector<std::size_t> tasks;
      for (std::size_t i = 0; i < running_.size(); ++i) {
        if (running_[i].pid > 0) tasks.push_back(i);
      }
      voice_.info(fmt::format("{} {} {}: running", words_.name(),
                              tasks.size() == 1 ? "task" : "tasks", format_ranges(tasks)));
      return;
    }
    voice_.info(fmt::format("sending Ctrl-C to {}", words_.name()));
    abort_step(SIGINT);
  }

  void abort_step(int signal) {
    if (!aborting_) {
      aborting_ = true;
      raw_->pause([&] { words_.waiting(kKillWait); });
      deadline_ = clock_.mono() + kKillWait;
    }
    signal_tasks(SIGCONT);
    signal_tasks(signal);
  }

  void say_ends() {
    say_at_.reset();
    for (auto& [status, tasks] : std::exchange(unsaid_, {})) {
      std::ranges::sort(tasks);
      words_.ended(status, tasks, outcome_.end.out_of_memory);
    }
  }

  void reap() {
    std::map<int, std::vector<std::size_t>> ends;  // wait status: tasks
    while (true) {
      int status = 0;
      rusage usage{};
      const pid_t pid = ::wait4(-1, &status, WNOHANG, &usage);
      if (pid <= 0) break;
      for (std::size_t i = 0; i < running_.size(); ++i) {
        if (running_[i].pid != pid) continue;
        running_[i].pid = -1;
        running_[i].pending.clear();
        running_[i].in.reset();
        ends[status].push_back(i);
        count(status, usage);
      }
    }
    for (const auto& [status, tasks] : ends) {
      if (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) look_for_oom();
      auto& unsaid = unsaid_[status];
      unsaid.insert(unsaid.end(), tasks.begin(), tasks.end());
    }
    if (!plan_.pty && !unsaid_.empty()) {
      if (alive() == 0) {
        say_ends();
      } else if (!say_at_) {
        say_at_ = clock_.mono() + kGather;
      }
    }
    if (ends.empty() || alive() == 0) return;
    if (!deadline_ && plan_.wait_s && *plan_.wait_s > 0) {
      deadline_ = clock_.mono() + seconds(*plan_.wait_s);
    }
    const bool bad = ends.rbegin()->first != 0;
    if (bad && plan_.kill_on_bad_exit && !aborting_) {
      if (!plan_.pty) say_ends();
      voice_.info(fmt::format("Terminating {}", words_.name()));
      blamed_ = true;
      abort_step(SIGTERM);
    }
  }

  void count(int status, const rusage& usage) {
    const auto ms = [](const timeval& time) {
      return std::int64_t{time.tv_sec} * 1000 + time.tv_usec / 1000;
    };
    outcome_.end.user_cpu_ms += ms(usage.ru_utime);
    outcome_.end.system_cpu_ms += ms(usage.ru_stime);
    outcome_.end.max_rss = std::max(outcome_.end.max_rss, std::int64_t{usage.ru_maxrss} * 1024);
    if (WIFSIGNALED(status)) {
      if (blamed_) return;  // killed because another task failed: that one's end counts
      outcome_.end.exit_signal = std::max(outcome_.end.exit_signal, WTERMSIG(status));
      outcome_.status = std::max(outcome_.status, 128 + WTERMSIG(status));
    } else {
      outcome_.end.exit_code = std::max(outcome_.end.exit_code, WEXITSTATUS(status));
      outcome_.status = std::max(outcome_.status, WEXITSTATUS(status));
    }
  }

  const StepPlan& plan_;
  const Voice& voice_;
  StepVoice words_;
  sys::SystemClock clock_;
  std::vector<Running> running_;
  LabelledOutput labelled_;
  std::map<std::string, sys::Fd> files_;  // by path: tasks that share one share its end
  sys::Fd terminal_;
  sys::Fd signals_;
  sigset_t awaited_{};
  sigset_t before_{};
  StepOutcome outcome_;
  std::map<int, std::vector<std::size_t>> unsaid_;  // wait status: tasks
  std::optional<MonoTime> say_at_;
  std::optional<MonoTime> last_interrupt_;
  std::optional<MonoTime> deadline_;
  std::optional<MonoTime> limit_;
  const RawTerminal* raw_ = nullptr;  // while the tasks run
  bool feeding_ = false;
  bool input_ended_ = false;
  bool aborting_ = false;
  bool left_alone_ = false;  // the daemon was asked to kill the step; next time we kill it
  bool blamed_ = false;
  const std::int64_t oom_kills_before_ = count_oom_kills();
};

}  // namespace

StepOutcome run_tasks(const StepPlan& plan, const Voice& voice) {
  return Runner(plan, voice).run();
}

std::string find_program(const std::string& name, std::string_view path) {
  if (name.find('/') != name.npos) return name;
  auto found = sys::find_in_path(name, path);
  return found.empty() ? name : found;
}

}  // namespace aliquot::cli
