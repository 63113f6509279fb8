// What is counted of jobs since the daemon was started, for /metrics: what came, what started, how
// it ended, and what was over lately. Changed by what is on record alone, after the commit.
#pragma once

#include <algorithm>
#include <deque>
#include <string>
#include <utility>

#include "base/time.hpp"
#include "base/units.hpp"
#include "core/job_state.hpp"
#include "engine/job.hpp"
#include "show/job_metrics.hpp"

namespace aliquot::engine {

// So much of a GPU for so long.
inline double gpu_seconds(Compute held, Millis length) {
  constexpr double kMillis = 1'000;
  return static_cast<double>(held.value()) / static_cast<double>(kWholeGpu.value()) *
         static_cast<double>(length.value()) / kMillis;
}

struct JobTally {
  // A job that is over.
  struct Over {
    JobId id;
    WallTime end;
    core::JobState state = core::JobState::completed;
    std::string name;
    std::string partition;
    std::string user;
    std::string account;
  };

  show::JobFigures figures;    // of them what is counted since the start
  std::deque<Over> over = {};  // the latest last; of those in squeue's sight so many at most
  static constexpr std::size_t kMostOver = 20'000;

  static Over over_of(const Job& job) {
    return {job.id,          job.end.value_or(WallTime()),
            job.state,       job.spec.name,
            job.partition,   job.owner.user,
            job.spec.account};
  }
  void note_over(Over job) {
    ++figures.finished[std::string(core::long_name(job.state))];
    over.push_back(std::move(job));
    if (over.size() > kMostOver) over.pop_front();
  }
  // It is back in the queue.
  void note_back(JobId job) {
    std::erase_if(over, [&](const Over& one) { return one.id == job; });
  }
  void note_start(const Job& job) {
    ++figures.started;
    const Millis waited = job.start.value_or(job.eligible) - job.eligible;
    figures.waited.add(static_cast<double>(std::max(waited, Millis(0)).value()) / 1'000);
  }
  void note_held(const std::string& user, const std::string& account, double seconds) {
    figures.gpu_seconds[{user, account}] += seconds;
  }
  void note_pass(double seconds) {
    show::PassCounts& passes = figures.passes;
    passes.seconds.add(seconds);
    passes.last = seconds;
    passes.longest = std::max(passes.longest, seconds);
  }
};

}  // namespace aliquot::engine
