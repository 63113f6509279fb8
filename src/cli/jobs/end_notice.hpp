// Word that a job is being ended: left by the thread that hears of it, taken by the loop that looks
// after the job's processes, which polls the descriptor.
#pragma once

#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "api/types.hpp"
#include "sys/fd.hpp"

namespace aliquot::cli {

class EndNotice {
 public:
  EndNotice();
  EndNotice(const EndNotice&) = delete;
  EndNotice& operator=(const EndNotice&) = delete;

  void leave(api::JobInfo job);
  [[nodiscard]] std::optional<api::JobInfo> take();
  [[nodiscard]] int descriptor() const { return event_.get(); }

 private:
  const sys::Fd event_;
  std::mutex mutex_;
  std::optional<api::JobInfo> job_;
};

inline bool ran_out_of_time(const api::JobInfo& job) {
  return job.state == "TIMEOUT" || job.reason == "TimeLimit";
}

}  // namespace aliquot::cli
