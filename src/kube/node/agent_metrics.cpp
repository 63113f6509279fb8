// What the agent says of itself in Prometheus' text format.
#include "kube/node/agent.hpp"

namespace aliquot::kube {
namespace {

std::string_view word_of(core::Health health) {
  return health == core::Health::ok ? "ok" : health == core::Health::lost ? "lost" : "draining";
}

// As a label's value.
std::string escaped(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '\\' || c == '"') out += '\\';
    out += c == '\n' ? ' ' : c;
  }
  return out;
}

std::string labels_of(const Allocation& allocation) {
  return fmt::format(
      "namespace=\"{}\",pod=\"{}\",container=\"{}\",gpu=\"{}\"", escaped(allocation.pod.space),
      escaped(allocation.pod.name), escaped(allocation.container),
      escaped(allocation.grant.gpus.empty() ? std::string()
                                            : allocation.grant.gpus.front().gpu.value()));
}

}  // namespace

std::string Agent::write_metrics() {
  std::string text;
  const auto family = [&](const char* name, const char* kind, const char* help) {
    text += fmt::format("# HELP {0} {1}\n# TYPE {0} {2}\n", name, help, kind);
  };
  NodeGpus gpus;
  std::vector<node::GpuView> views;
  {
    const std::lock_guard lock(mutex_);
    gpus = gpus_;
    views = views_;
  }
  family("aliquot_gpu_memory_bytes", "gauge", "memory that pods may use");
  for (const NodeGpu& gpu : gpus.gpus) {
    text += fmt::format("aliquot_gpu_memory_bytes{{gpu=\"{}\",model=\"{}\"}} {}\n", gpu.uuid,
                        escaped(gpu.model), gpu.memory);
  }
  family("aliquot_gpu_health", "gauge", "1 for the state that the GPU is in");
  for (const NodeGpu& gpu : gpus.gpus) {
    text += fmt::format("aliquot_gpu_health{{gpu=\"{}\",state=\"{}\"}} 1\n", gpu.uuid,
                        word_of(gpu.health));
  }
  family("aliquot_gpu_foreign_bytes", "gauge", "memory held by processes of no pod");
  for (const NodeGpu& gpu : gpus.gpus) {
    text += fmt::format("aliquot_gpu_foreign_bytes{{gpu=\"{}\"}} {}\n", gpu.uuid, gpu.foreign);
  }
  family("aliquot_gpu_memory_used_bytes", "gauge", "memory in use, as the driver says");
  for (const node::GpuView& view : views) {
    text += fmt::format("aliquot_gpu_memory_used_bytes{{gpu=\"{}\"}} {}\n", view.sample.id,
                        view.sample.memory_used);
  }
  family("aliquot_gpu_utilisation_ratio", "gauge",
         "time with a kernel running, as the driver says");
  for (const node::GpuView& view : views) {
    text += fmt::format("aliquot_gpu_utilisation_ratio{{gpu=\"{}\"}} {}\n", view.sample.id,
                        static_cast<double>(view.sample.utilisation.value()) / 10'000);
  }
  const auto held = allocations_->list();
  family("aliquot_container_memory_limit_bytes", "gauge", "what the container was granted");
  for (const Allocation& one : held) {
    Bytes limit(0);
    for (const core::GrantedGpu& gpu : one.grant.gpus) limit += gpu.portion.memory;
    text += fmt::format("aliquot_container_memory_limit_bytes{{{}}} {}\n", labels_of(one), limit);
  }
  family("aliquot_container_compute_ratio", "gauge", "its part of the GPU's compute");
  for (const Allocation& one : held) {
    Compute part(0);
    for (const core::GrantedGpu& gpu : one.grant.gpus) part += gpu.portion.compute;
    text += fmt::format("aliquot_container_compute_ratio{{{}}} {}\n", labels_of(one),
                        static_cast<double>(part.value()) / 10'000);
  }
  family("aliquot_container_memory_used_bytes", "gauge", "what its processes say that they hold");
  for (const Allocation& one : held) {
    if (one.resource.kind == Kind::whole) continue;
    text += fmt::format("aliquot_container_memory_used_bytes{{{}}} {}\n", labels_of(one),
                        parts_.enforcer.in_use(one.grant.holder));
  }
  family("aliquot_container_gpu_seconds_total", "counter", "GPU time, measured by the library");
  for (const Allocation& one : held) {
    const auto measured = parts_.enforcer.measure(one.grant.holder);
    if (!measured) continue;
    text += fmt::format("aliquot_container_gpu_seconds_total{{{}}} {}\n", labels_of(one),
                        static_cast<double>(measured->gpu_time.value()) / 1'000);
  }
  return text;
}

}  // namespace aliquot::kube
