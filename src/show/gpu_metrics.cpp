#include "show/gpu_metrics.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace aliquot::show {
namespace {

using Kind = Exposition::Kind;

double ratio(std::int64_t parts) { return static_cast<double>(parts) / 10'000; }
double thousandths(std::int64_t number) { return static_cast<double>(number) / 1'000; }
double whole(std::int64_t number) { return static_cast<double>(number); }

bool is_drained(const api::GpuInfo& gpu) { return gpu.health.starts_with("drain"); }
// Nothing is wrong with it; an administrator may have taken it out of service.
bool is_well(const api::GpuInfo& gpu) { return gpu.health == "ok" || is_drained(gpu); }

// A share with its labels.
struct Share {
  std::string index;
  const api::JobInfo* job;
  const api::GpuHold* hold;
  const api::GpuUse* use;
  std::string name;  // of the job: its id, or its pod's name
  std::string space = {};
  std::string pod = {};
  std::string container = {};
};

std::vector<Share> shares_on(const api::NodeInfo& node, const std::vector<api::JobInfo>& jobs) {
  std::vector<Share> shares;
  for (const api::JobInfo& job : jobs) {
    for (const api::GpuHold& hold : job.gpus) {
      const auto gpu = std::ranges::find(node.gpus, hold.uuid, &api::GpuInfo::uuid);
      if (gpu == node.gpus.end()) continue;
      Share share{std::to_string(gpu->index), &job, &hold, find_use(*gpu, job, hold),
                  job.pod.empty() ? std::to_string(job.id) : job.pod};
      if (const auto slash = job.pod.find('/'); slash != std::string::npos) {
        share.space = job.pod.substr(0, slash);
        share.pod = job.pod.substr(slash + 1);
        share.container = hold.container;
      }
      shares.push_back(std::move(share));
    }
  }
  return shares;
}

}  // namespace

std::int64_t foreign_memory(const api::GpuInfo& gpu) {
  std::int64_t sum = 0;
  for (const api::GpuProcess& process : gpu.processes) {
    if (!process.job_id) sum += process.memory;
  }
  return sum;
}

const api::GpuUse* find_use(const api::GpuInfo& gpu, const api::JobInfo& job,
                            const api::GpuHold& hold) {
  const auto found = std::ranges::find_if(gpu.uses, [&](const api::GpuUse& use) {
    return use.job_id == job.id && use.container == hold.container;
  });
  return found == gpu.uses.end() ? nullptr : &*found;
}

void write_gpus(Exposition& out, const api::NodeInfo& node) {
  // One family after the other, each with all GPUs; what is not known is no sample.
  const auto each = [&](std::string_view name, Kind kind, std::string_view help, auto value) {
    out.family(name, kind, help);
    for (const api::GpuInfo& gpu : node.gpus) {
      const std::optional<double> number = value(gpu);
      const std::string index = std::to_string(gpu.index);
      if (number) out.sample({{"gpu", index}, {"uuid", gpu.uuid}}, *number);
    }
  };
  const auto all = [&](std::string_view name, std::string_view help, auto value) {
    each(name, Kind::gauge, help,
         [&](const api::GpuInfo& gpu) -> std::optional<double> { return value(gpu); });
  };
  // What was sampled, as long as it is fresh.
  const auto seen = [&](std::string_view name, std::string_view help, auto value) {
    each(name, Kind::gauge, help, [&](const api::GpuInfo& gpu) -> std::optional<double> {
      if (gpu.stale) return std::nullopt;
      return value(gpu);
    });
  };
  out.family("aliquot_gpu_info", Kind::gauge, "Which GPUs there are; always 1.");
  for (const api::GpuInfo& gpu : node.gpus) {
    const std::string index = std::to_string(gpu.index);
    out.sample({{"gpu", index},
                {"uuid", gpu.uuid},
                {"model", gpu.model},
                {"driver", node.driver},
                {"mig_profile", gpu.mig}},
               1);
  }
  all("aliquot_gpu_healthy", "Whether the GPU works.",
      [](const api::GpuInfo& gpu) { return is_well(gpu) ? 1.0 : 0.0; });
  all("aliquot_gpu_drained", "Whether an administrator lets no new jobs on the GPU.",
      [](const api::GpuInfo& gpu) { return is_drained(gpu) ? 1.0 : 0.0; });
  all("aliquot_gpu_memory_total_bytes", "Memory that can be granted.",
      [](const api::GpuInfo& gpu) { return whole(gpu.memory); });
  all("aliquot_gpu_memory_allocated_bytes", "Memory that is granted to jobs.",
      [](const api::GpuInfo& gpu) { return whole(gpu.memory_granted); });
  seen("aliquot_gpu_memory_used_bytes", "Memory in use, as the driver says.",
       [](const api::GpuInfo& gpu) { return whole(gpu.memory_used); });
  seen("aliquot_gpu_memory_foreign_bytes", "Memory that processes of no job hold.",
       [](const api::GpuInfo& gpu) { return whole(foreign_memory(gpu)); });
  seen("aliquot_gpu_foreign_processes", "Processes of no job on the GPU.",
       [](const api::GpuInfo& gpu) {
         return whole(std::ranges::count_if(gpu.processes,
                                            [](const auto& process) { return !process.job_id; }));
       });
  all("aliquot_gpu_compute_allocated_ratio", "Compute that is granted to jobs, of the GPU's.",
      [](const api::GpuInfo& gpu) { return ratio(gpu.compute_granted); });
  all("aliquot_gpu_jobs", "Jobs that hold some of the GPU.",
      [](const api::GpuInfo& gpu) { return whole(std::ssize(gpu.jobs)); });
  seen("aliquot_gpu_utilization_ratio", "Time with a kernel running, as the driver says.",
       [](const api::GpuInfo& gpu) { return ratio(gpu.utilisation); });
  const auto told = [&](std::string_view name, Kind kind, std::string_view help, auto member) {
    each(name, kind, help, [&](const api::GpuInfo& gpu) -> std::optional<double> {
      if (!(gpu.*member) || gpu.stale) return std::nullopt;
      return whole(*(gpu.*member));
    });
  };
  each("aliquot_gpu_power_watts", Kind::gauge, "What the GPU draws.",
       [](const api::GpuInfo& gpu) -> std::optional<double> {
         if (!gpu.power_mw || gpu.stale) return std::nullopt;
         return thousandths(*gpu.power_mw);
       });
  told("aliquot_gpu_temperature_celsius", Kind::gauge, "How warm the GPU is.",
       &api::GpuInfo::temperature);
  each("aliquot_gpu_energy_joules_total", Kind::counter,
       "What the GPU has drawn since the driver was loaded, where the driver says.",
       [](const api::GpuInfo& gpu) -> std::optional<double> {
         if (!gpu.energy_mj) return std::nullopt;
         return thousandths(*gpu.energy_mj);
       });
}

void write_mps(Exposition& out, const api::NodeInfo& node) {
  out.single("aliquot_mps_server_restarts_total", Kind::counter,
             "MPS servers that died and were started again.", whole(node.mps_restarts));
}

void write_shares(Exposition& out, const api::NodeInfo& node, const std::vector<api::JobInfo>& jobs,
                  const Detail& detail) {
  const auto shares = shares_on(node, jobs);
  const auto each = [&](std::string_view name, Kind kind, std::string_view help, auto value) {
    out.family(name, kind, help);
    for (const Share& share : shares) {
      const std::optional<double> number = value(share);
      if (!number) continue;
      out.sample({{"gpu", share.index},
                  {"uuid", share.hold->uuid},
                  {"job", share.name},
                  {"user", detail.users ? std::string_view(share.job->user) : ""},
                  {"account", detail.users ? std::string_view(share.job->account) : ""},
                  {"namespace", share.space},
                  {"pod", share.pod},
                  {"container", share.container}},
                 *number);
    }
  };
  const auto used = [&](std::string_view name, Kind kind, std::string_view help, auto value) {
    each(name, kind, help, [&](const Share& share) -> std::optional<double> {
      if (share.use == nullptr) return std::nullopt;
      return value(*share.use);
    });
  };
  each("aliquot_share_memory_limit_bytes", Kind::gauge, "GPU memory that the job was granted.",
       [](const Share& share) -> std::optional<double> { return whole(share.hold->memory); });
  each("aliquot_share_compute_limit_ratio", Kind::gauge, "The job's part of the GPU's compute.",
       [](const Share& share) -> std::optional<double> { return ratio(share.hold->compute); });
  used("aliquot_share_memory_used_bytes", Kind::gauge, "GPU memory that the job holds now.",
       [](const api::GpuUse& use) { return whole(use.memory); });
  used("aliquot_share_memory_peak_bytes", Kind::gauge, "The most that it has held.",
       [](const api::GpuUse& use) { return whole(use.memory_peak); });
  used("aliquot_share_sm_utilization_ratio", Kind::gauge,
       "Time of the GPU that the job lately took, measured in the job.",
       [](const api::GpuUse& use) -> std::optional<double> {
         if (!use.utilisation) return std::nullopt;
         return ratio(*use.utilisation);
       });
  used("aliquot_share_gpu_seconds_total", Kind::counter,
       "GPU time that the job has taken, measured in the job.",
       [](const api::GpuUse& use) -> std::optional<double> {
         if (!use.gpu_ms) return std::nullopt;
         return thousandths(*use.gpu_ms);
       });
  used("aliquot_share_throttled_seconds_total", Kind::counter,
       "Time that the job was kept waiting, so that it had its share and no more.",
       [](const api::GpuUse& use) { return thousandths(use.waited_ms); });
  used("aliquot_share_oom_denied_total", Kind::counter,
       "Allocations that were refused because of the job's limit.",
       [](const api::GpuUse& use) { return whole(use.refusals); });
}

void write_build(Exposition& out, std::string_view program, std::string_view version) {
  out.family("aliquot_build_info", Kind::gauge, "Which program says this; always 1.");
  out.sample({{"program", program}, {"version", version}}, 1);
}

}  // namespace aliquot::show
