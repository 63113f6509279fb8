#include "slurm/agent/agent.hpp"

#include <spdlog/spdlog.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <utility>

#include "base/percent.hpp"
#include "base/text.hpp"
#include "node/environment.hpp"
#include "node/job_grant.hpp"
#include "slurm/agent/process_place.hpp"
#include "slurm/job_state.hpp"
#include "slurm/plain_name.hpp"
#include "sys/file.hpp"
#include "sys/folder.hpp"

namespace aliquot::slurm {
namespace {

namespace fs = std::filesystem;

// A job without a step is asked for soon, then less and less often: salloc may idle for days.
constexpr Millis kFirstQuestion = Millis(200);
constexpr Millis kRarest = seconds(30);
// What slurmctld said of a job that uses a GPU and holds no share, or what cannot be understood,
// holds for so long.
constexpr Millis kSettled = seconds(10);
// One that did not answer is asked again after so long.
constexpr Millis kRest = seconds(1);
// So many questions at a time: a step's goes in between.
constexpr std::size_t kMostQuestions = 8;

bool has_whole_gpus_only(const core::Grant& grant) {
  return std::ranges::all_of(grant.gpus, &core::GrantedGpu::whole);
}

// Whatever kept it from being done (a missing file, no permission, a word of Slurm's that cannot be
// read) is this node's trouble: is_nodes_fault().
template <class T>
Result<T> here(Result<T> result) {
  if (!result) result.error().code = Error::Code::unavailable;
  return result;
}

void set(std::string& lines, std::string_view assignment) {
  // A line is a line: nothing that we give has one in it, and nothing else may.
  if (assignment.find('\n') == std::string_view::npos) lines += fmt::format("set {}\n", assignment);
}

}  // namespace

NodeSample node_sample(const NodeGpus& node, const std::vector<node::GpuView>& views) {
  NodeSample sample{NodeId(node.node), {}, std::string(own_version())};
  for (std::size_t i = 0; i < node.devices.size(); ++i) {
    const core::Gpu& gpu = node.devices[i].gpu;
    for (const node::GpuView& view : views) {
      if (view.sample.id != gpu.id) continue;
      GpuLoad load{static_cast<std::int64_t>(i), view.sample.utilisation, view.sample.memory_used,
                   gpu.memory};
      load.trouble = view.sample.trouble;
      for (const node::GpuProcess& process : view.processes) {
        if (process.holder) continue;
        load.foreign.push_back(
            {process.pid, is_plain_name(process.user) ? process.user : "unknown", process.memory});
      }
      std::ranges::stable_sort(load.foreign, std::ranges::greater{}, &ForeignProcess::memory);
      if (load.foreign.size() > kMostForeign) load.foreign.resize(kMostForeign);
      sample.gpus.push_back(std::move(load));
    }
  }
  return sample;
}

bool is_nodes_fault(const Error& error) { return error.code == Error::Code::unavailable; }

Agent::Agent(Parts parts)
    : parts_(std::move(parts)),
      parts_of_jobs_(parts_.enforcer, parts_.run / "jobs"),
      room_(parts_.node, parts_.clock) {}

Result<std::unique_ptr<Agent>> Agent::create(Parts parts) {
  TRY(sys::make_own_folder(parts.run / "jobs", 0700));
  auto agent = std::unique_ptr<Agent>(new Agent(std::move(parts)));
  TRY(agent->take_up());
  return agent;
}

fs::path Agent::note_path(JobId job) const {
  return parts_.run / "jobs" / std::to_string(job.value());
}

Result<void> Agent::write_note(const Job& job) const {
  return sys::write_whole(note_path(job.id()), format_note(job.note), 0600, false);
}

Result<void> Agent::take_up() {
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(parts_.run / "jobs", error)) {
    const std::string name = entry.path().filename();
    const auto id = parse_digits(name);
    const auto text = sys::read_whole(entry.path());
    if (auto part = parse_note(text.value_or("")); !id && part) {
      if (parts_of_jobs_.take_up(name, std::move(*part))) continue;
    }
    if (!id || !text) {
      fs::remove(entry.path(), error);  // half of a file that was being written
      continue;
    }
    auto note = parse_note(*text);
    if (!note || note->grant.holder != holder_of(JobId(*id))) {
      spdlog::warn("cannot read {}: job {} is not held any more", entry.path().string(), *id);
      fs::remove(entry.path(), error);
      continue;
    }
    const bool reached = !note->steps.empty();
    Job job{.note = std::move(*note), .reached = reached};
    if (job.note.enforcement != core::kNotHeld) parts_.enforcer.adopt(job.note.grant);
    jobs_.emplace(JobId(*id), std::move(job));
  }
  parts_.enforcer.recovered();
  std::vector<node::RunningJob> parts;
  parts_of_jobs_.add_running(parts);
  for (const node::RunningJob& part : parts) settle({job_of_holder(part.id).value_or(JobId())});
  if (!jobs_.empty()) spdlog::info("took up {} jobs", jobs_.size());
  return {};
}

Result<core::Grant> Agent::find(const StepFacts& step, const Word& word) const {
  if (!word || (!*word && word->error().code != Error::Code::not_found)) {
    spdlog::warn(
        "job {}: {}; it gets what its step says, of what was booked, until slurmctld answers",
        step.job, word ? word->error().message : "slurmctld takes its time");
    // A script's words are its job's; those of an srun are its own, and it gets a part by them.
    return here(step.step == kBatchStep ? part_grant(step, parts_.node)
                                        : booked_grant(step, parts_.node));
  }
  if (!*word) return tl::make_unexpected(word->error());
  if ((*word)->uid != step.uid) {
    return fail(Error::Code::permission_denied, "job {} is another user's", step.job);
  }
  return here(slurm_grant(**word, parts_.node));
}

bool Agent::wants_word(const StepFacts& step) const {
  const auto known = jobs_.find(JobId(step.job));
  const bool held = known != jobs_.end() && known->second.reached &&
                    known->second.note.grant.attempt >= step.restarts;
  return !held && !away_;
}

Result<std::string> Agent::grant(const StepFacts& step, Pid stepd, const Word& word) {
  const JobId id(step.job);
  const auto process = sys::read_process(stepd);
  auto known = jobs_.find(id);
  bool late = false;
  if (known != jobs_.end() && known->second.note.grant.owner != Uid(step.uid)) {
    return fail(Error::Code::permission_denied, "job {} is another user's", id);
  }
  if (known != jobs_.end() && known->second.note.grant.attempt < step.restarts) {
    release(id);  // what asks is another attempt, after a requeue
    known = jobs_.end();
  } else if (known != jobs_.end() && !known->second.reached) {
    spdlog::info("job {} was only watched: a step of it asks for its share", id);
    let_go(id);
    known = jobs_.end();
    late = true;
  }
  if (known != jobs_.end()) {
    Job& job = known->second;
    if (process && job.note.steps.insert(process->ref).second) {
      TRY(here(write_note(job)));
    }
    job.patience = Millis(0);
    return answer(job, step, process);
  }
  core::Grant grant = TRY(find(step, word));
  grant.attempt = std::max(grant.attempt, step.restarts);
  // Whole GPUs that Slurm itself booked are its own affair, whatever state they are in.
  if (step.shards > 0 || !has_whole_gpus_only(grant)) {
    if (const auto room = room_.check(grant, granted()); !room) {
      ask_for_idle_jobs();
      return tl::make_unexpected(room.error());
    }
  }
  JobNote note{.grant = std::move(grant), .checked = word && *word};
  if (note.checked) {
    note_word(note, **word);
  } else if (step.step == kBatchStep) {
    note.booked = step.shards;
  }
  Job* held = TRY(here(hold(std::move(note), process, late)));
  return answer(*held, step, process);
}

// What is over and not yet released counts as granted.
void Agent::ask_for_idle_jobs() {
  const MonoTime now = parts_.clock.mono();
  for (auto& [id, job] : jobs_) {
    if (!job.note.steps.empty()) continue;
    job.patience = kFirstQuestion;
    job.ask_at = std::min(job.ask_at, now);
  }
}

Result<std::string> Agent::answer(const Job& job, const StepFacts& step,
                                  const std::optional<sys::ProcessInfo>& stepd) {
  const core::Grant& grant = job.note.grant;
  // What the job has booked is not known while slurmctld does not answer. A step that says how much
  // it wants has a part of its own then as well.
  const bool less = job.note.booked > 0 ? step.shards < job.note.booked
                                        : !job.note.checked && !step.words.empty();
  const bool part = step.step != kBatchStep && step.shards > 0 && less && grant.gpus.size() == 1 &&
                    !grant.gpus.front().whole && stepd;
  if (!part) return here(environment(job.note, step));
  NodeGpus node = parts_.node;
  node.share = node.share.in(job.note.partition);
  const auto found = part_grant(step, node);
  if (!found || found->gpus.size() != 1 || found->gpus.front().gpu != grant.gpus.front().gpu) {
    // The job and its other steps go on with what they have: no fault of the node's.
    return fail(Error::Code::failed_state, "job {}: its step {} has another GPU than the job{}",
                job.id(), step.step, found ? "" : ": " + found.error().message);
  }
  core::Grant own = *found;
  own.attempt = grant.attempt;
  const JobNote* held = TRY(parts_of_jobs_.give(grant, step.step, std::move(own), stepd->ref));
  return here(environment(*held, step));
}

void Agent::note_word(JobNote& note, const SlurmJob& word) const {
  note.booked = booked_shards(word, parts_.node);
  note.partition = word.partition;
  note.name = make_plain(word.name);
  note.account = make_plain(word.account);
  note.start_s = word.start_s;
  note.time_limit_s = time_limit_of(word);
}

std::vector<JobNote> Agent::notes() const {
  std::vector<JobNote> all;
  for (const auto& [id, job] : jobs_) all.push_back(job.note);
  return all;
}

Result<Agent::Job*> Agent::hold(JobNote note, const std::optional<sys::ProcessInfo>& stepd,
                                bool late) {
  using Reach = node::Enforcer::Reach;
  Job job{.note = std::move(note), .reached = stepd.has_value()};
  const JobId id = job.id();
  job.note.mark = node::make_mark(id);
  if (stepd) job.note.steps.insert(stepd->ref);
  const Reach reach = !job.reached ? Reach::none : late ? Reach::late : Reach::all;
  job.note.enforcement = TRY(parts_.enforcer.grant(job.note.grant, reach)).words;
  if (const auto noted = write_note(job); !noted) {
    parts_.enforcer.release(holder_of(id), std::nullopt);
    return tl::make_unexpected(noted.error());
  }
  strangers_.erase(id);
  Job& held = jobs_.insert_or_assign(id, std::move(job)).first->second;
  for (const core::GrantedGpu& gpu : held.note.grant.gpus) {
    spdlog::info("job {} of user {}: GPU {} ({}), {}", id, held.note.grant.owner,
                 parts_.node.number_of(gpu.gpu).value_or(-1),
                 gpu.whole ? "whole"
                           : fmt::format("{} MiB, {}", gpu.portion.memory / mib(1),
                                         format_percent(gpu.portion.compute)),
                 held.note.enforcement);
  }
  return &held;
}

Result<std::string> Agent::environment(const JobNote& held, const StepFacts& step) const {
  std::string lines;
  set(lines, fmt::format("{}={}", node::kMarkVariable, held.mark));
  const bool whole = has_whole_gpus_only(held.grant);
  // Whole GPUs are Slurm's own affair, and so is what it says of them; but where they are booked as
  // shards, its gres/mps may have wiped that away.
  if (!whole || (step.shards > 0 && step.visible.empty())) {
    for (const auto& assignment : node::gpu_environment(visible(held, step)))
      set(lines, assignment);
  }
  if (!whole) TRY(add_share(lines, held));
  if (parts_.standin) {
    const std::string folder = parts_.standin->directory;
    for (const std::string& assignment : gpu::environment(*parts_.standin)) set(lines, assignment);
    lines += fmt::format("prepend LD_LIBRARY_PATH={}\nprepend PATH={}\n", folder, folder);
  }
  return lines;
}

// The UUIDs of those of its job's GPUs that the step was given.
std::vector<std::string> Agent::visible(const JobNote& held, const StepFacts& step) const {
  std::vector<std::string> uuids;
  for (const core::GrantedGpu& each : held.grant.gpus) {
    const auto number = parts_.node.number_of(each.gpu);
    const std::vector<std::int64_t>& own = given_gpus(step);
    const bool given = own.empty() || (number && std::ranges::count(own, *number) > 0);
    if (given) uuids.push_back(each.gpu.value());
  }
  return uuids;
}

Result<void> Agent::add_share(std::string& lines, const JobNote& held) const {
  for (const char* name : node::kMpsVariables) lines += fmt::format("unset {}\n", name);
  const node::Enforcer::Enforced enforced =
      TRY(parts_.enforcer.of(held.grant, held.enforcement.empty()));
  for (const std::string& assignment : enforced.environment) {
    // It cannot be raised for a process that runs, as what is put right may have to be.
    if (!held.checked && assignment.starts_with("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=")) continue;
    set(lines, assignment);
  }
  if (!enforced.preload.empty()) lines += fmt::format("prepend LD_PRELOAD={}\n", enforced.preload);
  return {};
}

void Agent::settle(const std::vector<JobId>& jobs) {
  for (const JobId id : jobs) {
    const auto job = jobs_.find(id);
    if (job != jobs_.end()) parts_of_jobs_.settle(job->second.note.grant);
  }
}

bool Agent::is_last(const StepFacts& step, Pid stepd) const {
  const auto found = jobs_.find(JobId(step.job));
  return found != jobs_.end() &&
         std::ranges::all_of(found->second.note.steps,
                             [&](const sys::ProcessRef& ref) { return ref.pid == stepd; });
}

void Agent::leave(const StepFacts& step, Pid stepd) {
  const auto found = jobs_.find(JobId(step.job));
  if (found != jobs_.end() && found->second.note.grant.owner != Uid(step.uid)) return;
  const auto part = parts_.enforcer.measure(part_holder(JobId(step.job), step.step));
  settle(parts_of_jobs_.leave(stepd));
  if (found == jobs_.end()) return;
  Job& job = found->second;
  if (part) job.note.in_parts += part->gpu_time;
  std::erase_if(job.note.steps, [&](const sys::ProcessRef& ref) { return ref.pid == stepd; });
  // What it used so far is not lost with an agent that is killed.
  if (const auto noted = write_note(job); !noted) {
    spdlog::warn("job {}: {}", job.id(), noted.error().message);
  }
  if (!job.note.steps.empty()) return;
  // slurmstepd waits for us, for a moment: it has not told slurmctld yet that the step is over.
  news_.used.emplace_back(job.id(), used_by(job));
  job.patience = kFirstQuestion;
  job.ask_at = parts_.clock.mono() + kFirstQuestion;
}

Used Agent::used_by(const Job& job) const {
  Used used = job.note.seen;
  if (const auto measured = parts_.enforcer.measure(job.note.grant.holder)) {
    used.gpu_time = measured->gpu_time;
    used.memory_peak = std::max(used.memory_peak, measured->memory_peak);
  }
  used.gpu_time += job.note.in_parts;
  return used;
}

bool Agent::is_over(const Job& job, const Result<SlurmJob>& word) const {
  if (!word) return true;  // Slurm does not know it any more
  if (!is_on_its_nodes(word->state) || word->restarts > job.note.grant.attempt) return true;
  return std::ranges::find(word->details, parts_.node.node, &SlurmJob::Detail::node) ==
         word->details.end();
}

void Agent::look_after() {
  const MonoTime now = parts_.clock.mono();
  for (auto& [id, job] : jobs_) {
    std::erase_if(job.note.steps, [](const sys::ProcessRef& ref) { return !sys::is_alive(ref); });
    if (!job.note.steps.empty()) {
      job.patience = Millis(0);
    } else if (job.patience == Millis(0)) {
      job.patience = kFirstQuestion;
      job.ask_at = now + kFirstQuestion;
    }
  }
  settle(parts_of_jobs_.drop_dead());
  parts_.enforcer.tick();
}

std::vector<JobId> Agent::questions() {
  const MonoTime now = parts_.clock.mono();
  std::vector<JobId> asked;
  if (now < ask_after_) return asked;
  const auto ask = [&](JobId id) { asked.push_back(id); };
  for (const auto& [id, job] : jobs_) {
    if (!job.note.checked && now >= job.check_at) ask(id);
  }
  for (const auto& [id, at] : strangers_) {
    if (now >= at) ask(id);
  }
  for (const auto& [id, job] : jobs_) {
    if (job.note.checked && job.note.steps.empty() && now >= job.ask_at) ask(id);
  }
  // Of one that does not answer a single question is enough, each time another one: it may be that
  // it only does not answer this.
  if (away_ && asked.size() > 1) {
    std::ranges::rotate(asked, asked.begin() + (rounds_away_++ % std::ssize(asked)));
  }
  asked.resize(std::min(asked.size(), away_ ? 1 : kMostQuestions));
  return asked;
}

void Agent::heard(JobId id, const Result<SlurmJob>& word) {
  const MonoTime now = parts_.clock.mono();
  away_ = !word && word.error().code != Error::Code::not_found;
  if (away_) ask_after_ = now + kRest;
  const auto found = jobs_.find(id);
  if (found == jobs_.end()) {
    if (!away_ && strangers_.contains(id)) take_in(id, word);
    return;
  }
  Job& job = found->second;
  if (!away_ && job.note.steps.empty() && is_over(job, word)) return release(id);
  if (!away_ && !job.note.checked) put_right(job, word);
  if (!job.note.steps.empty()) return;
  job.patience = std::min(Millis(job.patience.value() * 2), kRarest);
  job.ask_at = now + job.patience;
}

// What Slurm says it holds is what it has from now on, at once for processes that run already. What
// these have taken of what they were given stays theirs: it was booked, and nobody else's. A job
// that holds nothing here has nothing: Slurm ends those that it does not know.
void Agent::put_right(Job& job, const Result<SlurmJob>& word) {
  core::Grant grant;
  if (word && Uid(word->uid) == job.note.grant.owner) {
    auto found = slurm_grant(*word, parts_.node);
    if (!found) {
      job.check_at = parts_.clock.mono() + kSettled;
      return spdlog::warn("job {}: {}", job.id(), found.error().message);
    }
    grant = std::move(*found);
    note_word(job.note, *word);
  }
  job.note.checked = true;
  bool wrong = false;
  std::optional<Bytes> given;  // of the GPU that it has a share of
  for (core::GrantedGpu& held : job.note.grant.gpus) {
    const core::GrantedGpu* right = grant.find(held.gpu);
    if (right != nullptr && !right->whole && grant.gpus.size() == 1) given = held.portion.memory;
    // No limit at all would be 0.
    const core::GrantedGpu none{held.gpu, {Bytes(1), Compute(1)}, false};
    const core::GrantedGpu& now = right == nullptr ? none : *right;
    wrong = wrong || now.whole != held.whole || now.portion != held.portion;
    held = now;
  }
  if (has_whole_gpus_only(job.note.grant)) {
    job.note.grant.gpus = grant.gpus;  // the first step may have had some of them
  } else if (wrong) {
    spdlog::info("job {}: slurmctld answers, and its share is put right", job.id());
    parts_of_jobs_.settle(job.note.grant);
    const Bytes missing = parts_of_jobs_.overdrawn(job.note.grant);
    if (Bytes& memory = job.note.grant.gpus.front().portion.memory; given && missing > Bytes(0)) {
      memory = std::max(memory, std::min(memory + missing, *given));
      spdlog::info("job {}: it holds more already, and keeps {} MiB", job.id(), memory / mib(1));
      parts_of_jobs_.settle(job.note.grant);
    }
  }
  if (const auto noted = write_note(job); !noted) {
    spdlog::warn("job {}: {}", job.id(), noted.error().message);
  }
}

void Agent::release(JobId id) {
  spdlog::info("job {} is over", id);
  let_go(id);
}

void Agent::let_go(JobId id) {
  parts_of_jobs_.release(id);
  parts_.enforcer.release(holder_of(id), std::nullopt);
  std::error_code ignored;
  fs::remove(note_path(id), ignored);
  std::erase_if(told_, [&](const auto& one) { return one.first == id; });
  jobs_.erase(id);  // last: id may be its own
}

std::vector<node::RunningJob> Agent::running() const {
  std::vector<node::RunningJob> running;
  for (const auto& [id, job] : jobs_)
    running.push_back({holder_of(id), job.note.grant.owner, job.note.mark});
  parts_of_jobs_.add_running(running);
  return running;
}

Result<std::vector<node::GpuView>> Agent::look_at(
    gpu::Devices& devices, const std::vector<node::RunningJob>& running) const {
  // Without names: those may have to wait for the network, and what is looked at must not.
  return node::look_at_gpus(devices, running, holders_among(running), parts_.by_mark, {});
}

void Agent::take_in(JobId id, const Result<SlurmJob>& word) {
  strangers_[id] = parts_.clock.mono() + kSettled;
  if (!word || !is_on_its_nodes(word->state)) return;  // what is over is being cleared away
  auto grant = slurm_grant(*word, parts_.node);
  if (!grant) return spdlog::warn("job {}: {}", id, grant.error().message);
  if (has_whole_gpus_only(*grant)) return;
  spdlog::warn(
      "job {} uses a GPU and no step of it has asked for its share: aliquot_spank.so is not in its "
      "slurmstepd; see 'aliquot slurm check' here",
      id);
  tell(id, Remark::escape);
  JobNote note{.grant = std::move(*grant)};
  note_word(note, *word);
  if (const auto held = hold(std::move(note), std::nullopt, false); !held) {
    spdlog::error("job {} is not held: {}", id, held.error().message);
  }
}

void Agent::tell(JobId id, Remark remark) {
  if (told_.insert({id, remark}).second) news_.remarks.emplace_back(id, remark);
}

News Agent::news() {
  // What it was drained for may be there still: nothing is known before the first look.
  news_.fit = !parts_.node.devices.empty() && seen_;
  news_.keep_away = room_.keep_away();
  return std::exchange(news_, {});
}

void Agent::observe(const std::vector<node::GpuView>& views) {
  std::set<JobId> strangers;
  for (const node::GpuView& view : views) {
    for (const node::GpuProcess& process : view.processes) {
      const auto id = process.holder ? node::job_of(*process.holder) : std::nullopt;
      if (id && !jobs_.contains(*id)) strangers.insert(*id);
    }
  }
  std::erase_if(strangers_, [&](const auto& known) { return !strangers.contains(known.first); });
  std::erase_if(told_, [&](const auto& one) {
    return !strangers.contains(one.first) && !jobs_.contains(one.first);
  });
  for (const JobId id : strangers) strangers_.try_emplace(id, parts_.clock.mono());
  const auto held = running();
  const node::FencedJob fenced = holders_among(held);
  for (const node::Escape& escape :
       parts_.enforcer.inspect(views, node::members_by(held, fenced, parts_.by_mark))) {
    spdlog::warn("job {}: {}", escape.job, make_plain(escape.what));
    if (const auto id = job_of_holder(escape.job)) tell(*id, Remark::escape);
  }
  const auto holders = holding();
  for (const node::Escape& broken : faults_.look(
           views, holders, node::members_by(holders, holders_among(holders), parts_.by_mark))) {
    spdlog::warn("job {}: {}", broken.job, broken.what);
    if (const auto id = node::job_of(broken.job)) tell(*id, Remark::broken_gpu);
  }
  watch_use(views);
  room_.observe(views, granted());
  seen_ = true;
}

std::vector<node::RunningJob> Agent::holding() const {
  std::vector<node::RunningJob> all;
  for (const auto& [id, job] : jobs_) {
    std::vector<GpuId> gpus;
    for (const core::GrantedGpu& held : job.note.grant.gpus) gpus.push_back(held.gpu);
    all.push_back({.id = holder_of(id),
                   .uid = job.note.grant.owner,
                   .mark = job.note.mark,
                   .gpus = std::move(gpus),
                   .gid = job.note.grant.group});
  }
  return all;
}

Room::Granted Agent::granted() const {
  Room::Granted all;
  for (const auto& [id, job] : jobs_) {
    for (const core::GrantedGpu& held : job.note.grant.gpus) {
      all[held.gpu] += held.portion.memory;
    }
  }
  return all;
}

void Agent::watch_use(const std::vector<node::GpuView>& views) {
  const MonoTime now = parts_.clock.mono();
  const Millis elapsed = watched_ == MonoTime() ? Millis(0) : now - watched_;
  watched_ = now;
  std::map<JobId, Bytes> memory;
  for (const node::GpuView& view : views) {
    for (const node::GpuProcess& process : view.processes) {
      const auto id = process.holder ? job_of_holder(*process.holder) : std::nullopt;
      if (id) memory[*id] += process.memory;
    }
    // Of a GPU that is its own a job has all that the GPU does.
    for (auto& [id, job] : jobs_) {
      const auto* held = job.note.grant.find(view.sample.id);
      if (held == nullptr || !held->whole) continue;
      job.note.seen.gpu_time +=
          Millis(elapsed.value() * view.sample.utilisation.value() / kWholeGpu.value());
    }
  }
  for (auto& [id, job] : jobs_)
    job.note.seen.memory_peak = std::max(job.note.seen.memory_peak, memory[id]);
}

void Agent::stop() {
  std::set<HolderId> active;
  for (const node::RunningJob& job : running()) active.insert(job.id);
  parts_.enforcer.stop(active);
}

}  // namespace aliquot::slurm
