#include "slurm/agent/agent.hpp"

#include <spdlog/spdlog.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <utility>

#include "api/json.hpp"
#include "base/text.hpp"
#include "node/file.hpp"
#include "node/folder.hpp"
#include "node/job_grant.hpp"
#include "slurm/job_state.hpp"

namespace aliquot::slurm {
namespace {

namespace fs = std::filesystem;

// A job without a step is asked for soon, then less and less often: salloc may idle for days.
constexpr Millis kFirstQuestion = Millis(200);
constexpr Millis kRarest = seconds(30);
// What slurmctld said of a job that uses a GPU and holds no share holds for so long.
constexpr Millis kSettled = seconds(10);

std::string mark_line(const std::set<node::ProcessRef>& steps, const std::string& mark) {
  std::string text = mark + "\n";
  for (const node::ProcessRef& step : steps) {
    text += fmt::format("{} {}\n", step.pid.value(), step.start_time);
  }
  return text;
}

// Whatever kept it from being done (a file that is not there, no permission) is this node's
// trouble.
template <class T>
Result<T> here(Result<T> result) {
  if (!result) result.error().code = Error::Code::unavailable;
  return result;
}

void set(std::string& lines, std::string_view assignment) {
  // A line is a line: nothing that we give has one in it, and nothing else may.
  if (assignment.find('\n') == std::string_view::npos) lines += fmt::format("set {}\n", assignment);
}

// The path is the kernel's, and Slurm alone makes groups there: …/slurm/uid_1000/job_7/step_0/….
std::optional<JobId> job_by_cgroup(node::Pid pid) {
  std::ifstream file(fmt::format("/proc/{}/cgroup", pid.value()));
  for (std::string line; std::getline(file, line);) {
    if (line.find("/slurm") == std::string::npos) continue;
    const std::size_t at = line.find("/job_");
    if (at == std::string::npos) continue;
    const std::string rest = line.substr(at + 5);
    const auto id = parse_digits(rest.substr(0, rest.find('/')));
    if (id) return JobId(*id);
  }
  return std::nullopt;
}

// Where Slurm makes no groups: slurmstepd, which is root's, has its job in its title,
// "slurmstepd: [7.batch]".
std::optional<JobId> job_by_title(node::Pid pid) {
  constexpr std::string_view kTitle = "slurmstepd: [";
  if (!node::runs_as(pid, Uid(0))) return std::nullopt;
  const auto title = node::read_whole(fmt::format("/proc/{}/cmdline", pid.value()));
  if (!title || !title->starts_with(kTitle)) return std::nullopt;
  const std::string_view rest = std::string_view(*title).substr(kTitle.size());
  const auto id = parse_digits(rest.substr(0, rest.find_first_of(".]")));
  return id ? std::optional(JobId(*id)) : std::nullopt;
}

}  // namespace

bool is_nodes_fault(const Error& error) {
  return error.code != Error::Code::permission_denied && error.code != Error::Code::not_found &&
         error.code != Error::Code::invalid_argument;
}

std::optional<JobId> Agent::job_of(node::Pid pid) {
  if (const auto job = job_by_cgroup(pid)) return job;
  for (int depth = 0; depth < 64; ++depth) {
    const auto process = node::read_process(pid);
    if (!process || process->parent.value() <= 1) return std::nullopt;
    pid = process->parent;
    if (const auto job = job_by_title(pid)) return job;
  }
  return std::nullopt;
}

std::optional<HolderId> Agent::holder_of_process(node::Pid pid) {
  const auto job = job_of(pid);
  return job ? std::optional(holder_of(*job)) : std::nullopt;
}

Agent::Agent(Parts parts)
    : parts_(std::move(parts)), drain_(parts_.slurm, parts_.node.node, parts_.clock) {}

Result<std::unique_ptr<Agent>> Agent::create(Parts parts) {
  TRY(node::make_own_folder(parts.run / "jobs", 0700));
  auto agent = std::unique_ptr<Agent>(new Agent(std::move(parts)));
  TRY(agent->take_up());
  return agent;
}

fs::path Agent::note_path(JobId job) const {
  return parts_.run / "jobs" / std::to_string(job.value());
}

// The mark and the steps line by line, then the job as JSON.
Result<void> Agent::note(const Job& job) const {
  return node::write_whole(note_path(JobId(job.info.id)),
                           mark_line(job.steps, job.mark) + api::to_json(job.info) + "\n", 0600,
                           false);
}

Result<void> Agent::take_up() {
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(parts_.run / "jobs", error)) {
    const auto id = parse_digits(entry.path().filename().string());
    const auto text = node::read_whole(entry.path());
    if (!id || !text) {
      fs::remove(entry.path(), error);  // half of a file that was being written
      continue;
    }
    Job job;
    const auto lines = split(*text, '\n');
    job.mark = lines.front();
    std::optional<api::JobInfo> info;
    for (std::size_t i = 1; i < lines.size(); ++i) {
      if (lines[i].starts_with("{")) {
        if (auto read = api::from_json<api::JobInfo>(lines[i])) info = std::move(*read);
        continue;
      }
      const auto words = split(lines[i], ' ');
      if (words.size() != 2) continue;
      const auto pid = parse_digits(words[0]);
      const auto start = parse_digits(words[1]);
      if (!pid || !start) continue;
      job.steps.insert({node::Pid(static_cast<pid_t>(*pid)), static_cast<std::uint64_t>(*start)});
    }
    if (!info || info->id != *id) {
      spdlog::warn("cannot read {}: job {} is not held any more", entry.path().string(), *id);
      fs::remove(entry.path(), error);
      continue;
    }
    job.info = std::move(*info);
    job.reached = !job.steps.empty();
    if (job.info.enforcement != core::kNotHeld) parts_.enforcer.adopt(node::grant_of(job.info));
    jobs_.emplace(JobId(*id), std::move(job));
  }
  parts_.enforcer.recovered();
  if (!jobs_.empty()) spdlog::info("took up {} jobs", jobs_.size());
  return {};
}

Result<api::JobInfo> Agent::find(const StepFacts& step) {
  const auto job = parts_.slurm.job(JobId(step.job));
  if (!job) {
    if (job.error().code == Error::Code::not_found) return tl::make_unexpected(job.error());
    spdlog::warn("job {}: {}; it gets what was booked, in proportion", step.job,
                 job.error().message);
    return booked_grant(step, parts_.node);
  }
  if (job->uid != step.uid) {
    return fail(Error::Code::permission_denied, "job {} is another user's", step.job);
  }
  return found_grant(*job, parts_.node);
}

Result<std::string> Agent::grant(const StepFacts& step, node::Pid stepd) {
  auto lines = answer(step, stepd);
  if (!lines && is_nodes_fault(lines.error())) drain_.trouble();
  return lines;
}

Result<std::string> Agent::answer(const StepFacts& step, node::Pid stepd) {
  const JobId id(step.job);
  const auto process = node::read_process(stepd);
  auto known = jobs_.find(id);
  bool late = false;
  if (known != jobs_.end() && known->second.info.restarts < step.restarts) {
    release(id);  // what asks is another attempt, after a requeue
    known = jobs_.end();
  } else if (known != jobs_.end() && !known->second.reached && known->second.info.uid == step.uid) {
    spdlog::info("job {} was only watched: a step of it asks for its share", id);
    let_go(id);
    known = jobs_.end();
    late = true;
  }
  if (known != jobs_.end()) {
    Job& job = known->second;
    if (job.info.uid != step.uid) {
      return fail(Error::Code::permission_denied, "job {} is another user's", id);
    }
    if (process && job.steps.insert(process->ref).second) TRY(here(note(job)));
    job.patience = Millis(0);
    return environment(job, step);
  }
  api::JobInfo info = TRY(find(step));
  info.restarts = std::max(info.restarts, step.restarts);
  const Job* held = TRY(here(hold(std::move(info), process, late)));
  return environment(*held, step);
}

Result<const Agent::Job*> Agent::hold(api::JobInfo info,
                                      const std::optional<node::ProcessInfo>& stepd, bool late) {
  using Reach = node::Enforcer::Reach;
  const JobId id(info.id);
  Job job{.info = std::move(info), .mark = node::make_mark(id)};
  if (stepd) job.steps.insert(stepd->ref);
  job.reached = stepd.has_value();
  const Reach reach = !job.reached ? Reach::none : late ? Reach::late : Reach::all;
  const node::Enforcer::Enforced enforced =
      TRY(parts_.enforcer.grant(node::grant_of(job.info), reach));
  job.info.enforcement = enforced.words;
  job.info.state = "RUNNING";
  if (const auto noted = note(job); !noted) {
    parts_.enforcer.release(holder_of(id), std::nullopt);
    return tl::make_unexpected(noted.error());
  }
  const Job& held = jobs_.insert_or_assign(id, std::move(job)).first->second;
  for (const api::GpuHold& gpu : held.info.gpus) {
    spdlog::info("job {} of user {}: GPU {} ({}), {}", id, held.info.uid, gpu.index,
                 gpu.whole ? "whole"
                           : fmt::format("{} MiB, {}.{:02} %", gpu.memory >> 20U, gpu.compute / 100,
                                         gpu.compute % 100),
                 held.info.enforcement);
  }
  return &held;
}

Result<std::string> Agent::environment(const Job& job, const StepFacts& step) const {
  std::string lines;
  set(lines, fmt::format("{}={}", node::kMarkVariable, job.mark));
  if (!std::ranges::all_of(job.info.gpus, &api::GpuHold::whole)) {
    set(lines, "CUDA_VISIBLE_DEVICES=" + visible(job, step));
    TRY(add_share(lines, job));
  } else if (step.shards > 0 && step.visible.empty()) {
    // Whole GPUs are Slurm's own affair, and so is what it says of them; but where they are booked
    // as shards, its gres/mps may have wiped that away.
    set(lines, "CUDA_VISIBLE_DEVICES=" + visible(job, step));
  }
  if (parts_.standin) {
    const std::string folder = parts_.standin->directory;
    for (const std::string& assignment : gpu::environment(*parts_.standin)) set(lines, assignment);
    lines += fmt::format("prepend LD_LIBRARY_PATH={}\nprepend PATH={}\n", folder, folder);
  }
  return lines;
}

// Those of its job that the step was given: by UUID, since an index means another GPU to who sees
// only some of them.
std::string Agent::visible(const Job& job, const StepFacts& step) const {
  std::string uuids;
  for (const api::GpuHold& gpu : job.info.gpus) {
    const auto position = std::ranges::find_if(
        parts_.node.devices, [&](const auto& device) { return device.gpu.id.value() == gpu.uuid; });
    const std::int64_t index = position - parts_.node.devices.begin();
    if (!step.step_gpus.empty() &&
        std::ranges::find(step.step_gpus, index) == step.step_gpus.end()) {
      continue;
    }
    uuids += (uuids.empty() ? "" : ",") + gpu.uuid;
  }
  return uuids;
}

Result<void> Agent::add_share(std::string& lines, const Job& job) const {
  set(lines, "CUDA_DEVICE_ORDER=PCI_BUS_ID");
  // Slurm's own idea of MPS, and what an outer job may have left.
  for (const char* name : {"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT",
                           "CUDA_MPS_PIPE_DIRECTORY", "CUDA_MPS_LOG_DIRECTORY"}) {
    lines += fmt::format("unset {}\n", name);
  }
  const node::Enforcer::Enforced enforced =
      TRY(parts_.enforcer.of(node::grant_of(job.info), job.info.enforcement.empty()));
  for (const std::string& assignment : enforced.environment) set(lines, assignment);
  if (!enforced.preload.empty()) lines += fmt::format("prepend LD_PRELOAD={}\n", enforced.preload);
  return {};
}

void Agent::leave(const StepFacts& step, node::Pid stepd) {
  const auto found = jobs_.find(JobId(step.job));
  if (found == jobs_.end()) return;
  Job& job = found->second;
  std::erase_if(job.steps, [&](const node::ProcessRef& ref) { return ref.pid == stepd; });
  if (job.steps.empty()) {
    job.patience = kFirstQuestion;
    job.ask_at = parts_.clock.mono() + kFirstQuestion;
  }
}

std::optional<bool> Agent::is_over(const Job& job) {
  const auto now = parts_.slurm.job(JobId(job.info.id));
  if (!now) {
    if (now.error().code == Error::Code::not_found) return true;
    return std::nullopt;
  }
  if (!is_on_its_nodes(now->state) || now->restarts > job.info.restarts) return true;
  return std::ranges::find(now->details, parts_.node.node, &SlurmJob::Detail::node) ==
         now->details.end();
}

void Agent::look_after() {
  const MonoTime now = parts_.clock.mono();
  std::vector<JobId> over;
  bool answers = true;
  for (auto& [id, job] : jobs_) {
    std::erase_if(job.steps, [](const node::ProcessRef& ref) { return !node::is_alive(ref); });
    if (!job.steps.empty()) {
      job.patience = Millis(0);
      continue;
    }
    if (job.patience == Millis(0)) {
      job.patience = kFirstQuestion;
      job.ask_at = now + kFirstQuestion;
    }
    if (now < job.ask_at || !answers) continue;
    const auto ended = is_over(job);
    // One long wait for slurmctld is enough in a round.
    answers = ended.has_value();
    if (ended.value_or(false)) {
      over.push_back(id);
      continue;
    }
    job.patience = std::min(Millis(job.patience.value() * 2), kRarest);
    job.ask_at = parts_.clock.mono() + job.patience;
  }
  for (const JobId id : over) release(id);
  if (answers) tell_of_escapes();
  parts_.enforcer.tick();
  drain_.round(!parts_.node.devices.empty());
}

void Agent::release(JobId id) {
  spdlog::info("job {} is over", id);
  let_go(id);
}

void Agent::let_go(JobId id) {
  parts_.enforcer.release(holder_of(id), std::nullopt);
  std::error_code ignored;
  fs::remove(note_path(id), ignored);
  told_.erase(id);
  jobs_.erase(id);
}

std::vector<node::RunningJob> Agent::running() const {
  std::vector<node::RunningJob> running;
  for (const auto& [id, job] : jobs_)
    running.push_back({holder_of(id), Uid(job.info.uid), job.mark});
  return running;
}

Result<std::vector<node::GpuView>> Agent::look_at(
    gpu::Devices& devices, const std::vector<node::RunningJob>& running) const {
  return node::look_at_gpus(devices, running, holder_of_process, parts_.by_mark);
}

void Agent::take_in(JobId id) {
  const MonoTime now = parts_.clock.mono();
  const auto known = settled_.find(id);
  if (now < ask_after_ || (known != settled_.end() && now < known->second)) return;
  const auto job = parts_.slurm.job(id);
  if (!job && job.error().code != Error::Code::not_found) {
    ask_after_ = parts_.clock.mono() + kSettled;
    return;
  }
  settled_[id] = now + kSettled;
  if (!job || !is_on_its_nodes(job->state)) return;  // what is over is being cleared away
  auto info = found_grant(*job, parts_.node);
  if (!info) return spdlog::warn("job {}: {}", id, info.error().message);
  if (std::ranges::all_of(info->gpus, &api::GpuHold::whole)) return;
  spdlog::warn(
      "job {} uses a GPU and no step of it has asked for its share: aliquot_spank.so is not in its "
      "slurmstepd; see 'aliquot slurm check' here",
      id);
  tell_of_escape(id);
  if (const auto held = hold(std::move(*info), std::nullopt); !held) {
    spdlog::error("job {} is not held: {}", id, held.error().message);
  }
}

void Agent::tell_of_escape(JobId id) {
  if (told_.contains(id)) return;
  const bool fresh = untold_.insert(id).second;
  tell_of_escapes();
  if (fresh && untold_.contains(id)) {
    spdlog::warn("job {}: its escape is noted when slurmctld takes it", id);
  }
}

void Agent::tell_of_escapes() {
  while (!untold_.empty() && parts_.clock.mono() >= ask_after_) {
    const JobId id = *untold_.begin();
    const auto written = write_escape(id);
    if (!written && written.error().code == Error::Code::unavailable) {
      ask_after_ = parts_.clock.mono() + kSettled;
      return;
    }
    untold_.erase(id);
    if (written) told_.insert(id);
  }
}

Result<void> Agent::write_escape(JobId id) {
  const SlurmJob job = TRY(parts_.slurm.job(id));
  if (escaped_on(job.admin_comment)) return {};
  auto written =
      parts_.slurm.set_admin_comment(id, note_escape(job.admin_comment, parts_.node.node));
  // Slurm may change nothing of it any more: there is no later.
  if (!written && !is_on_its_nodes(job.state)) return {};
  return written;
}

void Agent::observe(const std::vector<node::GpuView>& views) {
  std::set<JobId> strangers;
  for (const node::GpuView& view : views) {
    for (const node::GpuProcess& process : view.processes) {
      const auto id = process.holder ? node::job_of(*process.holder) : std::nullopt;
      if (id && !jobs_.contains(*id)) strangers.insert(*id);
    }
  }
  std::erase_if(settled_, [&](const auto& known) { return !strangers.contains(known.first); });
  std::erase_if(told_, [&](JobId id) { return !strangers.contains(id) && !jobs_.contains(id); });
  for (const JobId id : strangers) take_in(id);
  const auto held = running();
  const node::FencedJob fenced = holder_of_process;
  for (const node::Escape& escape :
       parts_.enforcer.inspect(views, node::members_by(held, fenced, parts_.by_mark))) {
    spdlog::warn("job {}: {}", escape.job, make_plain(escape.what));
    if (const auto id = node::job_of(escape.job)) tell_of_escape(*id);
  }
}

void Agent::stop() {
  std::set<HolderId> active;
  for (const auto& [id, job] : jobs_) active.insert(holder_of(id));
  parts_.enforcer.stop(active);
}

}  // namespace aliquot::slurm
