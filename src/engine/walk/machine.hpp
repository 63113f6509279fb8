// The machine of the random walk: it runs nothing, but keeps what would run as carefully as a
// kernel does. Processes outlive the daemon, starts take a while, commands reach only what listens,
// and an end is heard of later, or by the next daemon. It finds by itself what no engine may ask of
// it: the same GPU for two, more than there is, a second run of what may run once.
//
// A fuse lets the daemon die at any of its calls, before or after it had its effect.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include "base/clock.hpp"
#include "engine/engine.hpp"
#include "engine/executor.hpp"

namespace aliquot::engine::walk {

// kill -9, as seen from inside the daemon.
struct Killed {};

// What must never happen has happened.
struct Violation : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// Both clocks are set at will.
class WalkClock final : public Clock {
 public:
  [[nodiscard]] WallTime wall() const override { return wall_; }
  [[nodiscard]] MonoTime mono() const override { return mono_; }
  void advance(Millis by) {
    wall_ += by;
    mono_ += by;
  }
  void set_wall(WallTime now) { wall_ = now; }
  void boot() { mono_ = MonoTime(1'000); }

 private:
  WallTime wall_{1'800'000'000'000};
  MonoTime mono_{5'000'000};
};

// The end of the daemon's life that lies in wait.
class Fuse {
 public:
  void light(int calls) { left_ = calls; }
  void put_out() { left_.reset(); }
  void burn() {
    if (!left_ || --*left_ > 0) return;
    left_.reset();
    throw Killed{};
  }

 private:
  std::optional<int> left_;
};

enum class Phase : std::uint8_t { launching, running, ended, lost };

// All that runs of one attempt of a job; its mark is its name.
struct Run {
  api::JobInfo job;
  std::string mark;
  bool batch = true;
  Phase phase = Phase::launching;
  bool watched = false;  // by this daemon
  bool frozen = false;
  bool cancelled = false;
  bool ending = false;  // end_allocation() is at work
  bool told = false;    // how it ended: it stays known until it is forgotten
  std::optional<std::int64_t> limit_ms = {};
  Millis ran = {};  // and not frozen
  node::ExitRecord record = {};

  [[nodiscard]] bool alive() const { return phase == Phase::launching || phase == Phase::running; }
};

class WalkMachine final : public Executor {
 public:
  explicit WalkMachine(Fuse& fuse) : fuse_(fuse) {}

  // --- what the engine asks
  void start(StartOrder order) override;
  void adopt(const Job& job) override;
  void command(JobId job, const node::Command& command) override;
  void start_step(StepOrder order) override;
  void attach(const Job&, Pid) override {}
  void adopt_step(const Job&, std::int64_t) override {}
  void signal_allocation(const Job&, int) override {}
  void signal_step(const Job&, std::int64_t, int) override {}
  void forget_step(const Job&, std::int64_t) override {}
  void freeze_allocation(const Job& job, bool frozen) override;
  void end_allocation(const Job& job, Millis patience) override;
  Result<std::vector<Leftover>> leftovers() override;
  void forget(const node::Run& run, Uid user) override;
  [[nodiscard]] std::string fence() const override { return "none: a walk"; }

  // --- what happens to it
  void time_passes(Millis by);
  // Everything on its way arrives: starts, ends, news. `dice` decides how it turns out.
  void go_on(ExecutorEvents& events, std::uint32_t dice);
  // The processes of one run end by themselves, or the stepd is killed.
  void end(std::size_t run, int exit_code);
  void lose(std::size_t run);
  // The daemon has gone; then the power, too.
  void daemon_died(std::uint32_t dice);
  void power_lost(std::uint32_t dice);

  [[nodiscard]] const std::vector<Run>& runs() const { return runs_; }
  [[nodiscard]] const Run* find(const std::string& mark) const;
  [[nodiscard]] bool expects(JobId job) const;  // news of it that are still on their way
  [[nodiscard]] bool quiet() const;
  // Which element of which array, or which job, has run how often.
  using Unit = std::pair<std::int64_t, std::int64_t>;
  static Unit unit_of(const api::JobInfo& job);
  std::map<Unit, int> times_run;
  std::set<Unit> held_back;  // by an administrator: must not start
  core::Node capacity;

 private:
  struct Adopted {
    JobId job;
    std::int64_t attempt = 0;
    std::string mark;
  };
  void check_room(const api::JobInfo& job);
  void begin(Run run);
  void obey(Run& run, const node::Command& command);
  Run* of(JobId job);
  Run* named(const std::string& mark);
  void runs_now(Run& run);
  void finish(Run& run, node::EndReason reason, int code);

  Fuse& fuse_;
  std::vector<Run> runs_;
  std::vector<Adopted> adopted_;
  std::map<JobId, std::vector<node::Command>> waiting_;  // for a stepd that is on its way
  std::vector<node::ExitRecord> endings_;                // of allocations
  struct NewStep {
    node::Run run;
    std::int64_t step = 0;
    bool refused = false;
  };
  std::vector<NewStep> new_steps_;
};

}  // namespace aliquot::engine::walk
