#include "cli/view/top_text.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "base/slurm_time.hpp"
#include "base/table.hpp"
#include "base/timestamp.hpp"
#include "cli/view/job_text.hpp"

namespace aliquot::cli {
namespace {

using api::JobInfo;

const api::GpuInfo* gpu_of(const api::GpuHold& hold, const api::ClusterInfo& cluster) {
  for (const auto* node : nodes_of(cluster)) {
    if (!hold.node.empty() && hold.node != node->name) continue;
    for (const auto& gpu : node->gpus) {
      if (gpu.index == hold.index && (hold.uuid.empty() || gpu.uuid == hold.uuid)) return &gpu;
    }
  }
  return nullptr;
}

std::string top_line(const api::ClusterInfo& cluster, const api::NodeInfo& node, std::size_t width,
                     const api::GpuInfo& gpu, const JobsById& jobs, const Paint& paint) {
  const auto busy = busy_text(cluster, gpu);
  auto load = fmt::format("{} {:>4}", bar(busy == "?" ? 0 : gpu.utilisation, 10'000), busy);
  if (gpu.utilisation >= 9'000) load = paint.red(load);
  const auto used = busy == "?" ? std::string("?") : gib_text(gpu.memory_used);
  return fmt::format("  {}gpu{:<2} busy {}  granted {} {:>5}/{:<5} used {:>5}  {} {}{}\n",
                     cluster.nodes.empty() ? "" : fmt::format("{:<{}} ", node.name, width),
                     gpu.index, load, bar(gpu.memory_granted, gpu.memory),
                     gib_text(gpu.memory_granted), gib_text(gpu.memory), used, jobs_word(cluster),
                     jobs_on(gpu, jobs), gpu.whole ? " (whole)" : "");
}

std::string jobs_table(const api::Overview& overview, const Looking& looking) {
  struct Shown {
    const JobInfo* job;
    JobUse use;
  };
  std::vector<Shown> lines;
  for (const auto& job : overview.jobs) {
    if (is_active(job) && !job.gpus.empty()) lines.push_back({&job, use_of(job, overview.cluster)});
  }
  std::ranges::stable_sort(lines, [](const Shown& a, const Shown& b) {
    return a.use.utilisation.value_or(-1) > b.use.utilisation.value_or(-1);
  });
  const bool pods = overview.cluster.engine == "kubernetes";
  std::vector<Row> rows;
  std::size_t longest = 0;
  for (const auto& [job, use] : lines) {
    Row row{job_id_text(*job)};
    longest = std::max(longest, row.front().size());
    if (!pods) {
      row.push_back(job->user);
      row.push_back(job->name);
    }
    row.push_back(format_duration(time_used(*job, looking.now), TimeStyle::squeue));
    row.push_back(use.utilisation ? fmt::format("{}%", *use.utilisation / 100) : "-");
    row.push_back(use.memory ? gib_text(*use.memory) : "-");
    row.push_back(gpu_share_text(*job));
    rows.push_back(std::move(row));
  }
  std::vector<Column> columns;
  if (pods) {
    columns.push_back({"POD", std::max<std::size_t>(longest, 3)});
  } else {
    columns.push_back({"JOB", 12});
    columns.push_back({"USER", 10});
    columns.push_back({"NAME", 14});
  }
  columns.push_back({"TIME", 11, Align::right});
  columns.push_back({"BUSY", 5, Align::right});
  columns.push_back({"USED", 6, Align::right, "  "});
  columns.push_back({"SHARE", 0, Align::left, ""});
  return render_table(columns, rows, {.prefix = "  "});
}

}  // namespace

JobUse use_of(const JobInfo& job, const api::ClusterInfo& cluster) {
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

std::string format_top(const api::Overview& overview, const Looking& looking, const Paint& paint) {
  const auto& cluster = overview.cluster;
  std::int64_t running = 0;
  std::int64_t waiting = 0;
  for (const auto& job : overview.jobs) {
    if (is_active(job)) ++running;
    if (is_pending(job)) waiting += job_count(job);
  }
  auto out =
      fmt::format("{} · {} · {} running, {} waiting\n", format_timestamp(looking.now).substr(11),
                  usage_line(cluster, paint), running, waiting);
  const auto numbers = by_id(overview.jobs);
  std::size_t width = 0;
  for (const auto& node : cluster.nodes) width = std::max(width, node.name.size());
  for (const auto* node : nodes_of(cluster)) {
    for (const auto& gpu : node->gpus) out += top_line(cluster, *node, width, gpu, numbers, paint);
  }
  return out + "\n" + jobs_table(overview, looking) + unseen(cluster, paint);
}

std::string clip(std::string_view text, std::size_t lines, std::size_t columns) {
  std::string out;
  std::size_t line = 0;
  std::size_t column = 0;
  for (std::size_t i = 0; i < text.size() && line < lines; ++i) {
    const char c = text[i];
    if (c == '\x1b') {  // a colour: up to its `m`, wherever it stands
      const auto end = text.find('m', i);
      if (end == text.npos) break;
      out += text.substr(i, end - i + 1);
      i = end;
    } else if (c == '\n') {
      ++line;
      column = 0;
      out += c;
    } else {
      const bool goes_on = (static_cast<unsigned char>(c) & 0xc0U) == 0x80U;  // of a UTF-8 letter
      if (!goes_on) ++column;
      if (column <= columns) out += c;
    }
  }
  return out;
}

}  // namespace aliquot::cli
