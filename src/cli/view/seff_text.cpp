#include "cli/view/seff_text.hpp"

#include <algorithm>
#include <array>

#include "base/percent.hpp"
#include "base/slurm_time.hpp"
#include "cli/view/job_text.hpp"

namespace aliquot::cli {
namespace {

std::string decimal_size(std::int64_t bytes) {
  constexpr std::array kUnits{"KB", "MB", "GB", "TB", "PB"};
  double value = static_cast<double>(bytes) / 1024;
  std::size_t unit = 0;
  while (value >= 1024 && unit + 1 < kUnits.size()) {
    value /= 1024;
    ++unit;
  }
  return fmt::format("{:.2f} {}", value, kUnits.at(unit));
}

double percent(std::int64_t part, std::int64_t whole) {
  return whole <= 0 ? 0 : 100.0 * static_cast<double>(part) / static_cast<double>(whole);
}

}  // namespace

std::string format_seff(const api::JobInfo& job, const std::string& cluster, WallTime now) {
  constexpr auto kStyle = TimeStyle::scontrol;
  const auto wall = time_used(job, now);
  const auto core_wall = wall * job.cpus;
  // A running job's own figures are filled in at its end; its steps have theirs already.
  auto cpu_ms = job.user_cpu_ms + job.system_cpu_ms;
  auto memory = job.max_rss;
  std::int64_t steps_cpu_ms = 0;
  for (const auto& step : job.steps) {
    steps_cpu_ms += step.user_cpu_ms + step.system_cpu_ms;
    memory = std::max(memory, step.max_rss);
  }
  cpu_ms = std::max(cpu_ms, steps_cpu_ms);

  auto out = fmt::format("Job ID: {}\n", job.id);
  if (job.array_task_id) out += fmt::format("Array Job ID: {}\n", job_id_text(job));
  out += fmt::format("Cluster: {}\nUser/Group: {}/{}\n", cluster, job.user, job.group);
  out += is_finished(job) ? fmt::format("State: {} (exit code {})\n", job.state,
                                        job.exit_signal != 0 ? job.exit_signal : job.exit_code)
                          : fmt::format("State: {}\n", job.state);
  out += job.cpus == 1 ? std::string("Cores: 1\n")
                       : fmt::format("Nodes: 1\nCores per node: {}\n", job.cpus);
  if (is_pending(job)) return out + "Efficiency not available for jobs in the PENDING state.\n";
  out += fmt::format("CPU Utilized: {}\n", format_duration(Millis(cpu_ms), kStyle));
  out += fmt::format("CPU Efficiency: {:.2f}% of {} core-walltime\n",
                     percent(cpu_ms, core_wall.value()), format_duration(core_wall, kStyle));
  out += fmt::format("Job Wall-clock time: {}\n", format_duration(wall, kStyle));
  out += fmt::format("Memory Utilized: {}\n", decimal_size(memory));
  if (job.memory > 0) {
    out += fmt::format("Memory Efficiency: {:.2f}% of {}\n", percent(memory, job.memory),
                       decimal_size(job.memory));
  }
  if (!job.gpus.empty()) {
    std::int64_t held = 0;
    for (const auto& gpu : job.gpus) held += gpu.memory;
    out += fmt::format("GPU Share: {}\n", gpu_share_text(job));
    out += fmt::format("GPU Time: {}\n", format_duration(Millis(job.gpu_ms), kStyle));
    out += fmt::format("GPU Utilization: {}\n", format_percent(Compute(job.gpu_utilisation)));
    out += fmt::format("GPU Memory Utilized: {}\n", decimal_size(job.gpu_memory_peak));
    out += fmt::format("GPU Memory Efficiency: {:.2f}% of {}\n", percent(job.gpu_memory_peak, held),
                       decimal_size(held));
  }
  if (is_active(job)) {
    out +=
        fmt::format("WARNING: Efficiency statistics may be misleading for {} jobs.\n", job.state);
  }
  return out;
}

}  // namespace aliquot::cli
