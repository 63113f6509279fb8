#include "slurm/agent/node_look.hpp"

#include <algorithm>
#include <utility>

#include "base/exposition.hpp"
#include "base/text.hpp"
#include "gpu/trouble.hpp"
#include "node/gpu_shown.hpp"
#include "node/job_grant.hpp"
#include "slurm/agent/step_parts.hpp"

namespace aliquot::slurm {
namespace {

// What a job does lately is what it did since the last look of these.
constexpr Millis kMeterEvery = seconds(1);

}  // namespace

void NodeLook::observe(std::optional<std::vector<node::GpuView>> views) {
  stale_ = !views;
  if (!views) return;
  views_ = std::move(*views);
  for (node::GpuView& view : views_) {
    // Whoever runs a process names it.
    for (node::GpuProcess& process : view.processes) process.command = make_plain(process.command);
  }
  const MonoTime now = parts_.clock.mono();
  if (metered_ != MonoTime() && now - metered_ < kMeterEvery) return;
  metered_ = now;
  uses_ = meter_.look(views_, parts_.enforcer.told(), now);
}

api::NodeInfo NodeLook::node() const {
  api::NodeInfo node;
  node.name = parts_.node.node;
  node.driver = parts_.driver;
  node.mps_restarts = parts_.enforcer.mps_restarts();
  node.reason = parts_.agent.keep_away();
  for (const gpu::Device& device : parts_.node.devices) {
    api::GpuInfo gpu;
    gpu.index = std::ssize(node.gpus);
    gpu.uuid = device.gpu.id.value();
    gpu.model = core::model_name(device.gpu);
    gpu.simulated = device.simulated;
    gpu.mig = device.gpu.mig_profile;
    gpu.health = "ok";
    gpu.memory = device.gpu.memory.value();
    gpu.compute_limit = parts_.node.share.most_compute().value();
    gpu.stale = true;
    for (const node::GpuView& view : views_) {
      if (view.sample.id != device.gpu.id) continue;
      gpu.stale = stale_;
      node::show_sample(view.sample, gpu);
      if (!view.sample.trouble.empty()) gpu.health = gpu::trouble_text(view.sample.trouble);
      for (const node::GpuProcess& process : view.processes) {
        const auto job = process.holder ? job_of_holder(*process.holder) : std::nullopt;
        gpu.processes.push_back({.pid = process.pid,
                                 .user = process.user,
                                 .command = process.command,
                                 .memory = process.memory.value(),
                                 .job_id = job ? std::optional(job->value()) : std::nullopt});
      }
    }
    node.gpus.push_back(std::move(gpu));
  }
  return node;
}

api::JobInfo NodeLook::job(const JobNote& note, api::NodeInfo& node) const {
  const core::Grant& grant = note.grant;
  api::JobInfo job;
  job.id = node::job_of(grant.holder).value_or(JobId()).value();
  job.name = note.name;
  job.user = parts_.names.of(grant.owner);
  job.uid = grant.owner.value();
  job.gid = grant.group.value();
  job.account = note.account;
  job.partition = note.partition;
  job.state = "RUNNING";
  job.restarts = grant.attempt;
  job.ntasks = grant.processes;
  job.node = node.name;
  job.enforcement = note.enforcement;
  if (note.start_s > 0) job.start_ms = job.submit_ms = note.start_s * 1'000;
  if (note.time_limit_s) {
    job.time_limit_ms = *note.time_limit_s * 1'000;
    if (job.start_ms) job.end_ms = *job.start_ms + *job.time_limit_ms;
  }
  for (const core::GrantedGpu& held : grant.gpus) {
    const auto gpu = std::ranges::find(node.gpus, held.gpu.value(), &api::GpuInfo::uuid);
    if (gpu == node.gpus.end()) continue;
    api::GpuHold hold{.index = gpu->index,
                      .uuid = gpu->uuid,
                      .model = gpu->model,
                      .memory = held.portion.memory.value(),
                      .compute = held.portion.compute.value(),
                      .whole = held.whole};
    if (held.whole) {
      hold.memory = gpu->memory;
      hold.compute = kWholeGpu.value();
    }
    gpu->jobs.push_back(job.id);
    gpu->memory_granted += hold.memory;
    gpu->compute_granted += hold.compute;
    gpu->whole = gpu->whole || held.whole;
    job.gpus.push_back(std::move(hold));
  }
  return job;
}

// Steps that have parts of their own are measured by themselves.
void NodeLook::add_uses(api::NodeInfo& node) const {
  for (const node::ShareUse& use : uses_) {
    const auto job = job_of_holder(use.job);
    const auto gpu = std::ranges::find(node.gpus, use.gpu.value(), &api::GpuInfo::uuid);
    if (!job || gpu == node.gpus.end()) continue;
    const api::GpuUse one = node::shown_use(use, job->value());
    const auto known = std::ranges::find(gpu->uses, one.job_id, &api::GpuUse::job_id);
    if (known == gpu->uses.end()) {
      gpu->uses.push_back(one);
      continue;
    }
    const auto sum = [](std::optional<std::int64_t>& to, std::optional<std::int64_t> more) {
      if (more) to = to.value_or(0) + *more;
    };
    known->memory += one.memory;
    known->memory_peak += one.memory_peak;
    known->waited_ms += one.waited_ms;
    known->refusals += one.refusals;
    sum(known->utilisation, one.utilisation);
    sum(known->gpu_ms, one.gpu_ms);
  }
}

api::Overview NodeLook::overview() const {
  api::Overview all;
  api::NodeInfo shown = node();
  for (const JobNote& note : parts_.agent.notes()) all.jobs.push_back(job(note, shown));
  add_uses(shown);
  shown.state = !shown.reason.empty() ? (all.jobs.empty() ? "drained" : "draining")
                : all.jobs.empty()    ? "idle"
                                      : "mixed";
  all.cluster.daemon_version = ALIQUOT_VERSION;
  all.cluster.engine = "slurm";
  all.cluster.cluster = shown.name;
  all.cluster.node = std::move(shown);
  return all;
}

std::string NodeLook::metrics(const show::Detail& detail) const {
  const api::Overview all = overview();
  Exposition out;
  show::write_build(out, "aliquot-agent", ALIQUOT_VERSION);
  show::write_gpus(out, all.cluster.node);
  show::write_mps(out, all.cluster.node);
  show::write_shares(out, all.cluster.node, all.jobs, detail);
  return out.take();
}

}  // namespace aliquot::slurm
