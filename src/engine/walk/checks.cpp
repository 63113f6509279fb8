// What must hold after every step.
#include <fmt/format.h>

#include <algorithm>

#include "base/text.hpp"
#include "core/job_state.hpp"
#include "engine/job_info.hpp"
#include "engine/walk/world.hpp"

namespace aliquot::engine::walk {
namespace {

bool is_over(const api::JobInfo& job) {
  const auto state = core::parse_job_state(job.state);
  return state && core::is_final(*state);
}

// May one have become the other, by any way, with nobody asking for a requeue?
bool may_have_become(const api::JobInfo& was, const api::JobInfo& is) {
  if (!is_over(was)) return true;
  return was.state == is.state && was.restarts == is.restarts;
}

}  // namespace

std::vector<api::JobInfo> World::snapshot() {
  std::vector<api::JobInfo> jobs;
  if (!engine_->views().list({Uid(0)}, {}, [&](const api::JobInfo& job) { jobs.push_back(job); })) {
    throw Violation("the list of jobs cannot be read");
  }
  return jobs;
}

World::Submission* World::submission_of(const api::JobInfo& job) {
  const auto found = submissions_.find(job.comment);
  return found == submissions_.end() ? nullptr : &found->second;
}

void World::check() {
  check_grants();
  check_processes();
  check_clients();
  const auto jobs = snapshot();
  check_states(jobs);
  check_records(jobs);
  for (const auto& one : connections_) {
    if (one->dropped) throw Violation("no answer to " + one->request);
  }
  // Whoever asked and was told hangs up; whoever holds something stays.
  for (const auto& one : connections_) {
    if (one->response && one->hooks.empty()) one->close();
  }
  std::erase_if(connections_, [](const auto& one) { return !one->open; });
}

void World::check_grants() {
  const auto active = engine_->active();
  if (engine_->ledger().size() != active.size()) {
    throw Violation(
        fmt::format("{} jobs run, {} hold something", active.size(), engine_->ledger().size()));
  }
  for (const Job* job : active) {
    const core::Use* use = engine_->ledger().find(job->id);
    if (use == nullptr) throw Violation(fmt::format("job {} runs and holds nothing", job->id));
    const auto gone = std::ranges::count_if(job->gpus, [&](const HeldGpu& held) {
      return std::ranges::none_of(
          host_.gpus, [&](const gpu::Device& device) { return device.gpu.id == held.granted.gpu; });
    });
    if (use->cpus != job->cpus || use->memory != job->memory ||
        std::ssize(use->gpus) != std::ssize(job->gpus) - gone) {
      throw Violation(fmt::format("job {} holds something else than it says", job->id));
    }
  }
}

void World::check_processes() {
  std::map<std::string, api::JobInfo> marks;
  for (const Job* job : engine_->active()) marks[job->mark] = to_info(*job);
  for (const Run& run : machine_.runs()) {
    const auto job = marks.find(run.mark);
    if (run.alive() && job == marks.end()) {
      throw Violation(fmt::format("processes of job {} run, and the job does not", run.job.id));
    }
    if (!run.alive() || run.phase != Phase::running || !machine_.quiet()) continue;
    const api::JobInfo& is = job->second;
    if (is.state == "COMPLETING") {
      if (run.batch && !run.cancelled) {
        throw Violation(fmt::format("job {} is COMPLETING and nobody ends it", is.id));
      }
      continue;
    }
    if (run.frozen != (is.state == "SUSPENDED")) {
      throw Violation(fmt::format("job {} is {}, and its processes {}", is.id, is.state,
                                  run.frozen ? "are frozen" : "run"));
    }
    if (run.batch && run.limit_ms != is.time_limit_ms) {
      throw Violation(fmt::format("job {} is watched by another time limit than its own", is.id));
    }
  }
  for (const auto& [mark, job] : marks) {
    if (machine_.find(mark) != nullptr || machine_.expects(JobId(job.id))) continue;
    if (job.batch) throw Violation(fmt::format("job {} runs without a process", job.id));
  }
}

// Interactive jobs: with their client, within their time.
void World::check_clients() {
  for (const Job* active : engine_->active()) {
    const api::JobInfo job = to_info(*active);
    if (job.batch || job.state == "COMPLETING") continue;
    // Its client is not inside yet, and nobody has been answered.
    const Run* run = machine_.find(active->mark);
    if (run != nullptr && run->phase == Phase::launching) continue;
    const auto holder = holders_.find(job.id);
    const bool held = holder != holders_.end() && holder->second->open;
    // Frozen with its job a client cannot come back, and then has its time.
    if (job.state == "SUSPENDED") frozen_until_ = clock_.mono();
    const bool may_wait = clock_.mono() - std::max(restarted_, frozen_until_) < kReattach;
    const bool detached = job.name.starts_with("detached");
    if (!held && !may_wait && !detached) {
      throw Violation(fmt::format("job {} runs and its client is gone", job.id));
    }
    if (run == nullptr || !job.time_limit_ms || job.state != "RUNNING") continue;
    if (run->ran > Millis(*job.time_limit_ms)) {
      throw Violation(fmt::format("job {} runs on after its time", job.id));
    }
  }
}

void World::check_records(const std::vector<api::JobInfo>& jobs) {
  std::map<std::int64_t, api::JobInfo> now;
  for (const api::JobInfo& job : jobs) {
    Submission* submission = submission_of(job);
    if (submission == nullptr) throw Violation(fmt::format("job {} was never asked for", job.id));
    if (job.uid != submission->uid || job.user != fmt::format("u{}", submission->uid) ||
        job.account != submission->account) {
      throw Violation(fmt::format("job {} of u{}, account {}, is u{}'s, account {}", job.id,
                                  submission->uid, submission->account, job.uid, job.account));
    }
    for (const std::string* text :
         {&job.name, &job.comment, &job.work_dir, &job.std_out, &job.command, &job.reason_detail}) {
      if (steers_terminal(*text)) throw Violation(fmt::format("job {} steers terminals", job.id));
    }
    const auto was = known_.find(job.id);
    if (was != known_.end() && submission->requeues == 0 && !may_have_become(was->second, job)) {
      throw Violation(fmt::format("job {} was {} and is {}", job.id, was->second.state, job.state));
    }
    now[job.id] = job;
  }
  for (const auto& [id, was] : known_) {
    if (now.contains(id)) continue;
    // What ended a while ago has left the queue, and is on record.
    const auto info = engine_->views().show({Uid(0)}, std::to_string(id));
    if (!info || !is_over(*info)) throw Violation(fmt::format("job {} is lost", id));
    now[id] = *info;
  }
  for (const std::int64_t id : accepted_) {
    if (!now.contains(id)) throw Violation(fmt::format("job {} was accepted and is lost", id));
  }
  known_ = std::move(now);
  for (const auto& [unit, times] : machine_.times_run) {
    const auto job = std::ranges::find_if(
        known_, [&](const auto& one) { return WalkMachine::unit_of(one.second) == unit; });
    if (job == known_.end()) continue;
    const Submission& submission = *submission_of(job->second);
    if (!submission.requeue && times > 1 + submission.requeues) {
      throw Violation(fmt::format("job {} must run once and ran {} times", job->first, times));
    }
  }
}

std::vector<std::int64_t> World::named(const std::string& id, std::uint32_t uid) const {
  std::vector<std::int64_t> found;
  std::string text = id;
  if (text == "last") {
    std::int64_t last = 0;
    for (const auto& [number, job] : known_) {
      if (job.uid == uid) last = std::max(last, job.array_job_id.value_or(number));
    }
    if (last == 0) return {};
    text = std::to_string(last);
  }
  const auto line = text.find('_');
  const auto number = parse_digits(std::string_view(text).substr(0, line));
  if (!number) return {};
  std::optional<std::int64_t> task;
  if (line != std::string::npos) {
    task = parse_digits(std::string_view(text).substr(line + 1));
    if (!task) return {};
  }
  for (const auto& [other, job] : known_) {
    if (other != *number && job.array_job_id != *number) continue;
    if (task) {
      const auto submission = submissions_.find(job.comment);
      if (job.array_job_id != *number || !submission->second.tasks.contains(*task)) continue;
    }
    found.push_back(other);
  }
  return found;
}

bool World::may_command(const std::string& id, std::uint32_t uid) const {
  const auto jobs = named(id, uid);
  if (jobs.empty()) return false;
  return uid == 0 ||
         std::ranges::all_of(jobs, [&](std::int64_t one) { return known_.at(one).uid == uid; });
}

}  // namespace aliquot::engine::walk
