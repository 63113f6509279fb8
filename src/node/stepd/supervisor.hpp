// One batch job from its start to its end, inside aliquot-stepd: starts the script, keeps the time
// limit, does what the daemon says, leaves no process behind, and says how it ended. It needs
// nobody: the daemon may die and come back as often as it likes. One thread, one poll loop.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "node/launch.hpp"
#include "node/process_tree.hpp"
#include "node/spawn.hpp"
#include "node/stepd/voice.hpp"
#include "sys/fd.hpp"

namespace aliquot::node {

class Supervisor {
 public:
  // This process must be a subreaper, so that whatever the job leaves behind becomes our child.
  // Commands come line by line from control, which never ends.
  Supervisor(Launch launch, sys::Fd control);

  // Blocks SIGCHLD and SIGTERM for good. Returns when nothing of the job is left.
  ExitRecord run();

 private:
  void start();
  void fail_launch(const SpawnFailure& failure);
  void on_starting();
  void on_signals();
  void on_control();
  void on_time();
  void obey(const Command& command);

  void reap();
  void begin_end(EndReason reason, const std::string& cause,
                 std::optional<Millis> patience = std::nullopt);
  void ask_missed();
  void suspend();
  void resume();
  void signal(int number, Target target);
  // Those that die of the signal, from their MPS server.
  void part(const std::vector<sys::ProcessRef>& processes, int number);
  void part_and_signal(const std::vector<sys::ProcessRef>& processes, int number);
  void kill_all();
  void finish();
  void say(const std::string& text) { voice_.say(spec_.message_prefix + text + "\n"); }
  // All of the job, and those of its steps without the sruns that run them.
  [[nodiscard]] std::vector<sys::ProcessRef> all_processes_of_job() const;
  [[nodiscard]] std::vector<sys::ProcessRef> step_processes() const;

  [[nodiscard]] std::optional<std::int64_t> deadline() const;  // of the time limit
  [[nodiscard]] std::optional<std::int64_t> early_signal_at() const;
  [[nodiscard]] int poll_timeout() const;
  [[nodiscard]] bool done() const;

  Launch launch_;
  SpawnSpec spec_;
  sys::Fd signals_;
  sys::Fd control_;
  std::string control_text_;  // the beginning of a line
  Voice voice_;
  std::optional<Starting> starting_;
  ExitRecord record_;

  std::optional<Pid> shell_;     // the batch script, while it lives
  bool children_left_ = false;   // ours or orphans of the job
  std::int64_t started_at_ = 0;  // this and the rest: milliseconds since boot
  std::optional<std::int64_t> suspended_at_;
  std::int64_t suspended_ms_ = 0;
  bool early_signal_sent_ = false;
  bool ending_ = false;
  std::optional<std::int64_t> kill_at_;
  std::set<sys::ProcessRef> asked_;  // to end
  std::int64_t asked_until_ = 0;
  std::set<sys::ProcessRef> killed_;
};

}  // namespace aliquot::node
