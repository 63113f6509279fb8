#include "cli/slurm/file_pattern.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace aliquot::cli {
namespace {

constexpr std::size_t kMostDigits = 10;

std::string number(std::int64_t value, std::size_t width) {
  return fmt::format("{:0{}}", value, std::min(width, kMostDigits));
}

std::optional<std::string> expand(char letter, std::size_t width, const FileNames& names) {
  switch (letter) {
    case 'A':
      return number(names.array_job_id.value_or(names.job_id), width);
    case 'a':
      return names.array_task_id ? number(*names.array_task_id, width) : "4294967294";
    case 'J':
      return fmt::format("{}.{}", number(names.job_id, width), names.step_id);
    case 'j':
      return number(names.job_id, width);
    case 'N':
      return names.host.substr(0, names.host.find('.'));
    case 'n':
      return number(0, width);
    case 's':
      return number(names.step_id, width);
    case 't':
      return number(names.task, width);
    case 'u':
      return names.user;
    case 'x':
      return names.job_name;
    default:
      return std::nullopt;
  }
}

}  // namespace

std::string expand_file_pattern(std::string_view pattern, const FileNames& names) {
  std::string text;
  if (pattern.find('\\') != pattern.npos) {
    for (const char c : pattern) {
      if (c != '\\') text += c;
    }
    return text;
  }
  for (std::size_t i = 0; i < pattern.size(); ++i) {
    if (pattern[i] != '%') {
      text += pattern[i];
      continue;
    }
    std::size_t end = i + 1;
    std::size_t width = 0;
    while (end < pattern.size() && pattern[end] >= '0' && pattern[end] <= '9') {
      width = std::min<std::size_t>(width * 10 + static_cast<std::size_t>(pattern[end] - '0'), 99);
      ++end;
    }
    if (end < pattern.size() && pattern[end] == '%') {
      text += '%';
      i = end;
    } else if (const auto part =
                   end < pattern.size() ? expand(pattern[end], width, names) : std::nullopt) {
      // A name of the user's choice must not lead into another folder.
      for (const char c : *part) text += c == '/' ? '_' : c;
      i = end;
    } else {
      text += '%';
    }
  }
  return text;
}

}  // namespace aliquot::cli
