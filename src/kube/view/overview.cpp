#include "kube/view/overview.hpp"

#include <fmt/ranges.h>

#include <algorithm>

#include "base/percent.hpp"
#include "base/size.hpp"

namespace aliquot::kube {
namespace {

using Picture = std::map<std::string, std::map<GpuId, ClusterState::GpuPicture>>;

std::string_view health_word(core::Health health) {
  return health == core::Health::ok ? "ok" : health == core::Health::lost ? "lost" : "draining";
}

const NodeGpu* find_gpu(const ClusterLook& look, const std::string& node, const GpuId& gpu) {
  for (const SeenNode& one : look.nodes) {
    if (one.facts.name != node || !one.facts.gpus) continue;
    const auto found = std::ranges::find(one.facts.gpus->gpus, gpu, &NodeGpu::uuid);
    if (found != one.facts.gpus->gpus.end()) return &*found;
  }
  return nullptr;
}

api::GpuInfo gpu_info(const NodeGpu& gpu, const NodeGpus& all,
                      const ClusterState::GpuPicture* picture, const NodeFigures* figures) {
  api::GpuInfo info;
  info.index = gpu.index;
  info.uuid = gpu.uuid.value();
  info.model = gpu.mig.empty() ? gpu.model : gpu.mig;
  info.health = health_word(gpu.health);
  info.memory = gpu.memory.value();
  info.compute_limit = all.over_commit.value();
  info.stale = true;
  if (picture != nullptr) {
    info.memory_granted = (picture->memory - picture->memory_free).value();
    info.compute_granted = (all.over_commit - picture->compute_free).value();
    info.whole = picture->whole;
  }
  if (figures != nullptr) {
    if (const auto found = figures->gpus.find(gpu.uuid); found != figures->gpus.end()) {
      info.stale = !found->second.utilisation;
      info.utilisation = found->second.utilisation.value_or(Compute(0)).value();
      info.memory_used = found->second.used.value_or(Bytes(0)).value();
    }
  }
  if (gpu.foreign > Bytes(0)) {
    info.processes.push_back({0, "", "", gpu.foreign.value(), std::nullopt});
  }
  return info;
}

void say_state(const SeenNode& node, api::NodeInfo& info) {
  const bool busy =
      std::ranges::any_of(info.gpus, [](const auto& gpu) { return gpu.memory_granted > 0; });
  if (!node.ready) {
    info.state = "down";
    info.reason = "its kubelet is not ready";
  } else if (!node.facts.trouble.empty()) {
    info.state = "down";
    info.reason = node.facts.trouble;
  } else if (node.cordoned) {
    info.state = busy ? "draining" : "drained";
    info.reason = "cordoned";
  } else {
    info.state = busy ? "mixed" : "idle";
  }
}

api::NodeInfo node_info(const ClusterLook& look, const SeenNode& node, const Picture& picture) {
  api::NodeInfo info;
  info.name = node.facts.name;
  info.cpus = node.facts.cpus.value() / kOneCpu.value();
  info.memory = node.facts.memory.value();
  const auto counted = picture.find(node.facts.name);
  const auto figures = look.figures.find(node.facts.name);
  if (node.facts.gpus) {
    for (const NodeGpu& gpu : node.facts.gpus->gpus) {
      const ClusterState::GpuPicture* one = nullptr;
      if (counted != picture.end()) {
        if (const auto found = counted->second.find(gpu.uuid); found != counted->second.end()) {
          one = &found->second;
        }
      }
      info.gpus.push_back(gpu_info(gpu, *node.facts.gpus, one,
                                   figures == look.figures.end() ? nullptr : &figures->second));
    }
  }
  say_state(node, info);
  return info;
}

void add_holds(const ClusterLook& look, const SeenPod& seen, api::JobInfo& job) {
  for (const auto& [container, parts] : seen.grant->containers) {
    for (const core::GrantedGpu& part : parts) {
      const NodeGpu* gpu = find_gpu(look, seen.grant->node, part.gpu);
      api::GpuHold hold;
      hold.index = gpu == nullptr ? 0 : gpu->index;
      hold.uuid = part.gpu.value();
      hold.model = gpu == nullptr ? "" : gpu->model;
      hold.memory = part.portion.memory.value();
      hold.compute = part.portion.compute.value();
      hold.whole = part.whole;
      hold.node = seen.grant->node;
      hold.container = container;
      job.gpus.push_back(std::move(hold));
    }
  }
}

// What its containers have used, and their memory as processes on their GPUs.
void add_figures(const ClusterLook& look, const SeenPod& seen, WallTime now, api::JobInfo& job,
                 std::vector<api::NodeInfo>& nodes) {
  const auto figures = look.figures.find(seen.pod.node);
  if (figures == look.figures.end()) return;
  for (const auto& [container, parts] : seen.grant->containers) {
    const auto found =
        figures->second.containers.find({seen.pod.id.space, seen.pod.id.name, container});
    if (found == figures->second.containers.end() || parts.empty()) continue;
    job.gpu_ms += found->second.gpu_time.value_or(Millis(0)).value();
    if (!found->second.used) continue;
    for (api::NodeInfo& node : nodes) {
      for (api::GpuInfo& gpu : node.gpus) {
        if (node.name != seen.pod.node || gpu.uuid != parts.front().gpu.value()) continue;
        gpu.processes.push_back(
            {0, seen.pod.id.space, container, found->second.used->value(), job.id});
      }
    }
  }
  const std::int64_t ran = seen.started ? (now - *seen.started).value() : 0;
  if (ran <= 0 || job.gpu_ms <= 0) return;
  job.gpu_utilisation = std::min<std::int64_t>(
      job.gpu_ms / static_cast<std::int64_t>(std::max<std::size_t>(1, job.gpus.size())) * 10'000 /
          ran,
      10'000);
}

std::string remark(const SeenPod& seen, const ClusterState::Holding& holding) {
  if (seen.waits()) return seen.message.empty() ? seen.reason : seen.message;
  if (holding.unknown) return "its node has not said yet which GPU it has";
  return fmt::format("{}", fmt::join(seen.troubles, "; "));
}

}  // namespace

std::string pod_state(const Pod& pod) {
  if (pod.phase == "Succeeded") return "COMPLETED";
  if (pod.phase == "Failed") return "FAILED";
  if (pod.node.empty()) return "PENDING";
  if (pod.terminating) return "COMPLETING";
  return pod.phase == "Running" ? "RUNNING" : "CONFIGURING";
}

std::string asked_text(const Asked& asked) {
  std::string text;
  for (const ContainerNeed& need : (asked.with_nvidia ? *asked.with_nvidia : asked.ours).needs) {
    if (!text.empty()) text += '+';
    if (need.whole()) {
      text += fmt::format("gpu:{}", need.gpus.count);
      continue;
    }
    const auto* amounts = std::get_if<core::Amounts>(&need.gpus.what);
    if (amounts == nullptr) continue;
    if (need.gpus.count > 1) text += fmt::format("{}x", need.gpus.count);
    if (amounts->memory) text += format_size(*amounts->memory);
    if (amounts->compute) text += (amounts->memory ? "," : "") + format_percent(*amounts->compute);
  }
  return text;
}

Result<api::Overview> overview_of(const ClusterLook& look, const Clock& clock) {
  const auto state = TRY(count_holdings(look, clock));
  const Picture picture = state->picture();
  api::Overview all;
  all.cluster.engine = "kubernetes";
  all.cluster.config["Namespace"] = look.name_space;
  if (!look.quota.empty()) all.cluster.config["PartialGpuLimit"] = look.quota;
  for (const std::string& gap : look.gaps) {
    auto& said = all.cluster.config["NotSeen"];
    said += (said.empty() ? "" : "\n") + gap;
  }
  for (const SeenNode& node : look.nodes) {
    all.cluster.nodes.push_back(node_info(look, node, picture));
  }
  std::int64_t number = 0;
  for (const SeenPod& seen : look.pods) {
    if (seen.pod.over()) continue;
    const auto holding = state->holding(seen.pod.id.uid);
    const auto asked = asked_of(look, *state, seen);
    if (asked && !asked->asks() && holding.gpus.empty()) continue;
    api::JobInfo job;
    job.id = ++number;
    job.pod = seen.label();
    job.name = seen.pod.id.name;
    job.user = seen.pod.id.space;
    job.batch = false;
    job.state = pod_state(seen.pod);
    job.reason = seen.reason.empty() ? "None" : seen.reason;
    job.reason_detail = asked ? remark(seen, holding) : asked.error().message;
    job.submit_ms = job.eligible_ms = seen.created.ms();
    if (seen.started) job.start_ms = seen.started->ms();
    job.node = seen.pod.node;
    job.gres = asked ? asked_text(*asked) : "";
    if (seen.grant && !holding.gpus.empty()) {
      add_holds(look, seen, job);
      add_figures(look, seen, clock.wall(), job, all.cluster.nodes);
    }
    for (api::NodeInfo& node : all.cluster.nodes) {
      if (node.name != holding.node) continue;
      for (api::GpuInfo& gpu : node.gpus) {
        if (holding.gpus.contains(GpuId(gpu.uuid))) gpu.jobs.push_back(job.id);
      }
    }
    all.jobs.push_back(std::move(job));
  }
  return all;
}

}  // namespace aliquot::kube
