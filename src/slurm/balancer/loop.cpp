#include "slurm/balancer/loop.hpp"

#include <poll.h>
#include <spdlog/spdlog.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <utility>

#include "node/worker.hpp"
#include "slurm/balancer/pace.hpp"
#include "slurm/balancer/reconciler.hpp"
#include "sys/fd.hpp"

namespace aliquot::slurm {
namespace {

constexpr Millis kGather = Millis(10);  // samples of one instant go into one round
constexpr Millis kTaking = Millis(50);
constexpr Millis kRetry = seconds(1);
constexpr Millis kForget = minutes(60);
constexpr Millis kStopPatience = seconds(10);
constexpr Millis kDropReport = seconds(60);

// What is shared with the worker, which may outlive the loop when slurmctld hangs.
struct Shared {
  Shared(SlurmClient& client, const LoopOptions& options)
      : reconciler(client, options.mode, options.state), done(::eventfd(0, EFD_CLOEXEC)) {}

  Reconciler reconciler;  // the worker's alone
  const sys::Fd done;     // readable when there is a result
  std::mutex mutex;
  struct Finished {
    Result<Reconciler::Outcome> outcome;
    bool looked;
    Millis took;
  };
  std::optional<Finished> finished;
};

class Loop {
 public:
  Loop(SampleReceiver& receiver, SlurmClient& client, const LoopOptions& options,
       const Clock& clock, int stop)
      : receiver_(receiver),
        clock_(clock),
        stop_(stop),
        shared_(std::make_shared<Shared>(client, options)),
        worker_(std::make_unique<node::Worker>("balancer-slurm")),
        started_(clock.mono()) {
    if (const auto recalled = shared_->reconciler.recall(); !recalled) {
      spdlog::warn("{}; taking the nodes' weights as they are", recalled.error().message);
    }
  }

  Result<void> run() {
    next_look_ = clock_.mono();
    next_round_ = next_look_;
    for (;;) {
      const auto ready = wait(busy_ ? std::nullopt : std::optional(due()));
      if (ready.stop) return finish();
      if (ready.samples) take_samples();
      if (ready.done) take_result();
      report_silence();
      if (!busy_ && clock_.mono() >= due()) start_round();
    }
  }

 private:
  struct Ready {
    bool stop = false;
    bool samples = false;
    bool done = false;
  };

  Ready wait(std::optional<MonoTime> until) const {
    std::array<pollfd, 3> watched{{{stop_, POLLIN, 0},
                                   {receiver_.descriptor(), POLLIN, 0},
                                   {shared_->done.get(), POLLIN, 0}}};
    // A second at most: silence is noticed by the clock.
    std::int64_t timeout = 1'000;
    if (until) timeout = std::clamp<std::int64_t>(until->ms() - clock_.mono().ms(), 0, timeout);
    if (::poll(watched.data(), watched.size(), static_cast<int>(timeout)) <= 0) return {};
    return {(watched[0].revents & POLLIN) != 0, (watched[1].revents & POLLIN) != 0,
            (watched[2].revents & POLLIN) != 0};
  }

  [[nodiscard]] MonoTime due() const {
    return samples_pending_ ? std::min(next_round_, next_look_) : next_look_;
  }

  void take_samples() {
    // Not for long: each is a question to munged, and anybody can send what looks like a sample.
    // Orders to stop, results and rounds come in between.
    const MonoTime until = clock_.mono() + kTaking;
    do {
      auto received = receiver_.receive();
      if (!received) {
        drop(received.error().message);
        continue;
      }
      if (!*received) return;
      take_sample(std::move(**received));
    } while (clock_.mono() < until);
  }

  void take_sample(SampleReceiver::Sample received) {
    const MonoTime now = clock_.mono();
    const std::string& name = received.sample.node.value();
    auto [place, added] = heard_.try_emplace(name);
    HeardSample& known = place->second;
    // Datagrams may overtake each other. A clock that was set back is believed after a while.
    if (!added && received.encoded_s < known.encoded_s && now - known.heard <= kStaleAfter) return;
    known = {std::move(received.sample), now, received.encoded_s};
    if (!samples_pending_) next_round_ = std::max(next_round_, now + kGather);
    samples_pending_ = true;
  }

  void drop(const std::string& why) {
    ++dropped_;
    const MonoTime now = clock_.mono();
    if (now - drop_reported_ < kDropReport) return;
    spdlog::warn("dropped {} datagram(s), the last one: {}", std::exchange(dropped_, 0), why);
    drop_reported_ = now;
  }

  void start_round() {
    const MonoTime now = clock_.mono();
    const bool look = now >= next_look_;
    const Reconciler::Round round{look, now - started_ <= kStaleAfter, now};
    std::erase_if(heard_, [&](const auto& entry) { return now - entry.second.heard > kForget; });
    samples_pending_ = false;
    busy_ = true;
    worker_->post([shared = shared_, heard = heard_, round, &clock = clock_] {
      auto outcome = shared->reconciler.round(heard, round);
      const std::lock_guard lock(shared->mutex);
      shared->finished = {std::move(outcome), round.look, clock.mono() - round.now};
      ::eventfd_write(shared->done.get(), 1);
    });
  }

  void take_result() {
    eventfd_t count = 0;
    ::eventfd_read(shared_->done.get(), &count);
    std::optional<Shared::Finished> finished;
    {
      const std::lock_guard lock(shared_->mutex);
      finished = std::exchange(shared_->finished, std::nullopt);
    }
    if (!finished) return;
    busy_ = false;
    const MonoTime now = clock_.mono();
    if (!finished->outcome) {
      next_look_ = now + kRetry;
      next_round_ = next_look_;
      if (answers_ || finished->outcome.error().message != trouble_) {
        trouble_ = finished->outcome.error().message;
        spdlog::warn("cannot set weights: {}; trying on", trouble_);
      }
      answers_ = false;
      return;
    }
    pace_.note(finished->took, finished->looked);
    next_round_ = now + pace_.until_round();
    if (finished->looked) next_look_ = now + pace_.until_look();
    if (!answers_) spdlog::info("weights can be set again");
    answers_ = true;
    if (finished->outcome->resets > 0) {
      spdlog::info("{} node(s) had lost their weights, as after a reconfigure: set again",
                   finished->outcome->resets);
    }
    spdlog::debug("round of {} ms: {} weight(s), {} call(s)", finished->took.value(),
                  finished->outcome->weights, finished->outcome->calls);
  }

  void report_silence() {
    const MonoTime now = clock_.mono();
    for (const auto& [name, sample] : heard_) {
      const bool fresh = now - sample.heard <= kStaleAfter;
      if (fresh && speaking_.insert(name).second) spdlog::info("{}: samples arrive", name);
      if (!fresh && speaking_.erase(name) > 0) {
        spdlog::warn("{}: no samples any more; it counts as busy", name);
      }
    }
  }

  // Waits for the worker, but not longer than a service manager would.
  bool wait_for_worker(Millis patience) {
    const MonoTime until = clock_.mono() + patience;
    while (busy_ && clock_.mono() < until) {
      pollfd done{shared_->done.get(), POLLIN, 0};
      ::poll(&done, 1, 100);
      if ((done.revents & POLLIN) != 0) take_result();
    }
    return !busy_;
  }

  Result<void> finish() {
    if (wait_for_worker(kStopPatience)) {
      auto restored = std::make_shared<Result<void>>();
      busy_ = true;
      worker_->post([shared = shared_, restored] {
        *restored = shared->reconciler.restore();
        const std::lock_guard lock(shared->mutex);
        shared->finished = {Reconciler::Outcome{}, false, Millis(0)};
        ::eventfd_write(shared->done.get(), 1);
      });
      if (wait_for_worker(kStopPatience)) return *restored;
    }
    static_cast<void>(worker_.release());  // it hangs in libslurm, and goes with the process
    return fail(Error::Code::unavailable, "slurmctld does not answer");
  }

  SampleReceiver& receiver_;
  const Clock& clock_;
  int stop_;
  std::shared_ptr<Shared> shared_;
  std::unique_ptr<node::Worker> worker_;
  MonoTime started_;
  Heard heard_;
  std::set<std::string, std::less<>> speaking_;
  bool samples_pending_ = false;
  bool busy_ = false;
  bool answers_ = true;
  std::string trouble_;
  Pace pace_;
  MonoTime next_look_;
  MonoTime next_round_;
  std::int64_t dropped_ = 0;
  MonoTime drop_reported_ = MonoTime(-1'000'000);
};

}  // namespace

Result<void> run_loop(SampleReceiver& receiver, SlurmClient& client, const LoopOptions& options,
                      const Clock& clock, int stop) {
  return Loop(receiver, client, options, clock, stop).run();
}

}  // namespace aliquot::slurm
