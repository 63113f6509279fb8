// What the agent says of itself to Prometheus: this node's GPUs and containers as the snapshot that
// all engines' figures are made of. A container is a job of its namespace's.
#include <algorithm>

#include "base/exposition.hpp"
#include "kube/node/agent.hpp"
#include "node/gpu_shown.hpp"
#include "show/gpu_metrics.hpp"

namespace aliquot::kube {
namespace {

std::string_view word_of(core::Health health) {
  return health == core::Health::ok ? "ok" : health == core::Health::lost ? "lost" : "draining";
}

void add_view(const node::GpuView& view, api::GpuInfo& gpu) {
  gpu.stale = false;
  node::show_sample(view.sample, gpu);
  for (const node::GpuProcess& process : view.processes) {
    if (process.holder) continue;
    gpu.processes.push_back({.pid = process.pid,
                             .user = process.user,
                             .command = process.command,
                             .memory = process.memory.value(),
                             .job_id = std::nullopt});
  }
}

api::NodeInfo node_of(const NodeGpus& gpus, const std::vector<node::GpuView>& views) {
  api::NodeInfo node;
  for (const NodeGpu& one : gpus.gpus) {
    api::GpuInfo gpu;
    gpu.index = one.index;
    gpu.uuid = one.uuid.value();
    gpu.model = one.model;
    gpu.mig = one.mig;
    gpu.health = word_of(one.health);
    gpu.memory = one.memory.value();
    gpu.stale = true;
    for (const node::GpuView& view : views) {
      if (view.sample.id == one.uuid) add_view(view, gpu);
    }
    node.gpus.push_back(std::move(gpu));
  }
  return node;
}

api::JobInfo job_of(const Allocation& allocation, std::int64_t number, api::NodeInfo& node) {
  api::JobInfo job;
  job.id = number;
  job.pod = allocation.pod.space + "/" + allocation.pod.name;
  job.user = allocation.pod.space;
  for (const core::GrantedGpu& part : allocation.grant.gpus) {
    const auto gpu = std::ranges::find(node.gpus, part.gpu.value(), &api::GpuInfo::uuid);
    if (gpu == node.gpus.end()) continue;
    gpu->jobs.push_back(number);
    gpu->memory_granted += part.whole ? gpu->memory : part.portion.memory.value();
    gpu->compute_granted += part.portion.compute.value();
    gpu->whole = gpu->whole || part.whole;
    job.gpus.push_back({.index = gpu->index,
                        .uuid = gpu->uuid,
                        .model = gpu->model,
                        .memory = part.portion.memory.value(),
                        .compute = part.portion.compute.value(),
                        .whole = part.whole,
                        .node = {},
                        .container = allocation.container});
  }
  return job;
}

}  // namespace

std::string Agent::write_metrics() {
  NodeGpus gpus;
  std::vector<node::GpuView> views;
  {
    const std::lock_guard lock(mutex_);
    gpus = gpus_;
    views = views_;
  }
  api::NodeInfo node = node_of(gpus, views);
  node.driver = parts_.devices.driver_version();
  node.mps_restarts = parts_.enforcer.mps_restarts();
  const auto uses = meter_.look(views, parts_.enforcer.told(), parts_.clock.mono());
  std::vector<api::JobInfo> jobs;
  for (const Allocation& allocation : allocations_->list()) {
    jobs.push_back(job_of(allocation, std::ssize(jobs) + 1, node));
    for (const node::ShareUse& use : uses) {
      if (use.job != allocation.grant.holder) continue;
      const auto gpu = std::ranges::find(node.gpus, use.gpu.value(), &api::GpuInfo::uuid);
      if (gpu == node.gpus.end()) continue;
      api::GpuUse shown = node::shown_use(use, jobs.back().id);
      shown.container = allocation.container;
      gpu->uses.push_back(std::move(shown));
    }
  }
  Exposition out;
  show::write_build(out, "aliquot-kube-node", ALIQUOT_VERSION);
  show::write_gpus(out, node);
  show::write_mps(out, node);
  show::write_shares(out, node, jobs, {});
  return out.take();
}

}  // namespace aliquot::kube
