// The machine as a page and /metrics show it: what anybody may see.
#include <algorithm>

#include "engine/admission.hpp"
#include "engine/clients.hpp"
#include "engine/fair_share.hpp"
#include "engine/forecast.hpp"
#include "engine/job_info.hpp"
#include "engine/views.hpp"

namespace aliquot::engine {
namespace {

// Under which the store keeps the history.
constexpr const char* kHistoryNote = "history";
// What was seen is remembered so often.
constexpr Millis kRemember = seconds(2);
// Where the queue is long, planning it is dear: so often at most for pages.
constexpr Millis kForetell = seconds(10);
constexpr std::size_t kLongQueue = 500;

// Nobody: neither root nor an owner of jobs.
constexpr Caller kAnybody{Uid(net::kNoUser), {}};

void count(show::JobCounts& counts, const Job& job, std::int64_t jobs) {
  counts.jobs += jobs;
  counts.states[std::string(core::long_name(job.state))] += jobs;
  if (job.hold != Hold::none) counts.held += jobs;
  if (!core::is_active(job.state)) return;
  counts.cpus += job.cpus / kOneCpu;
  counts.memory += job.memory.value();
  counts.nodes += 1;
  for (const HeldGpu& gpu : job.gpus) {
    counts.gpu_parts += gpu.granted.whole ? kWholeGpu.value() : gpu.granted.portion.compute.value();
  }
}

}  // namespace

void Views::started(const Job& job) {
  if (job.start) history_.started(*job.start, *job.start - job.eligible);
}

Result<void> Views::recall() {
  if (const auto text = TRY(state_.store.note(kHistoryNote))) {
    history_.recall(*text, state_.clock.wall());
  }
  kept_ = history_.version();
  return {};
}

void Views::keep_history() {
  if (kept_ && !state_.trouble) {
    state_.require(state_.store.save_note(kHistoryNote, history_.keep()));
  }
}

void Views::remember() {
  const WallTime now = state_.clock.wall();
  if (now >= remembered_ && now - remembered_ < kRemember) return;
  remembered_ = now;
  api::NodeInfo node;
  show_gpus(node);
  history_.look(now, {&node}, holders());
  if (!kept_ || *kept_ == history_.version() || state_.trouble) return;
  kept_ = history_.version();
  keep_history();
}

std::vector<api::JobInfo> Views::holders() const {
  std::vector<api::JobInfo> all;
  for (const JobId id : state_.ledger.jobs()) {
    const Job& job = state_.jobs.at(id);
    if (!job.gpus.empty()) all.push_back(seen_by_all(job));
  }
  return all;
}

std::map<std::int64_t, std::vector<std::string>> Views::jobs_by_gpu() const {
  std::map<std::int64_t, std::vector<std::string>> all;
  for (std::size_t i = 0; i < state_.machine.gpus.size(); ++i) {
    const gpu::Device& device = state_.machine.gpus[i];
    if (device.slice) continue;
    auto& jobs = all[device.index];
    for (const JobId job : state_.ledger.jobs_on(0, static_cast<core::GpuIndex>(i))) {
      jobs.push_back(std::to_string(job.value()));
    }
  }
  return all;
}

api::JobInfo Views::seen_by_all(const Job& job) const {
  api::JobInfo info = to_info(job);
  show_start(job, info);
  info.reason_detail.clear();
  redact(kAnybody, info);
  // Of a start that failed only its owner learns why: it may name files.
  if (job.detail.empty()) info.reason_detail = wait_sentence(job);
  return info;
}

show::Picture Views::picture() {
  const MonoTime now = state_.clock.mono();
  if (state_.jobs.size() < kLongQueue || now - foretold_ >= kForetell) {
    foretold_ = now;
    forecast_.look_ahead();
  }
  show::Picture picture;
  picture.cluster = cluster_info();
  std::vector<const Job*> waiting;
  for (const auto& [id, job] : state_.jobs) {
    auto& counts = picture.users[job.owner.user];
    if (core::is_active(job.state)) {
      ++counts.first;
      ++picture.running_count;
      if (picture.running.size() < show::kMostRunning) picture.running.push_back(seen_by_all(job));
      continue;
    }
    const std::int64_t jobs = elements(job);
    counts.second += jobs;
    picture.waiting_count += jobs;
    if (job.start && (!picture.next_ms || job.start->ms() < *picture.next_ms)) {
      picture.next_ms = std::max(job.start->ms(), state_.clock.wall().ms());
    }
    waiting.push_back(&job);
  }
  // What nothing is foretold of comes after what is, and what is held last of all.
  const auto rank = [](const Job* job) {
    return std::tuple(job->hold != Hold::none, job->start ? job->start->ms() : INT64_MAX,
                      -job->priority, job->order(), job->id);
  };
  const std::size_t most = std::min(waiting.size(), show::kMostWaiting);
  std::ranges::partial_sort(waiting, waiting.begin() + static_cast<std::ptrdiff_t>(most), {}, rank);
  for (std::size_t i = 0; i < most; ++i) picture.waiting.push_back(seen_by_all(*waiting[i]));
  const auto& over = state_.tally->over;
  for (auto one = over.rbegin(); one != over.rend() && picture.over.size() < show::kMostOver;
       ++one) {
    api::JobInfo info;
    info.id = one->id.value();
    info.name = one->name;
    info.user = one->user;
    info.state = core::long_name(one->state);
    info.end_ms = one->end.ms();
    picture.over.push_back(std::move(info));
  }
  picture.shares = shares();
  return picture;
}

show::JobFigures Views::figures() const {
  show::JobFigures figures = state_.tally->figures;
  const auto add = [&](const std::string& partition, const std::string& user,
                       const std::string& account, const auto& note) {
    note(figures.all);
    note(figures.partitions[partition]);
    note(figures.users[user]);
    if (!account.empty()) note(figures.accounts[account]);
  };
  for (const auto& [id, job] : state_.jobs) {
    const std::int64_t jobs = core::is_active(job.state) ? 1 : elements(job);
    if (job.state == core::JobState::pending) figures.passes.waiting += jobs;
    add(job.partition, job.owner.user, job.spec.account,
        [&, &one = job](show::JobCounts& counts) { count(counts, one, jobs); });
    const core::Use* use = state_.ledger.find(id);
    if (use == nullptr || job.gpus.empty()) continue;
    figures.gpu_seconds[{job.owner.user, figures_account(state_, job)}] +=
        gpu_seconds(core::billed(state_.ledger.cluster(), *use), held_for(state_, job));
  }
  // As in slurmctld, what is over counts for as long as squeue can show it.
  const WallTime out_of_sight = state_.clock.wall() - state_.settings.min_job_age;
  for (const JobTally::Over& one : state_.tally->over) {
    if (one.end < out_of_sight) continue;
    add(one.partition, one.user, one.account, [&](show::JobCounts& counts) {
      ++counts.jobs;
      ++counts.states[std::string(core::long_name(one.state))];
    });
  }
  for (const Partition& partition : state_.settings.partitions) {
    (void)figures.partitions[partition.name];
  }
  return figures;
}

}  // namespace aliquot::engine
