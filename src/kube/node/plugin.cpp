#include "kube/node/plugin.hpp"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <utility>

#include "base/text.hpp"
#include "kube/model/node_gpus.hpp"

namespace aliquot::kube {
namespace {

// A pod that the kubelet turned away after it had allocated is never listed.
constexpr Millis kAdmission = seconds(30);
// A kubelet may go on listing a pod that has ended.
constexpr Millis kLinger = seconds(30);

std::string key_of(const NodePod& pod, const std::string& container) {
  return pod.pod.id.uid + "/" + container;
}

bool is_listed(const std::vector<ContainerDevices>& listed, const NodePod& pod,
               const std::string& container, const std::string& resource) {
  return std::ranges::any_of(listed, [&](const ContainerDevices& one) {
    return one.space == pod.pod.id.space && one.pod == pod.pod.id.name &&
           one.container == container && one.devices.contains(resource);
  });
}

bool has_devices(const std::vector<ContainerDevices>& listed, const NodePod& pod) {
  return std::ranges::any_of(listed, [&](const ContainerDevices& one) {
    return one.space == pod.pod.id.space && one.pod == pod.pod.id.name && !one.devices.empty();
  });
}

bool meet(const DeviceIds& one, const DeviceIds& other) {
  return std::ranges::any_of(
      one, [&](const std::string& id) { return std::ranges::binary_search(other, id); });
}

}  // namespace

Plugin::Plugin(Parts parts) : parts_(std::move(parts)) {
  const std::lock_guard lock(mutex_);
  recount();
}

const gpu::Device* Plugin::gpu_of(const GpuId& id) const {
  const auto found = std::ranges::find_if(parts_.view.gpus,
                                          [&](const gpu::Device& one) { return one.gpu.id == id; });
  return found == parts_.view.gpus.end() ? nullptr : &*found;
}

std::vector<PluginDevice> Plugin::devices(const Resource& resource) const {
  const std::lock_guard lock(mutex_);
  // Held by another name, or in the other way.
  std::set<std::string> others;
  std::set<GpuId> whole;
  std::set<GpuId> shared;
  for (const GpuId& gpu : claimed_) {
    whole.insert(gpu);
    shared.insert(gpu);
  }
  for (const Resource& other : parts_.resources) {
    const auto taken = taken_.find(other.name);
    if (taken == taken_.end()) continue;
    for (const std::string& id : taken->second) {
      const auto device = parse_device_id(id);
      if (!device) continue;
      (other.kind == Kind::whole ? whole : shared).insert(device->first);
      if (other.name != resource.name) others.insert(id);
    }
  }
  const auto own = taken_.find(resource.name);
  const auto& excluded = resource.kind == Kind::whole ? shared : whole;
  std::vector<PluginDevice> all;
  for (const gpu::Device& gpu : parts_.view.gpus) {
    const GpuId& uuid = gpu.gpu.id;
    const auto known = health_.find(uuid);
    const core::Health health = known == health_.end() ? gpu.gpu.health : known->second;
    const auto add = [&](std::string id) {
      const bool held = own != taken_.end() && own->second.contains(id);
      const bool free =
          health == core::Health::ok && !excluded.contains(uuid) && !others.contains(id);
      all.push_back({std::move(id), health != core::Health::lost && (held || free)});
    };
    if (resource.kind == Kind::whole) {
      add(uuid.value());
      continue;
    }
    const std::int64_t units = gpu.gpu.memory / parts_.view.unit;
    for (std::int64_t unit = 0; unit < units; ++unit) add(device_id(uuid, unit));
  }
  return all;
}

std::uint64_t Plugin::version() const {
  const std::lock_guard lock(mutex_);
  return version_;
}

void Plugin::on_change(std::function<void()> call) {
  const std::lock_guard lock(mutex_);
  on_change_ = std::move(call);
}

void Plugin::recount() {
  std::map<std::string, std::set<std::string>> taken;
  std::set<GpuId> claimed;
  for (const Resource& resource : parts_.resources) taken[resource.name];
  for (const ContainerDevices& container : listed_) {
    for (const auto& [resource, ids] : container.devices) {
      if (const auto ours = taken.find(resource); ours != taken.end()) {
        ours->second.insert(ids.begin(), ids.end());
      }
    }
  }
  for (const auto& [resource, handed] : handed_) {
    for (const auto& [digest, one] : handed) {
      taken[resource].insert(one.ids.begin(), one.ids.end());
    }
  }
  for (const Allocation& allocation : parts_.allocations.list()) {
    const auto ours = taken.find(allocation.resource.name);
    if (ours != taken.end()) ours->second.insert(allocation.ids.begin(), allocation.ids.end());
    if (!allocation.claim) continue;
    for (const core::GrantedGpu& gpu : allocation.grant.gpus) claimed.insert(gpu.gpu);
  }
  if (taken == taken_ && claimed == claimed_) return;
  taken_ = std::move(taken);
  claimed_ = std::move(claimed);
  ++version_;
}

void Plugin::set_health(const std::map<GpuId, core::Health>& health) {
  std::function<void()> call;
  {
    const std::lock_guard lock(mutex_);
    if (health == health_) return;
    health_ = health;
    ++version_;
    call = on_change_;
  }
  if (call) call();
}

void Plugin::note_listed(const std::vector<ContainerDevices>& listed) {
  const MonoTime now = parts_.clock.mono();
  std::function<void()> call;
  {
    const std::lock_guard lock(mutex_);
    listed_ = listed;
    for (auto& [resource, handed] : handed_) {
      std::erase_if(handed, [&, &name = resource](const auto& entry) {
        const Handed& one = entry.second;
        for (const ContainerDevices& container : listed) {
          const auto its = container.devices.find(name);
          if (its != container.devices.end() && meet(its->second, one.ids)) return true;
        }
        return now - one.since > kAdmission;
      });
    }
    const std::uint64_t before = version_;
    recount();
    if (version_ != before) call = on_change_;
  }
  if (call) call();
}

DeviceIds Plugin::preferred(const Resource& resource, const Wanted& wanted) {
  if (const auto listed = parts_.kubelet.list()) note_listed(*listed);
  // Else as far as we know.
  std::vector<std::pair<WallTime, Candidate>> waiting;
  std::map<GpuId, std::int64_t> promised;
  const std::lock_guard lock(mutex_);
  std::set<std::string> handed;
  for (const auto& [name, all] : handed_) {
    for (const auto& [digest, one] : all) {
      if (one.candidate) handed.insert(*one.candidate);
    }
  }
  for (const NodePodPtr& pod : parts_.pods.all()) {
    if (!pod->grant || pod->pod.over() || pod->pod.terminating) continue;
    for (const ContainerNeed& need : pod->request.needs) {
      const auto* granted = pod->granted(need.container);
      const std::string key = key_of(*pod, need.container);
      if (granted == nullptr || granted->empty() || handed.contains(key) ||
          is_listed(listed_, *pod, need.container, need.resource) ||
          parts_.allocations.find(holder_of(pod->pod.id, need.container))) {
        continue;
      }
      // Of init containers the kubelet says nothing. They get theirs before the pod's others.
      if (need.role == Role::init &&
          (started_.contains(pod->pod.id.uid) || has_devices(listed_, *pod))) {
        continue;
      }
      Candidate candidate{key, {}};
      for (const core::GrantedGpu& gpu : *granted) {
        candidate.gpus.push_back(gpu.gpu);
        promised[gpu.gpu] += need.whole() ? 1 : need.units;
      }
      const std::int64_t size = need.whole() ? need.gpus.count : need.units;
      if (need.resource == resource.name && size == static_cast<std::int64_t>(wanted.size)) {
        waiting.emplace_back(pod->grant->assumed, std::move(candidate));
      }
    }
  }
  std::ranges::stable_sort(waiting, {}, [](const auto& one) { return one.first; });
  std::vector<Candidate> candidates;
  for (auto& [assumed, candidate] : waiting) candidates.push_back(std::move(candidate));
  Offer offer = prefer(resource.kind, wanted, candidates, promised);
  if (offer.candidate) offered_[*offer.candidate] = offer.ids;
  return offer.ids;
}

ContainerView Plugin::allocate(const Resource& resource, const DeviceIds& ids) {
  const DeviceIds own = sorted(ids);
  std::function<void()> call;
  {
    const std::lock_guard lock(mutex_);
    Handed handed{own, parts_.clock.mono(), std::nullopt};
    for (auto offer = offered_.begin(); offer != offered_.end(); ++offer) {
      if (offer->second != own) continue;
      handed.candidate = offer->first;
      offered_.erase(offer);
      break;
    }
    handed_[resource.name].insert_or_assign(digest_of(own), std::move(handed));
    const std::uint64_t before = version_;
    recount();
    if (version_ != before) call = on_change_;
  }
  if (call) call();
  return view_of(parts_.view, resource, own);
}

NodePodPtr Plugin::find_pod(const std::string& space, const std::string& name) const {
  // Asked for anew: one of the same name may have taken the place of the one that we know.
  if (parts_.fetch) {
    if (auto fresh = parts_.fetch(space, name)) {
      return std::make_shared<const NodePod>(std::move(*fresh));
    }
  }
  return parts_.pods.find(space, name);
}

Result<Plugin::Found> Plugin::find_container(const Resource& resource, const DeviceIds& ids,
                                             const std::vector<ContainerDevices>& listed) const {
  const ContainerDevices* related = nullptr;  // what an init container held went on to it
  for (const ContainerDevices& container : listed) {
    const auto its = container.devices.find(resource.name);
    if (its == container.devices.end()) continue;
    if (its->second == ids) {
      related = &container;
      break;
    }
    if (meet(its->second, ids)) related = &container;
  }
  if (related != nullptr) {
    const NodePodPtr pod = find_pod(related->space, related->pod);
    if (pod == nullptr) {
      return fail(Error::Code::unavailable, "pod {}/{} is not known here yet", related->space,
                  related->pod);
    }
    const bool exact = related->devices.at(resource.name) == ids;
    if (const auto* init = find_init(*pod, resource, ids.size(), !exact)) {
      return Found{pod, init->container};
    }
    if (exact) return Found{pod, related->container};
    return fail(Error::Code::unavailable,
                "the kubelet does not say which container of pod {}/{} has these {} devices",
                related->space, related->pod, ids.size());
  }
  // An init container of a pod whose others ask for none: the kubelet does not name it. Its grant
  // does.
  const auto gpus = TRY(count_by_gpu(resource.kind, ids));
  for (const NodePodPtr& pod : parts_.pods.all()) {
    if (pod->pod.over()) continue;
    const auto* init = find_init(*pod, resource, ids.size(), true);
    const auto* granted = init == nullptr ? nullptr : pod->granted(init->container);
    if (granted == nullptr) continue;
    const auto held = parts_.allocations.find(holder_of(pod->pod.id, init->container));
    if (held && held->ids != ids) continue;
    const bool fits = std::ranges::all_of(
        *granted, [&](const core::GrantedGpu& gpu) { return gpus.contains(gpu.gpu); });
    if (fits) return Found{pod, init->container};
  }
  return fail(Error::Code::unavailable, "the kubelet does not say yet whose these {} devices are",
              ids.size());
}

const ContainerNeed* Plugin::find_init(const NodePod& pod, const Resource& resource,
                                       std::size_t size, bool again) const {
  const std::lock_guard lock(mutex_);
  const auto started = started_.find(pod.pod.id.uid);
  const ContainerNeed* before = nullptr;
  for (const ContainerNeed& need : pod.request.needs) {
    const std::int64_t asked = need.whole() ? need.gpus.count : need.units;
    if (need.role != Role::init || need.resource != resource.name ||
        asked != static_cast<std::int64_t>(size)) {
      continue;
    }
    const auto facts = pod.containers.find(need.container);
    if (facts != pod.containers.end() && facts->second.finished) continue;
    if (started == started_.end() || !started->second.contains(need.container)) return &need;
    before = &need;
  }
  return again ? before : nullptr;
}

core::Portion Plugin::portion_of(const NodePod& pod, const ContainerNeed* need,
                                 const std::string& container, const gpu::Device& gpu,
                                 std::int64_t units) const {
  core::Portion portion{parts_.view.unit * units, Compute(0)};
  const core::GpuUnits limits{.compute_limit = parts_.over_commit};
  const auto* granted = pod.granted(container);
  if (granted != nullptr && granted->size() == 1 && !granted->front().whole) {
    portion.compute = granted->front().portion.compute;
  } else if (need != nullptr && !need->whole()) {
    const auto meant = core::portion_of(need->gpus.what, gpu.gpu.memory, limits);
    if (meant) portion.compute = meant->compute;
  }
  if (portion.compute == Compute(0)) {
    const core::Amounts amounts{.memory = portion.memory, .compute = {}};
    const auto meant = core::portion_of(amounts, gpu.gpu.memory, limits);
    if (meant) portion.compute = meant->compute;
  }
  return portion;
}

Result<Allocation> Plugin::allocation_of(const Resource& resource, const DeviceIds& ids,
                                         const Found& found) const {
  const auto gpus = TRY(count_by_gpu(resource.kind, ids));
  const NodePod& pod = *found.pod;
  if (resource.kind == Kind::memory && gpus.size() != 1) {
    return fail(Error::Code::failed_state,
                "container {} of pod {}/{} got {} units of {} GPUs: a share is of one GPU; delete "
                "the pod, so that it is placed anew",
                found.container, pod.pod.id.space, pod.pod.id.name, ids.size(), gpus.size());
  }
  const ContainerNeed* need = pod.need(found.container);
  Allocation allocation{.pod = pod.pod.id,
                        .container = found.container,
                        .role = need == nullptr ? Role::app : need->role,
                        .resource = resource,
                        .ids = ids,
                        .grant = {}};
  core::Grant& grant = allocation.grant;
  grant.holder = holder_of(pod.pod.id, found.container);
  const auto facts = pod.containers.find(found.container);
  grant.owner = tenant_of(pod.pod.id, found.container,
                          facts == pod.containers.end() ? std::nullopt : facts->second.user);
  grant.group = Gid(65'534);
  grant.any_user = true;
  for (const auto& [id, units] : gpus) {
    const gpu::Device* gpu = gpu_of(id);
    if (gpu == nullptr) return fail(Error::Code::not_found, "GPU {} is not here any more", id);
    if (resource.kind == Kind::whole) {
      grant.gpus.push_back({id, {gpu->gpu.memory, kWholeGpu}, true});
    } else {
      grant.gpus.push_back({id, portion_of(pod, need, found.container, *gpu, units), false});
    }
  }
  return allocation;
}

Result<void> Plugin::pre_start(const Resource& resource, const DeviceIds& ids) {
  const DeviceIds own = sorted(ids);
  TRY(count_by_gpu(resource.kind, own));
  const auto listed = TRY(parts_.kubelet.list());
  note_listed(listed);
  const Found found = TRY(find_container(resource, own, listed));
  const Allocation allocation = TRY(allocation_of(resource, own, found));
  TRY(parts_.allocations.hold(allocation));
  spdlog::info("pod {}/{}, container {}: {} of GPU {}", allocation.pod.space, allocation.pod.name,
               allocation.container,
               resource.kind == Kind::whole
                   ? std::string("all")
                   : fmt::format("{} MiB", allocation.grant.gpus.front().portion.memory / mib(1)),
               allocation.grant.gpus.front().gpu);
  std::function<void()> call;
  {
    const std::lock_guard lock(mutex_);
    started_[allocation.pod.uid].insert(allocation.container);
    const std::uint64_t before = version_;
    recount();
    if (version_ != before) call = on_change_;
  }
  if (call) call();
  return {};
}

Truth Plugin::truth_of(const std::vector<ContainerDevices>& listed) const {
  Truth truth;
  for (const ContainerDevices& container : listed) {
    const NodePodPtr pod = parts_.pods.find(container.space, container.pod);
    if (pod == nullptr) continue;
    for (const Resource& resource : parts_.resources) {
      const auto its = container.devices.find(resource.name);
      if (its == container.devices.end()) continue;
      const auto meant = allocation_of(resource, its->second, {pod, container.container});
      if (meant) truth[pod->pod.id.uid][container.container] = meant->grant.gpus;
    }
  }
  return truth;
}

void Plugin::look() {
  const auto listed = parts_.kubelet.list();
  if (!listed) return;  // it is being started anew, perhaps
  note_listed(*listed);
  const bool synced = parts_.pods.synced();
  const MonoTime now = parts_.clock.mono();
  for (const Allocation& allocation : parts_.allocations.list()) {
    if (allocation.claim) continue;  // the driver's
    const NodePodPtr pod = parts_.pods.find(allocation.pod.space, allocation.pod.name);
    const bool gone = pod == nullptr || pod->pod.id.uid != allocation.pod.uid;
    const auto facts = gone ? std::map<std::string, ContainerFacts>::const_iterator()
                            : pod->containers.find(allocation.container);
    const bool done = !gone && allocation.role == Role::init && facts != pod->containers.end() &&
                      facts->second.finished;
    const HolderId& holder = allocation.grant.holder;
    if (!synced || (!gone && !done && !pod->pod.over())) {
      over_since_.erase(holder);
      continue;
    }
    const auto since = over_since_.try_emplace(holder, now).first->second;
    const bool held = std::ranges::any_of(*listed, [&](const ContainerDevices& one) {
      const auto its = one.devices.find(allocation.resource.name);
      return one.space == allocation.pod.space && one.pod == allocation.pod.name &&
             one.container == allocation.container && its != one.devices.end() &&
             meet(its->second, allocation.ids);
    });
    if (held && (gone || now - since < kLinger)) continue;
    spdlog::info("pod {}/{}, container {}: over", allocation.pod.space, allocation.pod.name,
                 allocation.container);
    parts_.allocations.release(holder);
    over_since_.erase(holder);
  }
  auto corrections =
      find_corrections(parts_.node, parts_.pods.all(), truth_of(*listed), parts_.clock.wall());
  std::set<std::string> living;
  for (const NodePodPtr& pod : parts_.pods.all()) living.insert(pod->pod.id.uid);
  std::function<void()> call;
  {
    const std::lock_guard lock(mutex_);
    std::erase_if(started_, [&](const auto& one) { return synced && !living.contains(one.first); });
    std::erase_if(offered_, [&](const auto& one) {
      return synced && !living.contains(one.first.substr(0, one.first.find('/')));
    });
    corrections_ = std::move(corrections);
    const std::uint64_t before = version_;
    recount();
    if (version_ != before) call = on_change_;
  }
  if (call) call();
}

std::vector<Correction> Plugin::corrections() const {
  const std::lock_guard lock(mutex_);
  return corrections_;
}

}  // namespace aliquot::kube
