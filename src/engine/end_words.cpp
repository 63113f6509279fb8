#include "engine/end_words.hpp"

#include <fmt/format.h>
#include <string.h>

#include <algorithm>

#include "base/size.hpp"
#include "base/slurm_time.hpp"
#include "base/timestamp.hpp"
#include "base/units.hpp"

namespace aliquot::engine {
namespace {

std::string lasting(std::int64_t ms) {
  return format_duration(Millis(std::max<std::int64_t>(ms, 0)), TimeStyle::squeue);
}

std::string ran_for(const api::JobInfo& job) {
  if (!job.start_ms || !job.end_ms) return "";
  return fmt::format(" after {}", lasting(*job.end_ms - *job.start_ms - job.suspended_total_ms));
}

std::string of_exit(const api::JobInfo& job) {
  if (job.exit_signal != 0) {
    const char* name = ::sigdescr_np(job.exit_signal);
    return fmt::format("Signal {} ({}) ended it{}.", job.exit_signal,
                       name == nullptr ? "unknown" : name, ran_for(job));
  }
  return fmt::format("It ended with exit code {}{}.", job.exit_code, ran_for(job));
}

// A program that was refused memory says so and ends as it likes: only the peak tells.
std::string of_gpu_memory(const api::JobInfo& job) {
  std::int64_t granted = 0;
  bool share = false;
  for (const api::GpuHold& gpu : job.gpus) {
    granted += gpu.memory;
    share = share || !gpu.whole;
  }
  if (granted == 0 || job.gpu_memory_peak < granted / 10 * 9) return "";
  return fmt::format(
      "Its GPU memory rose to {} of the {} that it had: if it ran out of GPU memory, ask for "
      "more{}.",
      format_size(Bytes(job.gpu_memory_peak)), format_size(Bytes(granted)),
      share ? " with --gpu-mem" : "");
}

std::string of_time(const api::JobInfo& job) {
  if (!job.time_limit_ms) return "It ran out of time.";
  return fmt::format("It ran into its time limit, {0}: ask for more with --time={1}.",
                     lasting(*job.time_limit_ms), lasting(*job.time_limit_ms * 2));
}

std::string of_memory(const api::JobInfo& job) {
  if (job.memory == 0) return "The kernel ended it for want of memory.";
  return fmt::format("It used more memory than its {}: ask for more with --mem={}.",
                     format_size(Bytes(job.memory)), format_size(Bytes(job.memory * 2)));
}

}  // namespace

std::vector<std::string> end_sentences(const api::JobInfo& job) {
  std::vector<std::string> sentences{fmt::format("Job {} is over: {}.", job.id, job.state)};
  const auto add = [&](std::string sentence) {
    if (!sentence.empty()) sentences.push_back(std::move(sentence));
  };
  const std::string& state = job.state;
  if (state == "TIMEOUT") add(of_time(job));
  if (state == "OUT_OF_MEMORY") add(of_memory(job));
  if (state == "FAILED" && job.reason != "JobLaunchFailure") add(of_exit(job));
  if (state == "CANCELLED" && job.end_ms) {
    add(fmt::format("It was cancelled{} at {}{}.",
                    job.cancelled_by == job.uid            ? " by its user"
                    : job.cancelled_by == std::uint32_t{0} ? " by root"
                                                           : "",
                    format_timestamp(WallTime(*job.end_ms)), ran_for(job)));
  }
  if (state == "DEADLINE" && job.deadline_ms) {
    add(fmt::format("It could not end before its deadline, {}.",
                    format_timestamp(WallTime(*job.deadline_ms))));
  }
  if (state == "FAILED" || state == "CANCELLED") add(of_gpu_memory(job));
  if (!job.reason_detail.empty()) {
    std::string detail = job.reason_detail + ".";
    if (detail[0] >= 'a' && detail[0] <= 'z') detail[0] = static_cast<char>(detail[0] - 'a' + 'A');
    add(std::move(detail));
  }
  return sentences;
}

}  // namespace aliquot::engine
