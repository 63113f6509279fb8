#include "cli/jobs/allocation.hpp"

#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <functional>
#include <mutex>
#include <thread>

#include "cli/jobs/job_request.hpp"
#include "cli/jobs/waiting_line.hpp"
#include "cli/users.hpp"
#include "net/http.hpp"
#include "sys/fd.hpp"
#include "sys/system_clock.hpp"

namespace aliquot::cli {
namespace {

std::string_view not_allocated(const Voice& voice) {
  return voice.name() == "salloc" ? "Job submit/allocate failed" : "Unable to allocate resources";
}
// No message about a wait that is shorter than this.
constexpr std::chrono::milliseconds kSilence(300);
constexpr std::chrono::seconds kNewPlace(2);

// Tells the user that the job waits. The first connection is busy waiting, so a second one is used
// to find out which job is ours.
class WaitingNotice {
 public:
  WaitingNotice(const api::JobSpec& job, const Voice& voice)
      : job_(job), voice_(voice), asked_(sys::SystemClock().wall()), thread_([this] { watch(); }) {}
  WaitingNotice(const WaitingNotice&) = delete;
  WaitingNotice& operator=(const WaitingNotice&) = delete;
  ~WaitingNotice() { finish(); }

  // The job the notice was about, if there was one.
  std::optional<std::int64_t> finish() {
    {
      const std::lock_guard lock(mutex_);
      done_ = true;
    }
    changed_.notify_all();
    if (thread_.joinable()) thread_.join();
    return said_;
  }

 private:
  void watch() {
    std::unique_lock lock(mutex_);
    while (!changed_.wait_for(lock, kSilence, [this] { return done_; })) {
      lock.unlock();
      const auto id = find_job();
      lock.lock();
      if (done_ || !id) continue;
      if (voice_.name() == "salloc") voice_.info(fmt::format("Pending job allocation {}", *id));
      voice_.info(fmt::format("job {} queued and waiting for resources", *id));
      said_ = id;
      return show_place(lock, *id);
    }
  }

  // On one line that is written over again, for somebody who looks at it.
  void show_place(std::unique_lock<std::mutex>& lock, std::int64_t id) {
    if (voice_.level() < 0 || ::isatty(STDERR_FILENO) == 0) return;
    bool shown = false;
    while (!done_) {
      lock.unlock();
      const auto why = aliquot::cli::ask<api::WhyInfo>(fmt::format("/v1/jobs/{}/why", id));
      winsize size{};
      const bool known = ::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 1;
      lock.lock();
      if (done_) break;
      if (why && why->state == "PENDING") {
        const auto line = waiting_line(voice_.name(), *why, sys::SystemClock().wall());
        fmt::print(stderr, "\r{}\033[K", cut_to_columns(line, known ? size.ws_col - 1U : 79U));
        std::fflush(stderr);
        shown = true;
      }
      changed_.wait_for(lock, kNewPlace, [this] { return done_; });
    }
    if (!shown) return;
    fmt::print(stderr, "\r\033[K");
    std::fflush(stderr);
  }

  std::optional<std::int64_t> find_job() const {
    auto daemon = DaemonClient::connect();
    if (!daemon) return std::nullopt;
    const auto list = daemon->list(
        fmt::format("/v1/jobs?live&user={}", net::percent_encode(user_name(Uid(::geteuid())))));
    if (!list) return std::nullopt;
    std::optional<std::int64_t> found;
    for (const auto& job : list->jobs) {
      const bool ours = !job.batch && job.state == "PENDING" && job.name == job_.name &&
                        job.submit_ms + 1000 >= asked_.ms();
      if (ours && (!found || job.id > *found)) found = job.id;
    }
    return found;
  }

  const api::JobSpec& job_;
  const Voice& voice_;
  const WallTime asked_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool done_ = false;
  std::optional<std::int64_t> said_;
  std::thread thread_;  // last: it uses the others
};

// The helping threads block all signals: the main thread handles them.
template <class Body>
std::thread start_thread(Body body) {
  sigset_t all;
  sigset_t before;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  std::thread thread(std::move(body));
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return thread;
}

}  // namespace

// Holds the connection, and makes a new one when it breaks.
class HeldAllocation::Keeper {
 public:
  Keeper(DaemonClient daemon, std::int64_t job)
      : daemon_(std::move(daemon)),
        job_(job),
        stop_(::eventfd(0, EFD_CLOEXEC)),
        thread_(start_thread([this] { keep(); })) {}
  Keeper(const Keeper&) = delete;
  Keeper& operator=(const Keeper&) = delete;
  ~Keeper() { stop(); }

  void finish(const api::StepEnd& end) {
    stop();
    if (!daemon_) return;
    // Best effort: the connection's end says it as well, without the exit code.
    const auto target = fmt::format("/v1/jobs/{}/end", job_);
    for (int attempt = 0; attempt < kEndSeconds; ++attempt) {
      const auto answer = daemon_->send("POST", target, api::to_json(end));
      if (answer || answer.error().code != "EAGAIN") break;  // EAGAIN: its disk is full just now
      ::sleep(1);
    }
    daemon_.reset();
  }

 private:
  void stop() {
    if (!thread_.joinable()) return;
    ::eventfd_write(stop_.get(), 1);
    thread_.join();
  }

  void keep() {
    while (daemon_) {
      std::array<pollfd, 2> watched{pollfd{stop_.get(), POLLIN, 0},
                                    pollfd{daemon_->descriptor(), POLLIN | POLLRDHUP, 0}};
      if (::poll(watched.data(), watched.size(), -1) < 0) return;
      if (watched[0].revents != 0) return;
      if (watched[1].revents != 0) attach_again();
    }
  }

  void attach_again() {
    daemon_.reset();
    for (int attempt = 0; attempt < kAttempts; ++attempt) {
      pollfd stopped{stop_.get(), POLLIN, 0};
      if (::poll(&stopped, 1, kAttemptPauseMs) > 0) {
        ::eventfd_write(stop_.get(), 1);
        return;
      }
      auto again = DaemonClient::connect();
      if (!again) continue;
      const auto answer = again->send("POST", fmt::format("/v1/jobs/{}/attach", job_), "{}");
      if (answer) {
        daemon_.emplace(std::move(*again));
        return;
      }
      if (!is_passing(answer.error())) return;  // the job is over
    }
  }

  static constexpr int kEndSeconds = 15;
  static constexpr int kAttempts = 300;
  static constexpr int kAttemptPauseMs = 200;

  std::optional<DaemonClient> daemon_;  // the thread's while it runs
  const std::int64_t job_;
  const sys::Fd stop_;
  std::thread thread_;
};

// Asks, on a connection of its own, for word of the end; again, where the daemon goes away
// meanwhile.
class HeldAllocation::Watch {
 public:
  Watch(std::int64_t job, std::function<void(const api::JobInfo&)> told)
      : job_(job), told_(std::move(told)), thread_(start_thread([this] { watch(); })) {}
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;
  ~Watch() {
    {
      const std::lock_guard lock(mutex_);
      stopped_ = true;
      if (descriptor_ >= 0) ::shutdown(descriptor_, SHUT_RDWR);
    }
    changed_.notify_all();
    thread_.join();
  }

 private:
  void watch() {
    constexpr std::chrono::seconds kAgain(1);
    std::unique_lock lock(mutex_);
    while (!stopped_) {
      lock.unlock();
      const auto job = ask_once();
      lock.lock();
      if (stopped_) return;
      if (job) return told_(*job);
      if (!is_passing(job.error())) return;
      changed_.wait_for(lock, kAgain, [this] { return stopped_; });
    }
  }

  Reply<api::JobInfo> ask_once() {
    auto daemon = DaemonClient::connect();
    if (!daemon) return tl::make_unexpected(daemon.error());
    {
      const std::lock_guard lock(mutex_);
      if (stopped_) return tl::make_unexpected(api::ErrorInfo{});
      descriptor_ = daemon->descriptor();
    }
    auto job = daemon->get<api::JobInfo>(fmt::format("/v1/jobs/{}/wait?ending", job_));
    const std::lock_guard lock(mutex_);
    descriptor_ = -1;
    return job;
  }

  const std::int64_t job_;
  const std::function<void(const api::JobInfo&)> told_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool stopped_ = false;
  int descriptor_ = -1;
  std::thread thread_;  // last: it uses the others
};

void HeldAllocation::on_ending(std::function<void(const api::JobInfo&)> told) {
  watch_ = std::make_unique<Watch>(answer_.job_id, std::move(told));
}

HeldAllocation::HeldAllocation(std::unique_ptr<Keeper> keeper, api::Allocation answer)
    : keeper_(std::move(keeper)), answer_(std::move(answer)) {}
HeldAllocation::HeldAllocation(HeldAllocation&&) noexcept = default;
HeldAllocation& HeldAllocation::operator=(HeldAllocation&&) noexcept = default;
HeldAllocation::~HeldAllocation() = default;

void HeldAllocation::finish(const api::StepEnd& end) {
  watch_.reset();
  if (keeper_) keeper_->finish(end);
  keeper_.reset();
}

std::optional<HeldAllocation> HeldAllocation::ask(const OptionSet& options, const api::JobSpec& job,
                                                  const Voice& voice) {
  auto daemon = DaemonClient::connect();
  if (!daemon) {
    say_refusal(voice, not_allocated(voice), daemon.error(), job);
    return std::nullopt;
  }
  if (auto placed = check_places(options, *daemon, voice); !placed) {
    say_refusal(voice, not_allocated(voice), placed.error(), job);
    return std::nullopt;
  }
  if (job.immediate && job.hold) {
    say_refusal(voice, not_allocated(voice), {"ESLURM_DEPENDENCY", ""}, job);
    return std::nullopt;
  }
  WaitingNotice notice(job, voice);
  constexpr std::string_view kTarget = "/v1/allocations";
  const std::string body = api::to_json(job);
  auto answer = job.immediate ? daemon->post<api::Allocation>(kTarget, body)
                              : post_patiently<api::Allocation>(*daemon, kTarget, body, voice);
  const auto waited = notice.finish();
  if (!answer) {
    say_refusal(voice, not_allocated(voice), answer.error(), job);
    return std::nullopt;
  }
  if (waited) voice.info(fmt::format("job {} has been allocated resources", answer->job_id));
  auto keeper = std::make_unique<Keeper>(std::move(*daemon), answer->job_id);
  return HeldAllocation(std::move(keeper), std::move(*answer));
}

}  // namespace aliquot::cli
