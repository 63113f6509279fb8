#include "slurm/agent/job_note.hpp"

#include <fmt/format.h>

#include "api/json.hpp"
#include "base/text.hpp"
#include "node/job_grant.hpp"

namespace aliquot::slurm {
namespace {

api::JobInfo to_info(const JobNote& note) {
  api::JobInfo info;
  info.id = parse_digits(note.grant.holder.value()).value_or(0);
  info.uid = note.grant.owner.value();
  info.gid = note.grant.group.value();
  info.state = "RUNNING";
  info.restarts = note.grant.attempt;
  info.ntasks = note.grant.processes;
  info.enforcement = note.enforcement;
  info.name = note.name;
  info.account = note.account;
  if (note.start_s > 0) info.start_ms = note.start_s * 1'000;
  if (note.time_limit_s) info.time_limit_ms = *note.time_limit_s * 1'000;
  for (const core::GrantedGpu& held : note.grant.gpus) {
    info.gpus.push_back({.uuid = held.gpu.value(),
                         .model = {},
                         .memory = held.portion.memory.value(),
                         .compute = held.portion.compute.value(),
                         .whole = held.whole});
  }
  return info;
}

}  // namespace

std::string format_note(const JobNote& note) {
  std::string text = note.mark + "\n";
  for (const sys::ProcessRef& step : note.steps) {
    text += fmt::format("{} {}\n", step.pid.value(), step.start_time);
  }
  if (!note.checked) text += "unchecked\n";
  if (note.booked > 0) text += fmt::format("booked {}\n", note.booked);
  if (!note.partition.empty()) text += fmt::format("partition {}\n", note.partition);
  if (note.seen != Used() || note.in_parts > Millis(0)) {
    text += fmt::format("used {} {} {}\n", note.seen.gpu_time.value(),
                        note.seen.memory_peak.value(), note.in_parts.value());
  }
  return text + api::to_json(to_info(note)) + "\n";
}

std::optional<JobNote> parse_note(std::string_view text) {
  JobNote note;
  const auto lines = split(text, '\n');
  note.mark = lines.front();
  for (std::size_t i = 1; i < lines.size(); ++i) {
    if (lines[i].starts_with("{")) {
      const auto info = api::from_json<api::JobInfo>(lines[i]);
      if (!info) return std::nullopt;
      note.grant = node::grant_of(*info);
      note.enforcement = info->enforcement;
      note.name = info->name;
      note.account = info->account;
      note.start_s = info->start_ms.value_or(0) / 1'000;
      if (info->time_limit_ms) note.time_limit_s = *info->time_limit_ms / 1'000;
      return note;
    }
    if (lines[i] == "unchecked") note.checked = false;
    const auto words = split(lines[i], ' ');
    if (words.size() == 2 && words.front() == "booked") {
      note.booked = parse_digits(words.back()).value_or(0);
      continue;
    }
    if (words.size() == 2 && words.front() == "partition") {
      note.partition = words.back();
      continue;
    }
    if (words.size() == 4 && words.front() == "used") {
      note.seen = {Millis(parse_digits(words[1]).value_or(0)),
                   Bytes(parse_digits(words[2]).value_or(0))};
      note.in_parts = Millis(parse_digits(words[3]).value_or(0));
      continue;
    }
    const auto pid = parse_digits(words.front());
    const auto start = parse_digits(words.back());
    if (words.size() != 2 || !pid || !start) continue;
    note.steps.insert({Pid(static_cast<pid_t>(*pid)), static_cast<std::uint64_t>(*start)});
  }
  return std::nullopt;
}

}  // namespace aliquot::slurm
