#include "kube/node/driver.hpp"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <set>
#include <utility>

#include "base/text.hpp"
#include "core/request.hpp"
#include "kube/node/cdi.hpp"
#include "kube/node/process_holder.hpp"
#include "kube/node/slices.hpp"
#include "sys/file.hpp"
#include "sys/folder.hpp"

namespace aliquot::kube {
namespace {

namespace fs = std::filesystem;

// What nobody knows any more may be about to be known.
constexpr Millis kLinger = seconds(60);

std::string words_for(const ClaimName& name) { return quote(name.space + "/" + name.name); }

std::set<std::string> requests_of(const Claim& claim) {
  std::set<std::string> requests;
  for (const ClaimedDevice& device : claim.devices) requests.insert(device.request);
  return requests;
}

// How much of a GPU's compute goes with so much of its memory.
Compute proportion(Bytes memory, Bytes of, Compute limit) {
  const auto portion = core::portion_of(core::Amounts{.memory = memory, .compute = {}}, of,
                                        {.compute_limit = limit});
  return portion ? std::max(Compute(1), portion->compute) : limit;
}

}  // namespace

Driver::Driver(Parts parts) : parts_(std::move(parts)) {
  // Files of claims that are not held: of before a restart of the machine, or half made.
  std::set<std::string> held;
  for (const Allocation& one : parts_.allocations.list()) {
    if (one.claim) held.insert(one.claim->name.uid);
  }
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(parts_.cdi, error)) {
    const std::string uid = claim_of_cdi_file(entry.path(), parts_.domain);
    std::error_code ignored;
    if (!uid.empty() && !held.contains(uid)) fs::remove(entry.path(), ignored);
  }
}

const gpu::Device* Driver::gpu_of(const std::string& device, bool& whole) const {
  for (const gpu::Device& one : parts_.view.gpus) {
    for (const bool all : {false, true}) {
      if (device_name(one.gpu.id, all) != device) continue;
      whole = all;
      return &one;
    }
  }
  return nullptr;
}

Result<core::GrantedGpu> Driver::granted_of(const Claim& claim, const ClaimedDevice& device,
                                            bool& proportional) const {
  bool whole = false;
  const gpu::Device* gpu = gpu_of(device.device, whole);
  if (gpu == nullptr || device.pool != parts_.node) {
    return fail(Error::Code::not_found, "claim {}: this node has no GPU {}", words_for(claim.id),
                quote(device.device));
  }
  if (device.admin) {
    return fail(Error::Code::unsupported, "claim {}: there is no adminAccess to GPUs",
                words_for(claim.id));
  }
  const core::Gpu& facts = gpu->gpu;
  if (whole) return core::GrantedGpu{facts.id, {facts.memory, kWholeGpu}, true};
  if (!device.memory || !device.compute) {
    return fail(Error::Code::failed_state,
                "claim {}: it consumes nothing of GPU {}: the cluster has no consumable capacity "
                "(DRAConsumableCapacity)",
                words_for(claim.id), facts.id);
  }
  if (*device.memory <= Bytes(0) || *device.memory > facts.memory) {
    return fail(Error::Code::failed_state, "claim {}: GPU {} has {} MiB, not {}",
                words_for(claim.id), facts.id, facts.memory / mib(1), *device.memory / mib(1));
  }
  core::GrantedGpu granted{facts.id, {*device.memory, Compute(0)}, false};
  if (*device.compute > 0) {
    constexpr std::int64_t kPercent = 100;
    granted.portion.compute = scale_down(kWholeGpu, std::min(*device.compute, kPercent), kPercent);
  } else {
    proportional = true;
    granted.portion.compute = proportion(*device.memory, facts.memory, parts_.over_commit);
  }
  return granted;
}

Result<Allocation> Driver::allocation_of(const Claim& claim, const std::string& request) const {
  Allocation allocation{.pod = claim.pods.front(),
                        .container = {},
                        .role = Role::app,
                        .resource = {"claim", Kind::memory},
                        .ids = {},
                        .grant = {},
                        .claim = ClaimPart{.name = claim.id, .request = request}};
  allocation.ids = ids_of(*allocation.claim);
  core::Grant& grant = allocation.grant;
  grant.holder = holder_of(*allocation.claim);
  grant.group = Gid(65'534);
  grant.any_user = true;
  for (const ClaimedDevice& device : claim.devices) {
    if (device.request != request) continue;
    core::GrantedGpu granted = TRY(granted_of(claim, device, allocation.claim->proportional));
    if (grant.find(granted.gpu) != nullptr) {
      return fail(Error::Code::unsupported,
                  "claim {}: request {} has two parts of GPU {}: ask for one larger part",
                  words_for(claim.id), quote(request), granted.gpu);
    }
    if (!grant.gpus.empty() && grant.gpus.front().whole != granted.whole) {
      return fail(Error::Code::unsupported,
                  "claim {}: request {} has a whole GPU and a part of another: make two requests",
                  words_for(claim.id), quote(request));
    }
    if (granted.whole) allocation.resource.kind = Kind::whole;
    grant.gpus.push_back(std::move(granted));
  }
  return allocation;
}

Result<std::vector<Allocation>> Driver::allocations_of(const Claim& claim) const {
  if (claim.configured) {
    return fail(Error::Code::unsupported,
                "claim {}: it has a config for driver {}, which knows none: say what you want as "
                "capacity",
                words_for(claim.id), parts_.domain);
  }
  if (claim.pods.empty()) {
    return fail(Error::Code::failed_state, "claim {}: it is reserved for no pod",
                words_for(claim.id));
  }
  std::vector<Allocation> all;
  for (const std::string& request : requests_of(claim)) {
    all.push_back(TRY(allocation_of(claim, request)));
  }
  TRY(find_users(claim, all));
  return all;
}

Result<void> Driver::find_users(const Claim& claim, std::vector<Allocation>& allocations) const {
  const auto others = parts_.allocations.list();
  for (const PodName& name : claim.pods) {
    auto pod = parts_.fetch_pod(name.space, name.name);
    if (!pod || pod->pod.id.uid != name.uid || pod->pod.node != parts_.node) continue;
    for (const auto& [container, facts] : pod->containers) {
      const auto named = [&, &facts = facts](const ClaimPart& part) {
        return std::ranges::any_of(facts.claims, [&](const ClaimUse& use) {
          return uses(use, part.name.name, part.request);
        });
      };
      std::size_t parts = 0;
      for (Allocation& one : allocations) {
        if (!named(*one.claim)) continue;
        ++parts;
        if (!one.container.empty()) continue;
        one.pod = name;
        one.container = container;
        one.grant.owner = tenant_of(name, container, facts.user);
      }
      if (parts == 0) continue;
      for (const Allocation& other : others) {
        if (other.claim && other.claim->name.space == name.space &&
            other.claim->name.uid != claim.id.uid && named(*other.claim)) {
          ++parts;
        }
      }
      if (parts > 1) {
        return fail(Error::Code::unsupported,
                    "container {} of pod {}/{} names {} requests for GPUs: one for a container; "
                    "its count may be more than 1",
                    container, name.space, name.name, parts);
      }
    }
  }
  for (Allocation& one : allocations) {
    if (one.container.empty()) one.grant.owner = tenant_of(one.pod, claim.id.uid, std::nullopt);
  }
  return {};
}

// The scheduler has seen to it, and whoever can write the status of claims can say otherwise.
Result<void> Driver::check_room(const std::vector<Allocation>& allocations) const {
  std::map<GpuId, Bytes> taken;
  std::set<HolderId> ours;
  for (const Allocation& one : allocations) ours.insert(one.grant.holder);
  for (const Allocation& one : parts_.allocations.list()) {
    if (ours.contains(one.grant.holder)) continue;
    for (const core::GrantedGpu& gpu : one.grant.gpus) taken[gpu.gpu] += gpu.portion.memory;
  }
  for (const Allocation& one : allocations) {
    for (const core::GrantedGpu& part : one.grant.gpus) {
      const auto gpu = std::ranges::find_if(
          parts_.view.gpus, [&](const gpu::Device& device) { return device.gpu.id == part.gpu; });
      const Bytes before = taken[part.gpu];
      taken[part.gpu] += part.portion.memory;
      if (gpu == parts_.view.gpus.end() || taken[part.gpu] <= gpu->gpu.memory) continue;
      return fail(Error::Code::unavailable,
                  "claim {}: GPU {} has {} MiB left, not {}: waiting for what is on it to end",
                  words_for(one.claim->name), part.gpu,
                  std::max(Bytes(0), gpu->gpu.memory - before) / mib(1),
                  part.portion.memory / mib(1));
    }
  }
  return {};
}

Result<void> Driver::write_view(const ClaimName& name,
                                const std::vector<Allocation>& allocations) const {
  CdiDevices devices;
  for (const Allocation& one : allocations) {
    std::vector<GpuId> gpus;
    for (const core::GrantedGpu& gpu : one.grant.gpus) gpus.push_back(gpu.gpu);
    const bool shared = one.resource.kind == Kind::memory;
    devices.emplace(
        cdi_name(name.uid, one.claim->request),
        view_of_gpus(parts_.view, gpus,
                     shared ? std::optional(links_of(parts_.view.run, one.ids)) : std::nullopt));
  }
  std::error_code error;
  fs::create_directories(parts_.cdi, error);
  constexpr mode_t kForAll = 0644;
  return sys::write_whole(cdi_file(parts_.cdi, parts_.domain, name.uid),
                          write_cdi(parts_.domain, devices), kForAll, false);
}

Result<std::vector<PreparedDevice>> Driver::prepare(const ClaimName& name) {
  const std::lock_guard working(working_);
  const Claim claim = TRY(parts_.fetch(name));
  if (claim.id.uid != name.uid) {
    return fail(Error::Code::failed_state, "claim {} is another one by now", words_for(name));
  }
  const auto allocations = TRY(allocations_of(claim));
  TRY(check_room(allocations));
  for (const Allocation& one : allocations) {
    Allocation wanted = one;
    // What it has of the compute by what others have is as it was.
    const auto held = parts_.allocations.find(one.grant.holder);
    if (held && held->claim && held->claim->proportional && one.claim->proportional &&
        held->grant.gpus.size() == one.grant.gpus.size()) {
      for (std::size_t i = 0; i < one.grant.gpus.size(); ++i) {
        wanted.grant.gpus[i].portion.compute = held->grant.gpus[i].portion.compute;
      }
    }
    TRY(parts_.allocations.hold(wanted));
    const core::GrantedGpu& first = one.grant.gpus.front();
    spdlog::info(
        "claim {}, request {}: {} of GPU {}", words_for(name), one.claim->request,
        first.whole ? std::string("all") : fmt::format("{} MiB", first.portion.memory / mib(1)),
        first.gpu);
  }
  share_compute();
  TRY(write_view(name, allocations));
  over_since_.erase(name.uid);
  std::vector<PreparedDevice> devices;
  std::set<std::string> seen;
  for (const ClaimedDevice& device : claim.devices) {
    devices.push_back({device.request, device.pool, device.device, device.share_id,
                       seen.insert(device.request).second
                           ? cdi_id(parts_.domain, name.uid, device.request)
                           : std::string()});
  }
  return devices;
}

void Driver::share_compute() {
  struct Part {
    HolderId holder;
    Compute wanted;
  };
  std::map<GpuId, Compute> said;
  std::map<GpuId, std::vector<Part>> unsaid;
  std::map<HolderId, std::vector<core::GrantedGpu>> now;
  for (const Allocation& one : parts_.allocations.list()) {
    for (const core::GrantedGpu& gpu : one.grant.gpus) {
      const auto device = std::ranges::find_if(
          parts_.view.gpus, [&](const gpu::Device& known) { return known.gpu.id == gpu.gpu; });
      if (one.claim && one.claim->proportional && device != parts_.view.gpus.end()) {
        unsaid[gpu.gpu].push_back(
            {one.grant.holder,
             proportion(gpu.portion.memory, device->gpu.memory, parts_.over_commit)});
        now[one.grant.holder] = one.grant.gpus;
      } else {
        said[gpu.gpu] += gpu.portion.compute;
      }
    }
  }
  for (const auto& [gpu, parts] : unsaid) {
    Compute all(0);
    for (const Part& part : parts) all += part.wanted;
    const Compute left = std::max(Compute(0), parts_.over_commit - said[gpu]);
    for (const Part& part : parts) {
      Compute has = part.wanted;
      if (all > left) has = std::max(Compute(1), scale_down(left, has.value(), all.value()));
      for (core::GrantedGpu& one : now[part.holder]) {
        if (one.gpu == gpu) one.portion.compute = has;
      }
    }
  }
  for (const auto& [holder, gpus] : now) {
    if (auto corrected = parts_.allocations.correct(holder, gpus); !corrected) {
      spdlog::warn("{}: it keeps the compute that it had: {}", holder, corrected.error().message);
    }
  }
}

void Driver::drop(const std::string& uid) {
  for (const Allocation& one : parts_.allocations.list()) {
    if (!one.claim || one.claim->name.uid != uid) continue;
    parts_.allocations.release(one.grant.holder);
    spdlog::info("claim {}, request {}: over", words_for(one.claim->name), one.claim->request);
  }
  std::error_code ignored;
  fs::remove(cdi_file(parts_.cdi, parts_.domain, uid), ignored);
  over_since_.erase(uid);
}

Result<void> Driver::unprepare(const std::string& uid) {
  if (uid.empty() || uid.find('/') != std::string::npos) {
    return fail(Error::Code::invalid_argument, "{} is no claim's uid", quote(uid));
  }
  const std::lock_guard working(working_);
  drop(uid);
  share_compute();
  return {};
}

std::vector<Correction> Driver::grants() const {
  const auto pods = parts_.pods.all();
  std::map<std::string, ContainerGrants> holding;  // by the pod's uid
  for (const Allocation& one : parts_.allocations.list()) {
    if (!one.claim) continue;
    for (const auto& [uid, container] : containers_of(one, pods)) {
      if (!container.empty()) holding[uid][container] = one.grant.gpus;
    }
  }
  std::vector<Correction> all;
  for (const NodePodPtr& pod : pods) {
    const auto held = holding.find(pod->pod.id.uid);
    if (held == holding.end() || pod->pod.over()) continue;
    if (pod->grant && pod->grant->containers == held->second) continue;
    const WallTime assumed = pod->grant ? pod->grant->assumed : parts_.clock.wall();
    all.push_back({pod, PodGrant{parts_.node, assumed, held->second}});
  }
  return all;
}

void Driver::look() {
  const auto listed = parts_.kubelet.list();
  if (!listed || !parts_.pods.synced()) return;
  const std::lock_guard working(working_);
  const MonoTime now = parts_.clock.mono();
  std::map<std::string, ClaimName> held;
  for (const Allocation& one : parts_.allocations.list()) {
    if (one.claim) held.emplace(one.claim->name.uid, one.claim->name);
  }
  std::erase_if(over_since_, [&](const auto& one) { return !held.contains(one.first); });
  const auto pods = parts_.pods.all();
  for (const auto& [uid, name] : held) {
    const auto names = [&, &name = name](const NodePodPtr& pod) {
      return pod->pod.id.space == name.space && !pod->pod.over() &&
             std::ranges::any_of(pod->containers, [&](const auto& container) {
               return std::ranges::find(container.second.claims, name.name, &ClaimUse::claim) !=
                      container.second.claims.end();
             });
    };
    const bool known =
        std::ranges::any_of(pods, names) ||
        std::ranges::any_of(*listed, [&, &name = name](const auto& container) {
          return container.space == name.space &&
                 std::ranges::find(container.claims, name.name) != container.claims.end();
        });
    if (known) {
      over_since_.erase(uid);
      continue;
    }
    const MonoTime since = over_since_.try_emplace(uid, now).first->second;
    if (now - since < kLinger) continue;
    spdlog::warn("claim {}: nobody has it any more, and the kubelet has not said so",
                 words_for(name));
    drop(uid);
  }
}

}  // namespace aliquot::kube
