// The agent's part in claims: the driver, what it asks the API server, and the ResourceSlices.
#include <spdlog/spdlog.h>

#include <boost/json.hpp>
#include <utility>

#include "kube/node/agent.hpp"

namespace aliquot::kube {

void Agent::open_driver() {
  const PodReader& reader = options_.reader;
  driver_ = std::make_unique<Driver>(
      Driver::Parts{.domain = reader.names.domain,
                    .node = reader.node,
                    .cdi = options_.cdi,
                    .view = view_settings(),
                    .over_commit = options_.over_commit,
                    .kubelet = *kubelet_,
                    .pods = pods_,
                    .allocations = *allocations_,
                    .clock = parts_.clock,
                    .fetch = [this](const ClaimName& name) { return fetch_claim(name); },
                    .fetch_pod = [this](const std::string& space,
                                        const std::string& name) { return fetch(space, name); }});
  driver_server_ = std::make_unique<DriverServer>(*driver_, reader.names.domain, options_.kubelet);
  slices_ = std::make_unique<SlicePublisher>(parts_.context, parts_.api, parts_.clock,
                                             reader.names.domain, reader.node);
}

Result<Claim> Agent::fetch_claim(const ClaimName& name) {
  const auto object =
      TRY(get(object_path("apis/resource.k8s.io/v1", name.space, "resourceclaims", name.name)));
  return read_claim(object, options_.reader.names.domain);
}

void Agent::publish_slices() {
  if (!slices_ || node_uid_.empty()) return;
  std::vector<SliceGpu> gpus;
  {
    const std::lock_guard lock(mutex_);
    for (const gpu::Device& device : parts_.gpus) {
      SliceGpu gpu{.device = device, .health = device.gpu.health};
      for (const NodeGpu& known : gpus_.gpus) {
        if (known.uuid != device.gpu.id) continue;
        gpu.health = known.health;
        gpu.foreign = known.foreign;
      }
      gpus.push_back(std::move(gpu));
    }
  }
  for (const Allocation& allocation : allocations_->list()) {
    for (const core::GrantedGpu& part : allocation.grant.gpus) {
      for (SliceGpu& gpu : gpus) {
        if (gpu.device.gpu.id != part.gpu) continue;
        if (allocation.claim) {
          gpu.held.push_back(part);
        } else {
          gpu.resource = true;
        }
      }
    }
  }
  if (gpus != sliced_ || node_uid_ != sliced_for_) {
    sliced_ = gpus;
    sliced_for_ = node_uid_;
    slices_->want(slice_specs(gpus, {.domain = options_.reader.names.domain,
                                     .node = options_.reader.node,
                                     .over_commit = options_.over_commit,
                                     .policy = options_.policy}),
                  node_uid_);
  } else {
    slices_->step();
  }
  const std::string trouble = slices_->trouble();
  if (std::exchange(slice_trouble_, trouble) != trouble && !trouble.empty()) {
    spdlog::warn("{}", trouble);
  }
}

}  // namespace aliquot::kube
