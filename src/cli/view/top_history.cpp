#include "cli/view/top_history.hpp"

#include <algorithm>
#include <string_view>

#include "cli/view/job_text.hpp"
#include "cli/view/overview_text.hpp"

namespace aliquot::cli {
namespace {

const api::GpuInfo* gpu_of(const api::GpuHold& hold, const api::ClusterInfo& cluster) {
  for (const auto* node : nodes_of(cluster)) {
    if (!hold.node.empty() && hold.node != node->name) continue;
    for (const auto& gpu : node->gpus) {
      if (gpu.index == hold.index && (hold.uuid.empty() || gpu.uuid == hold.uuid)) return &gpu;
    }
  }
  return nullptr;
}

std::int64_t cell_of(WallTime when) { return when.ms() / TopHistory::kCell.value(); }

}  // namespace

JobUse use_of(const api::JobInfo& job, const api::ClusterInfo& cluster) {
  JobUse use;
  if (job.gpus.empty()) return use;
  bool alone = true;
  std::int64_t utilisation = 0;
  std::int64_t memory = 0;
  for (const auto& hold : job.gpus) {
    const auto* gpu = gpu_of(hold, cluster);
    if (gpu == nullptr) return use;
    for (const auto& process : gpu->processes) {
      if (process.job_id == job.id) use.memory = use.memory.value_or(0) + process.memory;
    }
    // Where it is the only one, what the GPU does is what the job does.
    alone = alone && gpu->jobs.size() == 1 && !(gpu->stale && !cluster.nodes.empty());
    utilisation += gpu->utilisation;
    memory += gpu->memory_used;
  }
  if (job.gpu_utilisation > 0) use.utilisation = job.gpu_utilisation;
  if (alone) {
    use.utilisation = utilisation / static_cast<std::int64_t>(job.gpus.size());
    if (!use.memory) use.memory = memory;
  }
  return use;
}

void TopHistory::add(const api::Overview& overview, WallTime now) {
  const auto note = [now](Line& line, std::optional<std::int64_t> busy) {
    line.push_back({now, busy});
    while (cell_of(line.front().when) + static_cast<std::int64_t>(kCells) < cell_of(now)) {
      line.pop_front();
    }
  };
  for (const auto* node : nodes_of(overview.cluster)) {
    for (const auto& gpu : node->gpus) {
      const bool unknown = gpu.stale && !overview.cluster.nodes.empty();
      note(gpus_[{node->name, gpu.index}], unknown ? std::nullopt : std::optional(gpu.utilisation));
    }
  }
  std::map<std::int64_t, Line> jobs;
  std::map<std::int64_t, Spent> spent;
  for (const auto& job : overview.jobs) {
    if (!is_active(job) || job.gpus.empty()) continue;
    Spent& mine = spent[job.id] = {now, job.gpu_ms};
    const auto before = spent_.find(job.id);
    if (before != spent_.end() && before->second.gpu_ms > 0 &&
        job.gpu_ms >= before->second.gpu_ms) {
      const Millis passed = now - before->second.when;
      const std::int64_t whole = passed.value() * std::ssize(job.gpus);
      mine.busy = before->second.busy;
      if (whole > 0) {
        mine.busy =
            std::min<std::int64_t>((job.gpu_ms - before->second.gpu_ms) * 10'000 / whole, 10'000);
      }
    }
    jobs[job.id] = std::move(jobs_[job.id]);
    note(jobs[job.id], mine.busy ? mine.busy : use_of(job, overview.cluster).utilisation);
  }
  jobs_ = std::move(jobs);  // who is gone is forgotten
  spent_ = std::move(spent);
}

// The mean of what was seen in each; where nobody looked, what was seen last stands.
TopHistory::Cells TopHistory::cells(const Line* line, WallTime now) {
  Cells all = {};
  if (line == nullptr || line->empty()) return all;
  const std::int64_t first = cell_of(now) - static_cast<std::int64_t>(kCells) + 1;
  std::optional<std::int64_t> last;
  auto seen = line->begin();
  for (; seen != line->end() && cell_of(seen->when) < first; ++seen) last = seen->busy;
  for (std::size_t i = 0; i < kCells; ++i) {
    std::int64_t sum = 0;
    std::int64_t count = 0;
    bool looked = false;
    for (; seen != line->end() && cell_of(seen->when) == first + static_cast<std::int64_t>(i);
         ++seen) {
      looked = true;
      if (!seen->busy) continue;
      sum += *seen->busy;
      ++count;
    }
    if (looked) last = count > 0 ? std::optional(sum / count) : std::nullopt;
    all[i] = last;
  }
  return all;
}

TopHistory::Cells TopHistory::of_gpu(const std::string& node, std::int64_t index,
                                     WallTime now) const {
  const auto found = gpus_.find({node, index});
  return cells(found == gpus_.end() ? nullptr : &found->second, now);
}

TopHistory::Cells TopHistory::of_job(std::int64_t id, WallTime now) const {
  const auto found = jobs_.find(id);
  return cells(found == jobs_.end() ? nullptr : &found->second, now);
}

std::optional<std::int64_t> TopHistory::busy_of(std::int64_t id) const {
  const auto found = spent_.find(id);
  return found == spent_.end() ? std::nullopt : found->second.busy;
}

std::string sparkline(const TopHistory::Cells& cells) {
  constexpr std::array<std::string_view, 8> kHeights{"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
  std::string text;
  for (const auto& cell : cells) {
    if (!cell) {
      text += ' ';
      continue;
    }
    const auto height = std::clamp<std::int64_t>(*cell * 8 / 10'000, 0, 7);
    text += kHeights[static_cast<std::size_t>(height)];
  }
  return text;
}

bool was_idle(const TopHistory::Cells& cells) {
  const auto known =
      std::ranges::count_if(cells, [](const auto& cell) { return cell.has_value(); });
  return known * TopHistory::kCell.value() >= seconds(30).value() &&
         std::ranges::none_of(cells, [](const auto& cell) { return cell && *cell > 100; });
}

}  // namespace aliquot::cli
