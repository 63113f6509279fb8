// The name of one run of a job: of its folder and its control group, so that what is still to be
// done for an earlier run cannot touch a later one. A grant's folder has the job's number alone and
// says inside whose it is.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/ids.hpp"
#include "base/text.hpp"

namespace aliquot::node {

struct Run {
  JobId job;
  std::int64_t attempt = 0;  // how often it was requeued before
  friend auto operator<=>(const Run&, const Run&) = default;
};

// "7", and "7.1" after its first requeue.
inline std::string run_name(const Run& run) {
  auto name = std::to_string(run.job.value());
  if (run.attempt > 0) name += "." + std::to_string(run.attempt);
  return name;
}

inline std::optional<Run> parse_run_name(std::string_view name) {
  const auto dot = name.find('.');
  const auto job = parse_digits(name.substr(0, dot));
  if (!job) return std::nullopt;
  if (dot == std::string_view::npos) return Run{JobId(*job)};
  const auto attempt = parse_digits(name.substr(dot + 1));
  if (!attempt || *attempt == 0) return std::nullopt;
  return Run{JobId(*job), *attempt};
}

}  // namespace aliquot::node
