// For tests of core/lease: GPUs as measured (equal slices for MPS servers and for processes without
// one, processes of a server side by side by the length of their kernels), the library in each
// process as enforce/gate has it, and programs that queue, wait, pause and come in several
// processes. Time is simulated in steps.
#pragma once

#include <algorithm>
#include <cmath>
#include <map>
#include <vector>

#include "core/flight_watch.hpp"
#include "core/lease.hpp"

namespace aliquot::core::test {

inline constexpr double kUs = 1e3;
inline constexpr double kMs = 1e6;

struct Program {
  double kernel_ns = 200 * kUs;
  double queue_ns = 4 * kMs;  // launched before each wait
  double gap_ns = 0;          // what it does after each wait
  double launch_ns = 4 * kUs;
  double on_ns = 0, off_ns = 0;  // bursts; 0: always
  double from_ns = 0;            // it starts then
  double queue_from_ns = 0;      // and waits after every few milliseconds until then
  int processes = 1;
  double seems = 1;  // its launches seem to take so many times what they do
};

class SimulatedNode {
 public:
  struct Process {
    std::vector<double> queued;  // GPU time, on each GPU of the job
    double to_launch = 0;        // of this batch
    double rest_until = 0;
    double launch_debt = 0;
    bool syncing = false;
    bool waiting = false;
    bool looked = false;  // at the gate it looks all the time
    double asked_ns = 0;  // launched so far, in GPU time
    std::uint64_t completed = 0;
    double looked_ns = 0;
    double busy = 1;
    std::vector<FlightWatch> flights;
  };
  struct Job {
    HolderId id;
    double share;
    std::vector<std::size_t> gpus;
    std::uint64_t server;
    Program program;
    std::vector<Process> processes;
    double done_ns = 0;  // GPU time it got, on the first of its GPUs
    double blocked_ns = 0;
  };

  std::vector<Job> jobs;
  LeaseArbiter arbiter;
  double now_ns = 1;
  bool looks_at_the_gate = true;  // the library does

  Job& add(double share, const Program& program, std::uint64_t server = 0,
           std::vector<std::size_t> gpus = {0}) {
    const auto id = holder_of(JobId(static_cast<std::int64_t>(jobs.size()) + 1));
    Job job{id, share, gpus, server, program, {}, 0, 0};
    for (int i = 0; i < program.processes; ++i) {
      Process process;
      process.queued.resize(gpus.size());
      process.flights.resize(gpus.size());
      job.processes.push_back(std::move(process));
    }
    for (const std::size_t gpu : gpus)
      arbiter.set(id, gpu, Compute(std::lround(share * 10'000)), server);
    jobs.push_back(std::move(job));
    return jobs.back();
  }

  void run(double length_ns) {
    for (const double end = now_ns + length_ns; now_ns < end; now_ns += kTick) {
      for (Job& job : jobs) {
        for (Process& process : job.processes) launch(job, process);
      }
      work();
      since_look_ += kTick;
      const bool turns =
          std::ranges::any_of(jobs, [&](const Job& job) { return arbiter.turns(job.gpus[0]); });
      if (since_look_ >= (turns ? kMs : 5 * kMs)) look();
    }
  }
  void forget() {
    for (Job& job : jobs) job.done_ns = job.blocked_ns = 0;
  }
  double part(std::size_t i, double of_ns) const { return jobs[i].done_ns / of_ns; }

 private:
  static constexpr double kTick = 100 * kUs;
  static constexpr double kInFlight = 4 * kMs;
  static constexpr double kWatched = 50 * kMs;  // as soon as there are two
  static constexpr double kAlone = 1e12;

  // Two jobs use the GPU.
  bool watched() const {
    return std::ranges::count_if(jobs,
                                 [&](const Job& job) { return job.processes[0].asked_ns > 0; }) > 1;
  }

  bool is_on(const Program& program) const {
    if (now_ns < program.from_ns) return false;
    const double period = program.on_ns + program.off_ns;
    return program.on_ns == 0 || std::fmod(now_ns, period) < program.on_ns;
  }
  static double in_flight(const Process& process) {
    return *std::ranges::max_element(process.queued);
  }

  void launch(Job& job, Process& process) {
    const Program& program = job.program;
    const bool closed = arbiter.paused(job.id);
    const bool bounded = arbiter.turns(job.gpus[0]);
    const auto over = [&] {
      return static_cast<std::uint64_t>(
          (process.asked_ns - in_flight(process)) / program.kernel_ns + 1e-3);
    };
    process.waiting = process.looked = false;
    if (process.syncing) {
      if (in_flight(process) > 0) return;
      process.syncing = false;
      process.completed = over();
      process.rest_until = now_ns + program.gap_ns;
    }
    if (now_ns < process.rest_until || (!is_on(program) && process.to_launch <= 0)) return;
    if (process.to_launch <= 0) {
      const double batch = now_ns < program.queue_from_ns ? 4 * kMs : program.queue_ns;
      process.to_launch = std::max(batch, program.kernel_ns);
    }
    process.waiting = closed;
    if (closed) {
      if (looks_at_the_gate) process.completed = over();
      process.looked = looks_at_the_gate;
      job.blocked_ns += kTick;
      return;
    }
    const double least = program.kernel_ns * (program.kernel_ns >= 10 * kMs ? 1 : 2);
    process.launch_debt = std::min(process.launch_debt + kTick, 2 * kTick);
    while (process.to_launch > 0 && process.launch_debt >= 0) {
      const auto processes = static_cast<double>(job.processes.size());
      const double most = bounded     ? kInFlight * (processes > 1 ? 2 / processes : 1)
                          : watched() ? kWatched
                                      : kAlone;
      if (in_flight(process) + program.kernel_ns > std::max(most, least)) break;
      for (double& queued : process.queued) queued += program.kernel_ns;
      process.asked_ns += program.kernel_ns;
      process.to_launch -= program.kernel_ns;
      process.launch_debt -= program.launch_ns;
    }
    // What is over it knows in portions.
    if (now_ns - process.looked_ns >= (bounded ? kMs : 10 * kMs)) {
      process.completed = over();
      process.looked_ns = now_ns;
    }
    if (process.to_launch <= 0) process.syncing = true;
  }

  // How fast each process's work runs on each GPU, and for how long nothing changes.
  void work() {
    for (double left = kTick; left > 1;) {
      std::map<const Process*, std::vector<double>> rates;
      std::map<std::size_t, std::map<std::uint64_t, double>> crowds;  // by server or process
      for (Job& job : jobs) {
        for (Process& process : job.processes) {
          for (std::size_t i = 0; i < job.gpus.size(); ++i) {
            if (process.queued[i] > 0) crowds[job.gpus[i]][group(job, process)] += weight(job);
          }
        }
      }
      double slice = left;
      for (Job& job : jobs) {
        for (Process& process : job.processes) {
          if (in_flight(process) <= 0) continue;
          auto& of = rates[&process];
          // A kernel on several GPUs is as fast as on the slowest of them.
          double rate = 1;
          for (std::size_t i = 0; i < job.gpus.size(); ++i) {
            const auto& crowd = crowds[job.gpus[i]];
            const double slices = static_cast<double>(crowd.size());
            rate = std::min(rate, (slices > 1 ? 0.95 : 1.0) / slices * weight(job) /
                                      crowd.at(group(job, process)));
          }
          of.assign(job.gpus.size(), rate);
          slice = std::min(slice, in_flight(process) / rate);
        }
      }
      slice = std::max(slice, 1.0);
      for (Job& job : jobs) {
        for (Process& process : job.processes) {
          const bool ran = in_flight(process) > 0;
          if (ran) {
            const double got = std::min(in_flight(process), slice * rates[&process][0]);
            for (double& queued : process.queued) queued = queued - got < 1 ? 0 : queued - got;
            job.done_ns += got;
          }
          if (ran || (!process.waiting && process.to_launch > 0))
            process.busy += ((ran ? 1 : 0) - process.busy) * slice / (50 * kMs);
        }
      }
      left -= slice;
    }
  }
  static double weight(const Job& job) { return job.server != 0 ? job.program.kernel_ns : 1; }
  static std::uint64_t group(const Job& job, const Process& process) {
    return job.server != 0 ? job.server : reinterpret_cast<std::uintptr_t>(&process);
  }

  void look() {
    std::vector<LeaseArbiter::Seen> seen;
    const auto now = static_cast<std::int64_t>(now_ns);
    for (Job& job : jobs) {
      for (std::size_t i = 0; i < job.gpus.size(); ++i) {
        LeaseArbiter::Seen one{job.id, job.gpus[i], 0,
                               false,  0,           job.program.kernel_ns * job.program.seems};
        for (Process& process : job.processes) {
          const FlightWatch::Counters counters{
              static_cast<std::uint64_t>(process.asked_ns / job.program.kernel_ns + 0.5),
              process.completed, process.syncing, process.looked ? now : 0};
          one.flying += process.flights[i].look(now, counters, arbiter.paused(job.id)) ? 1 : 0;
          one.waiting |= process.waiting;
          one.busy = std::max(one.busy, process.busy);
        }
        seen.push_back(one);
      }
    }
    arbiter.step(static_cast<std::int64_t>(since_look_), seen);
    since_look_ = 0;
  }

  double since_look_ = 0;
};

}  // namespace aliquot::core::test
