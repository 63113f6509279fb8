#include "sim/shell_text.hpp"

#include <fmt/format.h>

#include "base/percent.hpp"
#include "base/size.hpp"

namespace aliquot::sim {
namespace {

// Without trailing zeros: `4`, `0.5`.
std::string format_thousandths(std::int64_t value) {
  auto text = fmt::format("{}.{:03}", value / 1000, value % 1000);
  text.erase(text.find_last_not_of('0') + 1);
  if (text.back() == '.') text.pop_back();
  return text;
}

std::string format_job_list(const std::vector<JobId>& jobs) {
  return fmt::format("{} {}", jobs.size() == 1 ? "job" : "jobs", fmt::join(jobs, ", "));
}

std::string format_gpu(const core::Ledger& ledger, core::NodeIndex node, core::GpuIndex index,
                       MonoTime now) {
  const auto& gpu = ledger.cluster().node(node).gpus[index];
  const auto& state = ledger.cluster().gpus(node)[index];
  auto text = fmt::format("  gpu{} {} {} {}", index, gpu.id, core::model_name(gpu),
                          format_size(gpu.memory));
  if (gpu.health == core::Health::draining) text += ", draining";
  if (gpu.health == core::Health::lost) text += ", lost";
  if (state.whole) {
    text += ", whole to ";
  } else {
    text += fmt::format(", {} and {} free", format_percent(state.compute_free),
                        format_size(state.memory_free));
    if (state.jobs > 0) text += ", ";
  }
  if (state.jobs > 0) text += format_job_list(ledger.jobs_on(node, index));
  if (state.sampled) {
    text += fmt::format(", {} busy, {} foreign, seen {} ago{}", format_percent(state.utilisation),
                        format_size(state.foreign_memory), format_length(now - state.taken),
                        state.stale ? " (stale)" : "");
  }
  return text + "\n";
}

}  // namespace

std::string format_length(Millis length) { return format_thousandths(length.value()) + "s"; }

std::string format_use(const core::Cluster& cluster, const core::Use& use) {
  std::string text = cluster.node(use.node).id.value();
  for (const auto& gpu : use.gpus) {
    text += gpu.whole ? fmt::format(" gpu{}=whole", gpu.gpu)
                      : fmt::format(" gpu{}={}/{}", gpu.gpu, format_percent(gpu.portion.compute),
                                    format_size(gpu.portion.memory));
  }
  if (use.cpus != CpuMilli(0)) text += " cpus=" + format_thousandths(use.cpus.value());
  if (use.memory != Bytes(0)) text += " memory=" + format_size(use.memory);
  return text;
}

std::string format_cluster(const core::Ledger& ledger, MonoTime now) {
  const auto& cluster = ledger.cluster();
  std::string text;
  for (core::NodeIndex node = 0; node < cluster.size(); ++node) {
    const auto& host = cluster.node(node);
    const auto& state = cluster.state(node);
    text += fmt::format("{}: {} of {} CPUs, {} of {} free, {} {}", host.id,
                        format_thousandths(state.cpus_free.value()),
                        format_thousandths(host.cpus.value()), format_size(state.memory_free),
                        format_size(host.memory), state.jobs, state.jobs == 1 ? "job" : "jobs");
    if (host.compute_limit != kWholeGpu) {
      text += fmt::format(", compute up to {}", format_percent(host.compute_limit));
    }
    text += '\n';
    for (core::GpuIndex gpu = 0; gpu < host.gpus.size(); ++gpu) {
      text += format_gpu(ledger, node, gpu, now);
    }
  }
  return text;
}

std::string format_jobs(const core::Ledger& ledger) {
  std::string text;
  for (const auto job : ledger.jobs()) {
    text += fmt::format("job {}: {}\n", job, format_use(ledger.cluster(), *ledger.find(job)));
  }
  return text;
}

}  // namespace aliquot::sim
