// Who may launch on one GPU, when more than one job wants it: fair shares of time, decided from
// what was seen every millisecond or two. Pure: it is told what each job is doing and says whose
// gate is closed. It measures nothing and knows no files (engine/arbiter does).
//
// Each job that has work on the GPU is charged its part of the time that passed: the driver
// alternates equal slices between groups (an MPS server, or a process alone), and within a group
// the jobs run side by side. Charged time divided by the share is the job's virtual time. A job
// that is ahead of the slowest backlogged one by more than the tolerance is paused until it is no
// longer ahead. A job that leaves the GPU idle now and then is owed nothing for it and holds nobody
// back, so the GPU never waits for work that does not come.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "base/ids.hpp"
#include "base/units.hpp"

namespace aliquot::core {

// Whether a job has something on the GPU, from the two counters it keeps. The library in the job
// looks what is over when the job launches, waits for the GPU or stands at its gate. Of one that
// says nothing at its gate it is guessed: what is in flight is given the time that so many launches
// took before, and is then taken to be over.
class FlightWatch {
 public:
  bool look(std::int64_t now_ns, std::uint64_t launched, std::uint64_t completed, bool paused);

 private:
  std::uint64_t launched_ = 0;
  std::uint64_t completed_ = 0;
  std::int64_t moved_ns_ = 0;      // when a counter last did
  std::int64_t completed_ns_ = 0;  // since when completions are counted; 0: they are not
  std::int64_t paused_ns_ = 0;     // since when
  double each_ns_ = 20'000;        // from one completion to the next, on average
  bool learned_ = false;
  bool news_while_paused_ = false;  // its library looks at the gate
  bool paused_ = false;
};

// Whether the jobs on a GPU get what they were promised without anybody's help, from the GPU time
// that they measure themselves. Holding them to their turns costs them something: it is done only
// where the time they get is out of proportion to their shares, and no longer than it helps.
class ProportionWatch {
 public:
  struct Used {
    JobId job;
    double share = 1;
    std::int64_t gpu_ns = 0;  // so far
  };
  // What each active job has used by now: true where turns are needed. `paused`: the turns made
  // somebody wait since the last look.
  bool look(std::int64_t now_ns, const std::vector<Used>& used, bool paused);
  [[nodiscard]] bool turns() const { return turns_; }

 private:
  [[nodiscard]] bool out_of_proportion(std::int64_t now_ns, const std::vector<Used>& used) const;

  std::map<JobId, std::int64_t> before_;
  std::int64_t before_ns_ = 0;
  bool turns_ = false;
  bool uneven_before_ = false;
  std::int64_t helped_ns_ = 0;  // when somebody last had to wait
  std::int64_t not_before_ns_ = 0;
  std::int64_t rest_ns_ = 0;  // after turns that made nobody wait
};

class LeaseArbiter {
 public:
  struct Options {
    std::int64_t tolerance_ns = 10'000'000;  // of GPU time; also how long a turn lasts
  };
  // What one job was seen to be doing.
  struct Seen {
    JobId job;
    bool in_flight = false;  // something it launched is not over
    bool waiting = false;    // it stands at its gate
  };

  LeaseArbiter() = default;
  explicit LeaseArbiter(Options options) : options_(options) {}

  // A new job, or a new share. Jobs of one group run side by side.
  void set(JobId job, Compute share, std::uint64_t group);
  void remove(JobId job);

  // elapsed_ns passed since the last step. A job that is not mentioned does nothing.
  void step(std::int64_t elapsed_ns, const std::vector<Seen>& seen);

  [[nodiscard]] bool paused(JobId job) const;
  // At least two jobs were active within the last steps.
  [[nodiscard]] bool contended() const;
  [[nodiscard]] std::size_t size() const { return jobs_.size(); }

 private:
  struct Job {
    double share = 1;
    std::uint64_t group = 0;
    double virtual_ns = 0;
    std::uint32_t history = 0;  // one bit for each step, newest lowest: was it active?
    int grace = 0;              // steps for which it may still be on its way through the gate
    bool in_flight = false;
    bool backlogged = false;
    bool paused = false;
  };

  void look(const std::vector<Seen>& seen);
  void charge(std::int64_t elapsed_ns);
  void decide();

  Options options_;
  std::map<JobId, Job> jobs_;
};

}  // namespace aliquot::core
