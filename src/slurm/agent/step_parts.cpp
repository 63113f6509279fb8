#include "slurm/agent/step_parts.hpp"

#include <spdlog/spdlog.h>

#include <algorithm>

#include "base/percent.hpp"
#include "base/text.hpp"
#include "node/environment.hpp"
#include "sys/file.hpp"

namespace aliquot::slurm {
namespace {

namespace fs = std::filesystem;

std::optional<std::pair<JobId, std::int64_t>> parse_name(std::string_view name) {
  const auto dot = name.find('.');
  if (dot == std::string_view::npos) return std::nullopt;
  const auto job = parse_digits(name.substr(0, dot));
  const auto step = parse_digits(name.substr(dot + 1));
  if (!job || !step) return std::nullopt;
  return std::pair(JobId(*job), *step);
}

}  // namespace

HolderId part_holder(JobId job, std::int64_t step) {
  return HolderId(fmt::format("{}.{}", job.value(), step));
}

std::optional<JobId> job_of_holder(const HolderId& holder) {
  const std::string& name = holder.value();
  const auto number = parse_digits(std::string_view(name).substr(0, name.find('.')));
  return number ? std::optional(JobId(*number)) : std::nullopt;
}

fs::path StepParts::note_path(const HolderId& part) const { return notes_ / part.value(); }

core::Grant StepParts::rest_of(const core::Grant& job) const {
  core::Grant rest = job;
  const auto id = job_of_holder(job.holder);
  for (const auto& [key, note] : parts_) {
    if (key.first != id) continue;
    for (core::GrantedGpu& held : rest.gpus) {
      const core::GrantedGpu* part = note.grant.find(held.gpu);
      if (part == nullptr) continue;
      // No limit at all would be 0.
      held.portion.memory = std::max(held.portion.memory - part->portion.memory, Bytes(1));
      held.portion.compute = std::max(held.portion.compute - part->portion.compute, Compute(1));
    }
  }
  return rest;
}

void StepParts::settle(const core::Grant& job) {
  if (const auto done = enforcer_.correct(rest_of(job)); !done) {
    spdlog::error("job {}: {}", job.holder, done.error().message);
  }
}

Bytes StepParts::overdrawn(const core::Grant& job) const {
  Bytes theirs(0);
  for (const core::GrantedGpu& held : rest_of(job).gpus) theirs += held.portion.memory;
  return std::max(enforcer_.in_use(job.holder) - theirs, Bytes(0));
}

Result<const JobNote*> StepParts::give(const core::Grant& job, std::int64_t step, core::Grant part,
                                       const sys::ProcessRef& stepd) {
  const JobId id = job_of_holder(job.holder).value_or(JobId());
  const Key key(id, step);
  if (const auto known = parts_.find(key); known != parts_.end()) {
    if (known->second.steps.contains(stepd)) return &known->second;
    (void)drop([&](const Key& each, const JobNote&) { return each == key; });
  }
  part.holder = part_holder(id, step);
  const core::GrantedGpu mine = part.gpus.front();
  // Slurm counts the shards of steps, but not of those that overlap.
  const core::Grant free = rest_of(job);
  const core::GrantedGpu* room = free.find(mine.gpu);
  if (room == nullptr || mine.portion.memory > room->portion.memory ||
      mine.portion.compute > room->portion.compute) {
    return fail(
        Error::Code::invalid_argument,
        "job {}: its other steps have all but {} MiB and {} of its share, and the step wants "
        "{} MiB and {}: wait for one of them, or ask for less",
        id, room == nullptr ? 0 : room->portion.memory / mib(1),
        format_percent(room == nullptr ? Compute(0) : room->portion.compute),
        mine.portion.memory / mib(1), format_percent(mine.portion.compute));
  }
  JobNote& note = parts_[key];
  note = {.grant = std::move(part), .mark = node::make_mark(id), .steps = {stepd}};
  const auto give_up = [&](Error error) {
    enforcer_.release(note.grant.holder, std::nullopt);
    parts_.erase(key);
    settle(job);
    return tl::make_unexpected(std::move(error));
  };
  // First less for the others, then for the step: what they hold by then stays theirs.
  const core::Grant rest = rest_of(job);
  settle(job);
  const core::GrantedGpu* left = rest.find(mine.gpu);
  const Bytes held = enforcer_.in_use(job.holder);
  if (left == nullptr || held > left->portion.memory) {
    return give_up(
        {Error::Code::invalid_argument,
         fmt::format("job {}: its other processes hold {} MiB, and the step's {} MiB are "
                     "not free: end some of them, or ask for less",
                     id, held / mib(1), mine.portion.memory / mib(1))});
  }
  auto enforced = enforcer_.grant(note.grant);
  // Whatever kept it from being held (a missing folder, no room) is this node's trouble.
  if (!enforced) return give_up({Error::Code::unavailable, enforced.error().message});
  note.enforcement = enforced->words;
  if (auto noted = sys::write_whole(note_path(note.grant.holder), format_note(note), 0600, false);
      !noted) {
    return give_up({Error::Code::unavailable, noted.error().message});
  }
  spdlog::info("job {} step {}: {} MiB of its job's share", id, step, mine.portion.memory / mib(1));
  return &note;
}

bool StepParts::take_up(std::string_view name, JobNote note) {
  const auto key = parse_name(name);
  if (!key) return false;
  note.grant.holder = part_holder(key->first, key->second);
  enforcer_.adopt(note.grant);
  parts_.insert_or_assign(*key, std::move(note));
  return true;
}

template <class Over>
std::vector<JobId> StepParts::drop(const Over& is_over) {
  std::vector<JobId> jobs;
  for (auto part = parts_.begin(); part != parts_.end();) {
    if (!is_over(part->first, part->second)) {
      ++part;
      continue;
    }
    const HolderId holder = part->second.grant.holder;
    enforcer_.release(holder, std::nullopt);
    std::error_code ignored;
    fs::remove(note_path(holder), ignored);
    jobs.push_back(part->first.first);
    part = parts_.erase(part);
  }
  return jobs;
}

std::vector<JobId> StepParts::leave(Pid stepd) {
  return drop([&](const Key&, const JobNote& note) {
    return std::ranges::any_of(note.steps,
                               [&](const sys::ProcessRef& ref) { return ref.pid == stepd; });
  });
}

std::vector<JobId> StepParts::drop_dead() {
  return drop([](const Key&, const JobNote& note) {
    return std::ranges::none_of(note.steps, [](const auto& ref) { return sys::is_alive(ref); });
  });
}

void StepParts::release(JobId job) {
  (void)drop([&](const Key& key, const JobNote&) { return key.first == job; });
}

void StepParts::add_running(std::vector<node::RunningJob>& running) const {
  for (const auto& [key, note] : parts_) {
    running.push_back({note.grant.holder, note.grant.owner, note.mark});
  }
}

}  // namespace aliquot::slurm
