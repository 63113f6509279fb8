// Job ids as scancel takes them: `7`, `7_3`, `7_[1-3,5]`, `last`, and `7.0` for a step.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "api/types.hpp"

namespace aliquot::cli {

struct JobPattern {
  std::string job;                  // digits or `last`
  std::vector<std::int64_t> tasks;  // none: the job, and all of an array
  std::string step;

  // Each as the daemon takes it.
  [[nodiscard]] std::vector<std::string> targets() const;
  [[nodiscard]] bool matches(const api::JobInfo& job_info) const;
};

// `3`, `1-3`, `0-15:4` with commas between them; nothing where it is something else, or names more
// than `most`.
std::optional<std::vector<std::int64_t>> parse_tasks(std::string_view text, std::size_t most);

std::optional<JobPattern> parse_job_pattern(std::string_view text);

// As the daemon takes it.
std::string cancel_id(const api::JobInfo& job);

}  // namespace aliquot::cli
