#include "cli/view/overview_text.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "base/counted.hpp"
#include "base/slurm_time.hpp"
#include "base/table.hpp"
#include "base/text.hpp"
#include "base/timestamp.hpp"
#include "cli/view/job_text.hpp"
#include "cli/view/node_text.hpp"

namespace aliquot::cli {
namespace {

using api::JobInfo;

constexpr std::size_t kMostRows = 12;  // one screen, with what is around them
constexpr std::size_t kMostGpus = 16;  // up to so many have a line each; else each node has one

std::size_t gpu_total(const api::ClusterInfo& cluster) {
  std::size_t total = 0;
  for (const auto* node : nodes_of(cluster)) total += node->gpus.size();
  return total;
}

bool node_takes_jobs(const api::NodeInfo& node) {
  return node.state != "down" && !node_is_drained(node);
}

// Nobody says that it is well: no new job comes onto it.
bool gpu_is_away(const api::GpuInfo& gpu) { return !gpu.health.empty() && gpu.health != "ok"; }

// All its GPUs are free, and jobs can be placed on it.
bool node_is_free(const api::NodeInfo& node) {
  return node_takes_jobs(node) && !node.gpus.empty() &&
         std::ranges::none_of(node.gpus, [](const api::GpuInfo& gpu) {
           return gpu_in_use(gpu) || gpu_is_away(gpu);
         });
}

std::string models_text(const api::ClusterInfo& cluster) {
  std::map<std::string, int> models;
  bool simulated = cluster.simulated;
  for (const auto* node : nodes_of(cluster)) {
    for (const auto& gpu : node->gpus) {
      ++models[gpu.model];
      simulated = simulated || gpu.simulated;
    }
  }
  std::string text;
  for (const auto& [model, count] : models) {
    text += fmt::format("{}{} x {}", text.empty() ? "" : ", ", count, model);
  }
  if (simulated) text += " (simulated)";
  return text;
}

std::int64_t held(const JobInfo& job) {
  std::int64_t compute = 0;
  for (const auto& gpu : job.gpus) compute += gpu.whole ? 10'000 : gpu.compute;
  return compute;
}

bool is_of_kubernetes(const api::ClusterInfo& cluster) { return cluster.engine == "kubernetes"; }

std::string config_of(const api::ClusterInfo& cluster, const std::string& key) {
  const auto found = cluster.config.find(key);
  return found == cluster.config.end() ? std::string() : found->second;
}

// Pods have no users: those of the caller's namespace are the caller's, of all where none is meant.
bool is_mine(const api::ClusterInfo& cluster, const JobInfo& job, const Looking& looking) {
  if (!is_of_kubernetes(cluster)) return job.uid == looking.uid;
  const auto space = config_of(cluster, "Namespace");
  return space.empty() || job.user == space;
}

// Who is meant by that.
std::string my_name(const api::ClusterInfo& cluster, const Looking& looking) {
  if (!is_of_kubernetes(cluster)) return looking.user;
  const auto space = config_of(cluster, "Namespace");
  return space.empty() ? std::string("all namespaces") : "namespace " + space;
}

struct Count {
  std::int64_t running = 0;
  std::int64_t waiting = 0;
  std::int64_t gpus = 0;  // 1/10,000
};

Count count_jobs(const api::ClusterInfo& cluster, const std::vector<JobInfo>& jobs,
                 const Looking& looking, bool mine) {
  Count count;
  for (const auto& job : jobs) {
    if (is_mine(cluster, job, looking) != mine) continue;
    if (is_active(job)) {
      ++count.running;
      count.gpus += held(job);
    } else if (is_pending(job)) {
      count.waiting += job_count(job);
    }
  }
  return count;
}

std::string my_line(const api::ClusterInfo& cluster, const Count& count, const Looking& looking,
                    const Paint& paint) {
  // The limit that the administrator has set; without one, all GPUs of the machine.
  const auto limit = cluster.config.find("MaxGpusPerUser");
  const auto counts = cluster.config.find("GpusCountedPerUser");  // as the limit counts them
  const auto partial = cluster.config.find("PartialGpuLimit");
  const auto using_text =
      limit != cluster.config.end()
          ? fmt::format("using {}/{} GPUs allowed",
                        counts == cluster.config.end() ? gpu_count(count.gpus) : counts->second,
                        limit->second)
          : fmt::format("using {} of {} ({})", gpu_count(count.gpus),
                        counted(gpu_total(cluster), "GPU"),
                        partial == cluster.config.end() ? "no limit" : partial->second);
  return fmt::format("{}: {} · {} running, {} waiting\n", my_name(cluster, looking),
                     paint.bold(using_text), count.running, count.waiting);
}

// When a job ends, or why it does not run.
std::string until_or_why(const JobInfo& job) {
  const auto& detail = job.reason_detail;
  if (!is_active(job)) {
    const auto& why = detail.empty() ? job.reason : detail;
    if (!is_pending(job) || !job.start_ms) return why;
    return fmt::format("expected {}; {}", format_timestamp(WallTime(*job.start_ms)), why);
  }
  if (!job.pod.empty()) return detail;  // nobody ends a pod at a time
  auto until =
      job.time_limit_ms
          ? "ends by " +
                format_timestamp(WallTime(job.end_ms.value_or(*job.start_ms + *job.time_limit_ms)))
          : "no time limit";
  if (!detail.empty()) until += "; " + detail;
  return until;
}

std::string my_jobs(const api::ClusterInfo& cluster, const std::vector<JobInfo>& jobs,
                    const Looking& looking) {
  std::vector<const JobInfo*> mine;
  for (const auto& job : jobs) {
    if (is_mine(cluster, job, looking) && !is_finished(job)) mine.push_back(&job);
  }
  if (mine.empty()) return "";
  std::ranges::sort(mine, [](const JobInfo* a, const JobInfo* b) {
    if (is_active(*a) != is_active(*b)) return is_active(*a);
    return a->id < b->id;
  });
  const bool pods = is_of_kubernetes(cluster);
  std::vector<Row> rows;
  std::size_t longest = 0;
  for (const auto* job : mine) {
    if (rows.size() == kMostRows) break;
    const auto gpus = is_active(*job) ? gpu_share_text(*job) : job->gres;
    Row row{job_id_text(*job)};
    longest = std::max(longest, row.front().size());
    if (!pods) row.push_back(job->name);
    row.push_back(job->state);
    row.push_back(format_duration(time_used(*job, looking.now), TimeStyle::squeue));
    row.push_back(gpus);
    row.push_back(until_or_why(*job));
    rows.push_back(std::move(row));
  }
  std::vector<Column> columns;
  if (pods) {
    columns.push_back({"POD", std::max<std::size_t>(longest, 3)});
  } else {
    columns.push_back({"JOB", 12});
    columns.push_back({"NAME", 14});
  }
  columns.push_back({"STATE", pods ? 11U : 10U});
  columns.push_back({"TIME", 10, Align::right, "  "});
  columns.push_back({"GPUS", 24});
  columns.push_back({pods ? "WHY" : "UNTIL / WHY", 0, Align::left, ""});
  auto text = render_table(columns, rows, {.prefix = "  "});
  if (mine.size() > rows.size()) {
    text += fmt::format("  … and {} more: {}\n", mine.size() - rows.size(),
                        pods ? "kubectl get pods" : "squeue --me");
  }
  return text;
}

std::string gpu_line(const api::ClusterInfo& cluster, const api::NodeInfo& node, std::size_t width,
                     const api::GpuInfo& gpu, const JobsById& jobs, const Paint& paint) {
  const bool foreign = std::ranges::any_of(
      gpu.processes, [](const api::GpuProcess& process) { return !process.job_id; });
  // What the whole node is stands above its GPUs.
  const bool unfit = !gpu.health.empty() && gpu.health != "ok" && gpu.health != node.state;
  return fmt::format(
      "  {}gpu{:<2} {} {:>5}/{:<5} {:>5} busy  {} {}{}{}{}\n",
      cluster.nodes.empty() ? "" : fmt::format("{:<{}} ", node.name, width), gpu.index,
      bar(gpu.memory_granted, gpu.memory), gib_text(gpu.memory_granted), gib_text(gpu.memory),
      busy_text(cluster, gpu), jobs_word(cluster), jobs_on(gpu, jobs), gpu.whole ? " (whole)" : "",
      foreign ? paint.yellow(is_of_kubernetes(cluster) ? "  + processes of no pod"
                                                       : "  + processes outside the queue")
              : "",
      unfit ? paint.red("  " + gpu.health) : "");
}

std::string gpu_row(const api::ClusterInfo& cluster, const api::GpuInfo& gpu, const JobsById& jobs,
                    const Paint& paint) {
  const auto memory = fmt::format("{} {}/{}", bar(gpu.memory_granted, gpu.memory),
                                  gib_text(gpu.memory_granted), gib_text(gpu.memory));
  const auto compute = fmt::format("{} {}/{}%", bar(gpu.compute_granted, gpu.compute_limit),
                                   gpu.compute_granted / 100, gpu.compute_limit / 100);
  return fmt::format(
      "{:<5} {:<18} {:<24} {:<24} {:>5}  {}{}{}\n", gpu.index,
      gpu.model + (gpu.simulated ? " (simulated)" : ""), memory, compute, busy_text(cluster, gpu),
      jobs_on(gpu, jobs), gpu.whole ? " (whole)" : "",
      gpu.health.empty() || gpu.health == "ok" ? "" : paint.red(fmt::format(" {}", gpu.health)));
}

// What the job has of this one.
std::string holds_on(const JobInfo& job, const std::string& node, const api::GpuInfo& gpu,
                     const Paint& paint) {
  std::string out;
  for (const auto& hold : job.gpus) {
    if (hold.index != gpu.index || (!hold.node.empty() && hold.node != node)) continue;
    const auto who = job.pod.empty()
                         ? fmt::format("job {} {} {}", job_id_text(job), job.user, job.name)
                         : fmt::format("pod {} {}", job.pod, hold.container);
    out +=
        paint.dim(fmt::format("      {}: {}", who,
                              hold.whole ? std::string("the whole GPU")
                                         : fmt::format("{}, {}% of compute", gib_text(hold.memory),
                                                       gpu_count(hold.compute * 100)))) +
        "\n";
  }
  return out;
}

// Its GPUs in one line.
std::string node_line(const api::ClusterInfo& cluster, const api::NodeInfo& node,
                      std::size_t width) {
  api::GpuInfo sum;
  sum.stale = true;
  std::int64_t known = 0;
  std::size_t jobs = 0;
  for (const auto& gpu : node.gpus) {
    sum.memory += gpu.memory;
    sum.memory_granted += gpu.memory_granted;
    jobs += gpu.jobs.size();
    if (gpu.stale) continue;
    ++known;
    sum.utilisation += gpu.utilisation;
  }
  if (known > 0) {
    sum.stale = false;
    sum.utilisation /= known;
  }
  return fmt::format("  {:<{}} {} {:>5}/{:<5} {:>5} busy  {}/{} GPUs in use, {}\n", node.name,
                     width, bar(sum.memory_granted, sum.memory), gib_text(sum.memory_granted),
                     gib_text(sum.memory), busy_text(cluster, sum),
                     std::ranges::count_if(node.gpus, gpu_in_use), node.gpus.size(),
                     counted(jobs, "job"));
}

}  // namespace

std::string gib_text(std::int64_t bytes) {
  constexpr std::int64_t kGib = 1'073'741'824;
  if (bytes == 0) return "0";
  if (bytes < kGib) return fmt::format("{}M", bytes / 1'048'576);
  // Never more than there is: whoever asks for what is shown gets it.
  const auto tenths = bytes < 10 * kGib ? bytes * 10 / kGib % 10 : 0;
  return tenths == 0 ? fmt::format("{}G", bytes / kGib)
                     : fmt::format("{}.{}G", bytes / kGib, tenths);
}

std::string unseen(const api::ClusterInfo& cluster, const Paint& paint) {
  const auto text = config_of(cluster, "NotSeen");
  std::string out;
  if (text.empty()) return out;
  for (const auto line : split(text, '\n')) out += paint.yellow(std::string(line)) + "\n";
  return out;
}

JobsById by_id(const std::vector<JobInfo>& jobs) {
  JobsById all;
  for (const auto& job : jobs) all[job.id] = &job;
  return all;
}

std::string_view jobs_word(const api::ClusterInfo& cluster) {
  return is_of_kubernetes(cluster) ? "pods" : "jobs";
}

std::string jobs_on(const api::GpuInfo& gpu, const JobsById& jobs) {
  constexpr std::size_t kMostNames = 3;
  std::string text;
  std::size_t names = 0;
  for (const auto id : gpu.jobs) {
    const auto found = jobs.find(id);
    const bool pod = found != jobs.end() && !found->second->pod.empty();
    if (pod && ++names > kMostNames) continue;
    text += (text.empty() ? "" : ",") + (pod ? found->second->pod : std::to_string(id));
  }
  if (names > kMostNames) text += fmt::format(",+{}", names - kMostNames);
  return text.empty() ? "-" : text;
}

std::vector<const api::NodeInfo*> nodes_of(const api::ClusterInfo& cluster) {
  if (cluster.nodes.empty()) return {&cluster.node};
  std::vector<const api::NodeInfo*> all;
  for (const auto& node : cluster.nodes) all.push_back(&node);
  return all;
}

std::string busy_text(const api::ClusterInfo& cluster, const api::GpuInfo& gpu) {
  // On one machine the daemon always has a figure, if only the last one.
  if (gpu.stale && !cluster.nodes.empty()) return "?";
  return fmt::format("{}%", gpu.utilisation / 100);
}

std::string usage_line(const api::ClusterInfo& cluster, const Paint& paint) {
  std::ptrdiff_t used = 0;
  std::ptrdiff_t away = 0;  // not in use, and nobody can have them
  for (const auto* node : nodes_of(cluster)) {
    const auto busy = std::ranges::count_if(node->gpus, gpu_in_use);
    used += busy;
    away += std::ranges::count_if(node->gpus, [&](const api::GpuInfo& gpu) {
      return !gpu_in_use(gpu) && (!node_takes_jobs(*node) || gpu_is_away(gpu));
    });
  }
  const auto total = static_cast<std::ptrdiff_t>(gpu_total(cluster));
  const auto free = total - used - away;
  auto line =
      fmt::format("{} · {}", paint.bold(fmt::format("GPUs {}/{} in use", used, total)),
                  free > 0 ? paint.green(fmt::format("{} free", free)) : paint.red("0 free"));
  if (away > 0) line += " · " + paint.yellow(fmt::format("{} down or drained", away));
  const auto models = total == 0 ? "no GPU" : models_text(cluster);
  if (cluster.nodes.empty()) return line + fmt::format(" · {} on {}", models, cluster.node.name);
  std::size_t with_gpus = 0;
  for (const auto& node : cluster.nodes) with_gpus += node.gpus.empty() ? 0U : 1U;
  return line + fmt::format(" · free nodes {}/{} · {} on {}",
                            std::ranges::count_if(cluster.nodes, node_is_free), with_gpus, models,
                            counted(with_gpus, "node"));
}

std::string bar(std::int64_t part, std::int64_t whole) {
  constexpr std::int64_t kWidth = 10;
  auto filled =
      whole <= 0 ? 0 : std::clamp<std::int64_t>((part * kWidth + whole / 2) / whole, 0, kWidth);
  if (part > 0 && filled == 0) filled = 1;  // a little is not shown as nothing
  return "[" + std::string(static_cast<std::size_t>(filled), '#') +
         std::string(static_cast<std::size_t>(kWidth - filled), '.') + "]";
}

std::string gpu_count(std::int64_t compute) {
  auto text = fmt::format("{}.{:02}", compute / 10'000, compute % 10'000 / 100);
  while (text.ends_with('0')) text.pop_back();
  if (text.ends_with('.')) text.pop_back();
  return text;
}

std::string format_status(const api::ClusterInfo& cluster, const std::vector<JobInfo>& jobs,
                          const Looking& looking, const Paint& paint) {
  // Who may see no nodes is told so below, and not that there are none.
  const bool seen = !is_of_kubernetes(cluster) || !cluster.nodes.empty();
  auto out = seen ? usage_line(cluster, paint) + "\n" : std::string();
  const auto numbers = by_id(jobs);
  const bool each = cluster.nodes.empty() || gpu_total(cluster) <= kMostGpus;
  std::size_t width = 0;
  for (const auto& node : cluster.nodes) width = std::max(width, node.name.size());
  for (const auto* node : nodes_of(cluster)) {
    if (!node_takes_jobs(*node)) {
      out +=
          paint.yellow(fmt::format("{}{}{}{}", cluster.nodes.empty() ? "" : node->name + " ",
                                   node->state, node->reason.empty() ? "" : ": ", node->reason)) +
          "\n";
    }
    if (each) {
      for (const auto& gpu : node->gpus)
        out += gpu_line(cluster, *node, width, gpu, numbers, paint);
    } else if (!node->gpus.empty()) {
      out += node_line(cluster, *node, width);
    }
  }
  out += my_line(cluster, count_jobs(cluster, jobs, looking, true), looking, paint);
  out += my_jobs(cluster, jobs, looking);
  const auto others = count_jobs(cluster, jobs, looking, false);
  if (others.running + others.waiting > 0) {
    out += paint.dim(fmt::format("others: using {} GPU{} · {} running, {} waiting",
                                 gpu_count(others.gpus), others.gpus == 10'000 ? "" : "s",
                                 others.running, others.waiting)) +
           "\n";
  }
  return out + unseen(cluster, paint);
}

std::string format_gpus(const api::ClusterInfo& cluster, const std::vector<JobInfo>& jobs,
                        const Paint& paint) {
  if (gpu_total(cluster) == 0) {
    if (is_of_kubernetes(cluster)) {
      const auto missing = unseen(cluster, paint);
      return missing.empty() ? "no GPU that Aliquot shares on this cluster\n" : missing;
    }
    return cluster.nodes.empty() ? "no GPU on this machine\n" : "no GPU on this cluster\n";
  }
  const auto numbers = by_id(jobs);
  std::size_t width = 4;
  for (const auto& node : cluster.nodes) width = std::max(width, node.name.size());
  const auto first = [&](std::string_view text) {
    return cluster.nodes.empty() ? std::string() : fmt::format("{:<{}} ", text, width);
  };
  std::string out =
      paint.bold(first("NODE") + fmt::format("{:<5} {:<18} {:<24} {:<24} {:>5}  {}", "GPU", "MODEL",
                                             "MEMORY", "COMPUTE", "BUSY",
                                             is_of_kubernetes(cluster) ? "PODS" : "JOBS")) +
      "\n";
  for (const auto* node : nodes_of(cluster)) {
    for (const auto& gpu : node->gpus) {
      out += first(node->name) + gpu_row(cluster, gpu, numbers, paint);
      for (const auto id : gpu.jobs) {
        if (const auto found = numbers.find(id); found != numbers.end()) {
          out += holds_on(*found->second, node->name, gpu, paint);
        }
      }
      for (const auto& process : gpu.processes) {
        if (process.job_id) continue;
        if (process.pid == 0) {
          out += paint.yellow("      processes of no pod: " + gib_text(process.memory)) + "\n";
          continue;
        }
        out += paint.yellow(fmt::format("      outside the queue: pid {} {} {} {}", process.pid,
                                        process.user, process.command, gib_text(process.memory))) +
               "\n";
      }
    }
  }
  return out + unseen(cluster, paint);
}

std::string format_why(const api::WhyInfo& why, std::string_view id, WallTime now,
                       const Paint& paint) {
  const auto who = !why.pod.empty() ? "pod " + why.pod
                   : id == "last"   ? fmt::format("job {}", why.job_id)
                                    : fmt::format("job {}", id);
  auto out = paint.bold(fmt::format("{} is {}", who, why.state));
  if (!why.reason.empty() && why.reason != "None") out += fmt::format(" ({})", why.reason);
  out += "\n";
  for (const auto& sentence : why.sentences) out += "  " + sentence + "\n";
  if (why.earliest_start_ms) {
    const WallTime start(*why.earliest_start_ms);
    out += fmt::format("  earliest start: {}", format_timestamp(start));
    if (start > now) out += fmt::format(", in {}", format_duration(start - now, TimeStyle::squeue));
    out += "\n";
  }
  return out;
}

}  // namespace aliquot::cli
