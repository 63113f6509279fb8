#include "base/output_path.hpp"

#include <algorithm>
#include <cstddef>

#include "base/text.hpp"

namespace aliquot {
namespace {

// What Slurm prints for the element of a job that is no array.
constexpr std::int64_t kNoArrayTask = 4294967294;
constexpr std::size_t kMostDigits = 10;

std::string padded(std::int64_t number, std::size_t width) {
  auto text = std::to_string(number);
  if (text.size() < width) text.insert(0, width - text.size(), '0');
  return text;
}

}  // namespace

std::string expand_pattern(std::string_view pattern, const PatternValues& values) {
  std::string out;
  if (pattern.find('\\') != std::string_view::npos) {
    std::ranges::copy_if(pattern, std::back_inserter(out), [](char c) { return c != '\\'; });
    return out;
  }
  const std::int64_t job = values.job.value();
  const std::int64_t task = values.array_task.value_or(kNoArrayTask);
  for (std::size_t i = 0; i < pattern.size();) {
    if (pattern[i] != '%') {
      out += pattern[i++];
      continue;
    }
    std::size_t at = i + 1;
    while (at < pattern.size() && pattern[at] >= '0' && pattern[at] <= '9') ++at;
    if (at == pattern.size()) return out.append(pattern.substr(i));
    std::size_t width = 0;
    if (const auto digits = parse_digits(pattern.substr(i + 1, at - i - 1))) {
      width = std::min(static_cast<std::size_t>(*digits), kMostDigits);
    } else if (at > i + 1) {
      width = kMostDigits;  // a number too large for us is too large for a file name
    }
    const bool known_to_all = !values.step || (pattern[at] != 'b' && pattern[at] != 'r');
    switch (known_to_all ? pattern[at] : ' ') {
      case '%':
        out += '%';
        break;
      case 'A':
        out += padded(values.array_job.value_or(job), width);
        break;
      case 'a':
        out += padded(task, width);
        break;
      case 'b':
        out += padded(task % 10, width);
        break;
      case 'J':
        out += padded(job, width);
        if (values.step) out += "." + std::to_string(*values.step);
        break;
      case 'j':
        out += padded(job, width);
        break;
      case 'N':
        out += values.host.substr(0, values.host.find('.'));
        break;
      case 'n':
        out += padded(0, width);
        break;
      case 'r':
        out += padded(values.restarts, width);
        break;
      case 's':
        out += values.step ? padded(*values.step, width) : "batch";
        break;
      case 't':
        out += padded(values.task, width);
        break;
      case 'u':
        out += values.user;
        break;
      case 'x':
        out += values.job_name;
        if (values.step) std::replace(out.end() - std::ssize(values.job_name), out.end(), '/', '_');
        break;
      default:
        out.append(pattern.substr(i, at + 1 - i));
    }
    i = at + 1;
  }
  return out;
}

std::string_view default_output_pattern(bool array) {
  return array ? "slurm-%A_%a.out" : "slurm-%j.out";
}

std::string resolve_path(std::string_view path, std::string_view work_dir) {
  if (path.starts_with('/')) return std::string(path);
  std::string full(work_dir);
  if (!full.ends_with('/')) full += '/';
  return full.append(path);
}

}  // namespace aliquot
