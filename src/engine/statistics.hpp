// What the daemon counts of its own work, for sdiag. Nothing is decided by it: it reads a clock of
// its own, and begins anew with each start. Jobs are the tally's to count (job_tally.hpp), for
// sdiag and for /metrics alike; here is only what they were when root had it count anew.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <string>

#include "api/inspection.hpp"
#include "base/ids.hpp"
#include "base/time.hpp"
#include "show/job_metrics.hpp"

namespace aliquot::engine {

class Stopwatch {
 public:
  [[nodiscard]] std::int64_t microseconds() const {
    return std::chrono::duration_cast<std::chrono::microseconds>(std::chrono::steady_clock::now() -
                                                                 begun_)
        .count();
  }

 private:
  std::chrono::steady_clock::time_point begun_ = std::chrono::steady_clock::now();
};

class Statistics {
 public:
  // But for what only the moment knows: now, requests, users. Of jobs it has, as what is to be
  // taken away, those that were counted before.
  api::Statistics counts = {};

  void cycle(std::int64_t took_us, std::int64_t queue);
  // By kind, of which there are few: whoever asks cannot make it grow.
  void request(const std::string& kind, Uid user, std::int64_t took_us);
  void reset(WallTime now, const show::JobFigures& jobs);
  // `name`: of a user.
  template <class Name>
  [[nodiscard]] api::Statistics read(const show::JobFigures& jobs, const Name& name) const {
    api::Statistics all = counts;
    add_jobs(jobs, 1, all);
    for (const auto& [kind, one] : kinds_) all.requests.push_back({kind, one.count, one.total_us});
    for (const auto& [uid, one] : users_) {
      all.users.push_back({name(uid), uid.value(), one.count, one.total_us});
    }
    return all;
  }

 private:
  static void add_jobs(const show::JobFigures& jobs, std::int64_t times, api::Statistics& to);

  struct Sum {
    std::int64_t count = 0;
    std::int64_t total_us = 0;
  };
  std::map<std::string, Sum> kinds_;
  std::map<Uid, Sum> users_;
};

}  // namespace aliquot::engine
