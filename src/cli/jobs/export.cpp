#include "cli/jobs/export.hpp"

#include <algorithm>
#include <array>
#include <cstddef>

#include "base/job_variables.hpp"
#include "base/text.hpp"

namespace aliquot::cli {
namespace {

// Besides kJobVariables. A name ending in an underscore stands for all that start so.
constexpr auto kOfOneJob = std::to_array<std::string_view>(
    {"CUDA_MPS_", "SLURM_ARRAY_", "SLURM_JOB_", "SLURM_PTY_", "SLURM_SRUN_", "SLURM_STEP_",
     "SLURM_EXPORT_ENV", "SLURM_SUBMIT_", "SRUN_DEBUG"});

constexpr const char* kUsualPath = ":/usr/local/bin:/usr/bin:/bin";
constexpr auto kSearchPaths =
    std::to_array<std::string_view>({"PATH", "LD_LIBRARY_PATH", "LD_PRELOAD"});

bool is_of_slurm(std::string_view assignment) {
  return assignment.starts_with("SLURM_") || assignment.starts_with("SPANK_");
}

std::string_view name_of(std::string_view assignment) {
  return assignment.substr(0, assignment.find('='));
}

bool is_of_one_job(std::string_view name) {
  return std::ranges::find(kJobVariables, name) != kJobVariables.end() ||
         std::ranges::any_of(kOfOneJob, [&](std::string_view known) {
           return name == known || (known.back() == '_' && name.starts_with(known));
         });
}

// At commas outside of quotes; the quotes go.
std::vector<std::string> split_choice(std::string_view text) {
  std::vector<std::string> parts(1);
  char quoted = 0;
  for (const char c : text) {
    if (quoted != 0) {
      if (c == quoted) {
        quoted = 0;
      } else {
        parts.back() += c;
      }
    } else if (c == '\'' || c == '"') {
      quoted = c;
    } else if (c == ',') {
      parts.emplace_back();
    } else {
      parts.back() += c;
    }
  }
  return parts;
}

}  // namespace

Environment::Environment(const char* const* variables) {
  for (; variables != nullptr && *variables != nullptr; ++variables) {
    const std::string_view assignment = *variables;
    const auto equals = assignment.find('=');
    if (equals != assignment.npos && equals > 0) variables_.emplace_back(assignment);
  }
}

std::size_t Environment::find(std::string_view name) const {
  for (std::size_t i = 0; i < variables_.size(); ++i) {
    if (variables_[i].size() > name.size() && variables_[i][name.size()] == '=' &&
        variables_[i].starts_with(name)) {
      return i;
    }
  }
  return variables_.size();
}

void Environment::set(std::string_view name, std::string_view value) {
  std::string assignment(name);
  assignment += '=';
  assignment += value;
  const auto place = find(name);
  if (place < variables_.size()) {
    variables_[place] = std::move(assignment);
  } else {
    variables_.push_back(std::move(assignment));
  }
}

void Environment::set(std::string_view assignment) {
  const auto name = name_of(assignment);
  if (name.empty() || name.size() == assignment.size()) return;
  set(name, assignment.substr(name.size() + 1));
}

void Environment::unset(std::string_view name) {
  const auto place = find(name);
  if (place < variables_.size()) {
    variables_.erase(variables_.begin() + static_cast<std::ptrdiff_t>(place));
  }
}

std::optional<std::string_view> Environment::get(std::string_view name) const {
  const auto place = find(name);
  if (place == variables_.size()) return std::nullopt;
  return std::string_view(variables_[place]).substr(name.size() + 1);
}

Exported export_environment(const Environment& mine, const std::optional<std::string>& choice) {
  if (!choice || equals_ignoring_case(*choice, "ALL")) return {mine, false};

  Exported result;
  for (const auto& variable : mine.variables()) {
    if (is_of_slurm(variable)) result.environment.set(variable);
  }
  if (equals_ignoring_case(*choice, "NONE")) {
    result.login = true;
  } else if (!equals_ignoring_case(*choice, "NIL")) {
    result.login = true;
    const auto parts = split_choice(*choice);
    const auto all = std::ranges::find_if(
        parts, [](const std::string& part) { return equals_ignoring_case(part, "ALL"); });
    if (all != parts.end()) result = {mine, false};
    for (const auto& part : parts) {
      if (part.find('=') != part.npos) {
        result.environment.set(part);
      } else if (const auto value = mine.get(part)) {
        result.environment.set(part, *value);
      }
    }
  }
  result.environment.set("SLURM_EXPORT_ENV", *choice);
  return result;
}

void add_granted(Environment& environment, const std::vector<std::string>& granted) {
  for (const auto& variable : granted) {
    const auto name = name_of(variable);
    const auto mine = environment.get(name);
    const bool searched = std::ranges::find(kSearchPaths, name) != kSearchPaths.end();
    if (!searched || !mine || mine->empty()) {
      environment.set(variable);
      if (name == "PATH") environment.set(name, std::string(*environment.get(name)) + kUsualPath);
      continue;
    }
    const auto value =
        std::string_view(variable).substr(std::min(name.size() + 1, variable.size()));
    const auto first = split(value, ':');
    std::string path(value);
    for (const auto part : split(*mine, ':')) {
      if (std::ranges::find(first, part) == first.end()) path.append(":").append(part);
    }
    if (!value.empty()) environment.set(name, path);
  }
}

void forget_job(Environment& environment) {
  std::vector<std::string> names;
  for (const auto& variable : environment.variables()) {
    if (is_of_one_job(name_of(variable))) names.emplace_back(name_of(variable));
  }
  for (const auto& name : names) environment.unset(name);
}

}  // namespace aliquot::cli
