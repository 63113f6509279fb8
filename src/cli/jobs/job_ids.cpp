#include "cli/jobs/job_ids.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "base/text.hpp"

namespace aliquot::cli {
namespace {

// The most tasks that one id may name, as in 7_[0-99999].
constexpr std::size_t kMostTasks = 100'000;

}  // namespace

std::optional<std::vector<std::int64_t>> parse_tasks(std::string_view text, std::size_t most) {
  std::vector<std::int64_t> tasks;
  for (const auto part : split(text, ',')) {
    const auto colon = part.find(':');
    const auto range = part.substr(0, colon);
    const auto dash = range.find('-');
    const auto first = parse_digits(range.substr(0, dash));
    const auto last = dash == range.npos ? first : parse_digits(range.substr(dash + 1));
    const auto step =
        colon == part.npos ? std::optional<std::int64_t>(1) : parse_digits(part.substr(colon + 1));
    if (!first || !last || !step || *step < 1 || *last < *first || *last > 4'000'000) {
      return std::nullopt;
    }
    for (auto task = *first; task <= *last; task += *step) {
      if (tasks.size() >= most) return std::nullopt;
      tasks.push_back(task);
    }
  }
  return tasks;
}

std::vector<std::string> JobPattern::targets() const {
  if (tasks.empty()) return {job};
  std::vector<std::string> all;
  for (const auto task : tasks) all.push_back(fmt::format("{}_{}", job, task));
  return all;
}

bool JobPattern::matches(const api::JobInfo& job_info) const {
  const auto number = parse_digits(job);
  if (!number) return false;
  const bool whole = job_info.id == *number || job_info.array_job_id == *number;
  if (tasks.empty()) return whole;
  return job_info.array_job_id == *number && job_info.array_task_id &&
         std::ranges::find(tasks, *job_info.array_task_id) != tasks.end();
}

std::optional<JobPattern> parse_job_pattern(std::string_view text) {
  JobPattern pattern;
  if (const auto dot = text.find('.'); dot != text.npos) {
    pattern.step = text.substr(dot + 1);
    text = text.substr(0, dot);
    if (pattern.step != "batch" && pattern.step != "extern" && !is_digits(pattern.step)) {
      return std::nullopt;
    }
  }
  const auto underscore = text.find('_');
  pattern.job = text.substr(0, underscore);
  if (pattern.job != "last") {
    const auto number = parse_digits(pattern.job);
    if (!number || *number < 1) return std::nullopt;
    pattern.job = fmt::format("{}", *number);
  }
  if (underscore == text.npos) return pattern;
  if (pattern.job == "last") return std::nullopt;  // only the daemon knows its number
  auto tasks = text.substr(underscore + 1);
  if (tasks == "*" || tasks == "[*]") return pattern;
  if (tasks.size() >= 2 && tasks.front() == '[' && tasks.back() == ']') {
    tasks = tasks.substr(1, tasks.size() - 2);
  } else if (!is_digits(tasks)) {
    return std::nullopt;
  }
  // What squeue shows may be pasted: the limit after % does not matter here.
  auto read = parse_tasks(tasks.substr(0, tasks.find('%')), kMostTasks);
  if (!read) return std::nullopt;
  pattern.tasks = std::move(*read);
  return pattern;
}

std::string cancel_id(const api::JobInfo& job) {
  if (job.array_job_id && job.array_task_id) {
    return fmt::format("{}_{}", *job.array_job_id, *job.array_task_id);
  }
  return fmt::format("{}", job.array_job_id.value_or(job.id));
}

}  // namespace aliquot::cli
