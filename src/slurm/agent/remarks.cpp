#include "slurm/agent/remarks.hpp"

#include <spdlog/spdlog.h>

#include <algorithm>

#include "slurm/job_state.hpp"

namespace aliquot::slurm {
namespace {

constexpr Millis kPause = seconds(10);
// A step waits for its share behind one note of what a job has used. That is nothing where
// slurmctld is merely busy; where one takes longer than this, notes may take a fifth of our time.
constexpr Millis kQuick = Millis(500);
constexpr std::int64_t kFiguresPause = 4;
constexpr std::size_t kMostUnwritten = 1'000;
constexpr int kTries = 4;

}  // namespace

void Remarks::no_answer() { ask_after_ = clock_.mono() + kPause; }

template <class Change>
Result<void> Remarks::write(JobId id, Change change) {
  // Agents of other nodes write to it as well, and may have read it before we wrote.
  for (int tries = 0; tries < kTries; ++tries) {
    const SlurmJob job = TRY(slurm_.job(id));
    const std::string text = change(job.admin_comment);
    if (text == job.admin_comment) return {};
    auto written = slurm_.set_admin_comment(id, text);
    // Slurm may change nothing of it any more: there is no later.
    if (!written && !is_on_its_nodes(job.state)) return {};
    if (!written || job.details.size() < 2) return written;
  }
  return {};
}

void Remarks::tell(JobId id, Remark remark) {
  const bool fresh = untold_.insert({id, remark}).second;
  catch_up();
  if (fresh && untold_.contains({id, remark})) {
    spdlog::warn("job {}: this is noted in its comment when slurmctld takes it", id);
  }
}

void Remarks::catch_up() {
  while (!untold_.empty() && clock_.mono() >= ask_after_) {
    // The one after the last that was tried: slurmctld may not take it, and takes others.
    auto next = untold_.upper_bound(tried_);
    if (next == untold_.end()) next = untold_.begin();
    tried_ = *next;
    const auto [id, remark] = tried_;
    const auto written = write(id, [&, what = remark](const std::string& comment) {
      return add_remark(comment, what, node_);
    });
    if (!written && written.error().code == Error::Code::unavailable) return no_answer();
    untold_.erase({id, remark});
  }
}

void Remarks::tell_used(JobId id, const Used& used) {
  std::erase_if(unwritten_, [&](const auto& one) { return one.first == id; });
  unwritten_.emplace_back(id, used);
  if (unwritten_.size() > kMostUnwritten) unwritten_.pop_front();
}

bool Remarks::owes(JobId id) const {
  return std::ranges::find(unwritten_, id, &std::pair<JobId, Used>::first) != unwritten_.end();
}

bool Remarks::note_use() {
  if (unwritten_.empty()) return false;
  const auto [id, used] = unwritten_.front();
  unwritten_.pop_front();
  write_use(id, used);
  return !unwritten_.empty();
}

void Remarks::write_use(JobId id, const Used& used) {
  const MonoTime begin = clock_.mono();
  if (begin < ask_after_ || begin < figures_after_) return;
  const auto written =
      write(id, [&](const std::string& comment) { return set_used(comment, node_, used); });
  const MonoTime done = clock_.mono();
  if (done - begin > kQuick) figures_after_ = done + (done - begin) * kFiguresPause;
  if (written) return;
  if (written.error().code == Error::Code::unavailable) no_answer();
  spdlog::info("job {}: what it used is not in its comment: {}", id, written.error().message);
}

}  // namespace aliquot::slurm
