// Decides who may launch work on a GPU of which several jobs hold shares, so that each gets its
// share of the GPU's time. Pure: every millisecond it is told what each job has in flight on which
// GPU, and it says whose gate is closed. It measures nothing and knows no files: node/arbiter does.
//
// Charges. Each job is charged for its part of the time that passed. The driver gives equal slices
// of time, in turn, to MPS servers and to processes without a server: a job with four processes and
// no server gets four slices. Within a server processes run side by side, and each gets time in
// proportion to the length of its kernels. The virtual time of a job is what it was charged,
// divided by its share. A job that has work all the time is a contender. A contender that is behind
// another job in virtual time gets less than its share: it is short.
//
// Turns. They cost time, so they are taken only where a job is short: by more than two hundredths
// of the GPU, or, among many jobs, by most of its share. Then one contender at a time has its gate
// open: the one that is furthest behind, until it is one turn ahead of the next. What it still has
// in flight then runs beside the next one's work. Only a launch that takes long has the GPU to
// itself until it ends, because switching between servers or processes costs both of them. A job
// that is no contender launches whenever it likes. It is owed no more than a bounded credit for the
// time it was away: so a burst is served at once, and a long absence does not buy the whole GPU.
// The GPU is never kept idle for a turn: a job that does not use its turn is passed over.
//
// Several GPUs. A job with shares of several GPUs has all its gates opened and closed together, and
// is charged on each what it cost on the most expensive one: otherwise collective operations on one
// GPU would spin while they wait for another.
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
  // What one job was seen to be doing on one GPU.
  struct Seen {
    HolderId job;
    std::size_t gpu = 0;
    int flying = 0;        // its processes that have something in flight
    bool waiting = false;  // a process of it waits at the gate
    double busy = 1;       // part of the time in which the GPU has work of it, as it measures
    double launch_ns = 0;  // how long one of its launches takes alone; 0: not known
  };

  // A new job on that GPU, or a new share. Jobs of one MPS server name the same server; 0: none.
  void set(const HolderId& job, std::size_t gpu, Compute share, std::uint64_t server);
  void remove(const HolderId& job);

  // elapsed_ns: since the last step. A job that is not in `seen` does nothing.
  void step(std::int64_t elapsed_ns, const std::vector<Seen>& seen);

  [[nodiscard]] bool paused(const HolderId& job) const;
  // Turns are taken on that GPU.
  [[nodiscard]] bool turns(std::size_t gpu) const;
  // What the arbiter knows of each job on that GPU, for the log.
  [[nodiscard]] std::string describe(std::size_t gpu) const;

 private:
  // A job on a GPU.
  struct Member {
    double share = 1;
    std::uint64_t server = 0;
    double virtual_ns = 0;
    double charge_ns = 0;  // virtual time charged in this step
    double active_ns = 0;  // how much of the last moments it was active
    int flying = 0;
    bool waiting = false;
    double busy = 1;
    double launch_ns = 0;
    int grace = 0;        // steps in which it may still be on its way through the opened gate
    double light_ns = 0;  // how much longer it contends only beside a job that fills the GPU
    bool known = false;   // it has been active
    bool contender = false;
    bool passed_over = false;  // it is somebody else's turn here
    double lingers_ns = 0;     // how long it has had something in flight since it was passed over
    double lingered_ns = 0;    // the same, of the turn before
    bool paused = false;       // its gate here is closed
  };
  struct Gpu {
    std::map<HolderId, Member> members;
    HolderId holder;
    bool turns = false;
    std::int64_t unhelped_ns = 0;  // how long the turns have made nobody wait
    bool was_idle = false;
    double idle_budget_ns = 0;  // how long it may still be idle for the job that has the turn
  };

  void look(double elapsed_ns, const std::vector<Seen>& seen);
  static void judge(Gpu& gpu, double elapsed_ns);
  [[nodiscard]] static bool is_light(const Member& member);
  [[nodiscard]] static double work_of(const Gpu& gpu, const Member& member);
  static void charge(Gpu& gpu, double elapsed_ns);
  static void settle(Gpu& gpu, double elapsed_ns);
  static void notice(Gpu& gpu, std::int64_t elapsed_ns);
  static void choose(Gpu& gpu);
  static void wait_for_long_ones(Gpu& gpu, double elapsed_ns);
  void decide(Gpu& gpu, double elapsed_ns) const;
  static std::map<HolderId, Member>::iterator slowest_contender(
      Gpu& gpu, const std::function<bool(const HolderId&)>& may_run);
  [[nodiscard]] bool held_elsewhere(const HolderId& job, const Gpu& gpu) const;

  std::map<std::size_t, Gpu> gpus_;
};

}  // namespace aliquot::core
