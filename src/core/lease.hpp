// Who may launch, where several jobs hold shares of one GPU: fair shares of its time, decided from
// what was seen every millisecond. Pure: it is told what each job has in flight on which GPU and
// says whose gate is closed. It measures nothing and knows no files (node/arbiter does).
//
// Each job is charged its part of the time that passed. The driver alternates equal slices between
// MPS servers and processes without one: a job with four processes and no server has four slices.
// Within a server processes run side by side, and who has the longer kernels gets more: in
// proportion to their length. Charged time divided by the share is virtual time. Who works all the
// time (a contender) and is behind another is short of something.
//
// Turns cost something, so they are taken only where someone is short: by more than two hundredths
// of the GPU, and in a crowd by most of what he should have. Then one contender at a time has its
// gate open, the one that is furthest behind, until it is a turn ahead of the next. What it has in
// flight then runs on beside the next one's; but a launch that takes long has the GPU to itself
// until it ends: to alternate between servers or processes costs both of them. A job that is not a
// contender runs when it likes and is owed nothing beyond a bounded credit for having been away: so
// a burst is served at once, and a long absence buys no monopoly. The GPU is never left idle for a
// turn: who lets it rest is passed over.
//
// A job with shares of several GPUs has all its gates opened and closed together, and is charged on
// each what it cost on the dearest: collectives on one would spin for those on the other.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "base/ids.hpp"
#include "base/units.hpp"

namespace aliquot::core {

class LeaseArbiter {
 public:
  struct Options {
    std::int64_t turn_ns = 10'000'000;        // of GPU time
    std::int64_t credit_ns = 400'000'000;     // of time: for who was away, times its share
    std::int64_t uneven_ns = 20'000'000;      // of GPU time in a second: then turns are taken
    std::int64_t useless_ns = 2'000'000'000;  // turns that make nobody wait for so long end
  };
  // What one job was seen to be doing on one GPU.
  struct Seen {
    HolderId job;
    std::size_t gpu = 0;
    int flying = 0;        // processes of it with something in flight
    bool waiting = false;  // it stands at its gate
    double busy = 1;  // part of the time in which the GPU really has work of it, as it measures
    double launch_ns = 0;  // how long a launch of it takes by itself; 0: not known
  };

  LeaseArbiter() = default;
  explicit LeaseArbiter(Options options) : options_(options) {}

  // A new job on that GPU, or a new share. Jobs of one MPS server have its number; 0: it has none.
  void set(const HolderId& job, std::size_t gpu, Compute share, std::uint64_t server);
  void remove(const HolderId& job);

  // elapsed_ns passed since the last step. A job that is not mentioned does nothing.
  void step(std::int64_t elapsed_ns, const std::vector<Seen>& seen);

  [[nodiscard]] bool paused(const HolderId& job) const;
  // Turns are taken on that GPU.
  [[nodiscard]] bool turns(std::size_t gpu) const;
  // What is thought of each job on it, for the log.
  [[nodiscard]] std::string describe(std::size_t gpu) const;

 private:
  // A job on a GPU.
  struct Member {
    double share = 1;
    std::uint64_t server = 0;
    double virtual_ns = 0;
    double charge_ns = 0;  // virtual, of this step
    double active_ns = 0;  // of the last moments
    int flying = 0;
    bool waiting = false;
    double busy = 1;
    double launch_ns = 0;
    int grace = 0;        // steps for which it may still be on its way through the gate
    double light_ns = 0;  // for so long a contender only beside who fills the GPU
    bool known = false;
    bool contender = false;
    bool passed_over = false;  // it is somebody else's turn here
    double lingers_ns = 0;     // for so long it is passed over and still has something in flight
    double lingered_ns = 0;    // the last time
    bool paused = false;       // so its gates are closed
  };
  struct Gpu {
    std::map<HolderId, Member> members;
    HolderId holder;
    bool turns = false;
    std::int64_t unhelped_ns = 0;  // since the turns made somebody wait
    bool was_idle = false;
    double idle_budget_ns = 0;  // so long it may rest for who has the turn
  };

  void look(double elapsed_ns, const std::vector<Seen>& seen);
  static void judge(Gpu& gpu, double elapsed_ns);
  [[nodiscard]] static bool is_light(const Member& member);
  [[nodiscard]] static double work_of(const Gpu& gpu, const Member& member);
  static void charge(Gpu& gpu, double elapsed_ns);
  void settle(Gpu& gpu, double elapsed_ns) const;
  void notice(Gpu& gpu, std::int64_t elapsed_ns) const;
  void choose(Gpu& gpu) const;
  static void wait_for_long_ones(Gpu& gpu, double elapsed_ns);
  void decide(Gpu& gpu, double elapsed_ns) const;
  static std::map<HolderId, Member>::iterator slowest_contender(
      Gpu& gpu, const std::function<bool(const HolderId&)>& may_run);
  [[nodiscard]] bool held_elsewhere(const HolderId& job, const Gpu& gpu) const;

  Options options_;
  std::map<std::size_t, Gpu> gpus_;
};

}  // namespace aliquot::core
