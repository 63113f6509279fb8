#include "kube/node/allocations.hpp"

#include <spdlog/spdlog.h>
#include <unistd.h>

#include <algorithm>
#include <boost/json.hpp>
#include <utility>

#include "enforce/abi.h"
#include "kube/model/json_read.hpp"
#include "kube/node/container_view.hpp"
#include "kube/node/node_pods.hpp"
#include "node/grant_folder.hpp"
#include "sys/file.hpp"
#include "sys/folder.hpp"

namespace aliquot::kube {
namespace {

namespace fs = std::filesystem;
namespace json = boost::json;

constexpr const char* kRecord = "record";
constexpr const char* kPods = "pods";

// In place of what is there; where it leads need not be there.
Result<void> set_link(const fs::path& link, const fs::path& target) {
  std::error_code error;
  if (fs::read_symlink(link, error) == target) return {};
  fs::path temporary = link;
  temporary += ".tmp";
  fs::remove_all(temporary, error);
  if (::symlink(target.c_str(), temporary.c_str()) != 0) {
    return sys::system_error(errno, "cannot make", temporary);
  }
  if (!fs::is_symlink(link, error)) fs::remove_all(link, error);
  if (::rename(temporary.c_str(), link.c_str()) != 0) {
    return sys::system_error(errno, "cannot rename", temporary);
  }
  return {};
}

bool overlap(const DeviceIds& one, const DeviceIds& other) {
  return std::ranges::any_of(
      one, [&](const std::string& id) { return std::ranges::binary_search(other, id); });
}

// Whether the two cannot both be there: one has all of a GPU that the other has something of.
bool exclude(const core::Grant& one, const core::Grant& other) {
  return std::ranges::any_of(one.gpus, [&](const core::GrantedGpu& gpu) {
    const auto* its = other.find(gpu.gpu);
    return its != nullptr && (gpu.whole || its->whole);
  });
}

}  // namespace

HolderId holder_of(const ClaimPart& claim) {
  return HolderId("claim:" + claim.name.uid + "/" + claim.request);
}

DeviceIds ids_of(const ClaimPart& claim) { return {holder_of(claim).value()}; }

Uid tenant_of(const PodName& pod, const std::string& container, const std::optional<Uid>& user) {
  const std::string name =
      user ? fmt::format("{}\n{}", pod.space, *user) : fmt::format("{}\n{}\n", pod.uid, container);
  // FNV-1a: it stays the same from one build to the next. The upper half of all user ids: who has
  // an account is not among them.
  std::uint32_t hash = 2'166'136'261U;
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 16'777'619U;
  constexpr std::uint32_t kUpper = 0x8000'0000U;
  return Uid((hash | kUpper) & 0xffff'fff0U);
}

std::string format_allocation(const Allocation& allocation) {
  json::array gpus;
  for (const core::GrantedGpu& gpu : allocation.grant.gpus) {
    gpus.push_back(json::object{{"gpu", gpu.gpu.value()},
                                {"memory", gpu.portion.memory.value()},
                                {"compute", gpu.portion.compute.value()},
                                {"whole", gpu.whole}});
  }
  json::object object{
      {"v", 1},
      {"namespace", allocation.pod.space},
      {"pod", allocation.pod.name},
      {"uid", allocation.pod.uid},
      {"container", allocation.container},
      {"role", static_cast<int>(allocation.role)},
      {"resource", allocation.resource.name},
      {"whole", allocation.resource.kind == Kind::whole},
      {"owner", allocation.grant.owner.value()},
      {"ids", json::array(allocation.ids.begin(), allocation.ids.end())},
      {"gpus", std::move(gpus)},
  };
  if (allocation.claim) {
    object["claim"] = {{"namespace", allocation.claim->name.space},
                       {"name", allocation.claim->name.name},
                       {"uid", allocation.claim->name.uid},
                       {"request", allocation.claim->request},
                       {"proportional", allocation.claim->proportional}};
  }
  return json::serialize(object) + "\n";
}

Result<Allocation> parse_allocation(std::string_view text) {
  const auto wrong = [] {
    return fail(Error::Code::invalid_argument, "it is no record of an allocation");
  };
  const json::value value = TRY(parse_json(text));
  if (!value.is_object()) return wrong();
  const json::object& object = value.get_object();
  Allocation allocation;
  allocation.pod = {std::string(find_text(object, "namespace")),
                    std::string(find_text(object, "pod")), std::string(find_text(object, "uid"))};
  allocation.container = find_text(object, "container");
  allocation.resource.name = find_text(object, "resource");
  allocation.resource.kind = find_flag(object, "whole") ? Kind::whole : Kind::memory;
  const auto role = find_number(object, "role");
  const auto owner = find_number(object, "owner");
  const auto* ids = find_array(object, "ids");
  const auto* gpus = find_array(object, "gpus");
  if (find_number(object, "v") != 1 || !role || *role < 0 || *role > 2 || !owner ||
      ids == nullptr || gpus == nullptr || allocation.pod.uid.empty()) {
    return wrong();
  }
  allocation.role = static_cast<Role>(*role);
  for (const json::value& id : *ids) {
    if (!id.is_string()) return wrong();
    allocation.ids.emplace_back(id.get_string().c_str());
  }
  allocation.ids = sorted(std::move(allocation.ids));
  for (const json::value& one : *gpus) {
    const auto* gpu = one.if_object();
    if (gpu == nullptr) return wrong();
    allocation.grant.gpus.push_back({.gpu = GpuId(std::string(find_text(*gpu, "gpu"))),
                                     .portion = {Bytes(find_number(*gpu, "memory").value_or(0)),
                                                 Compute(find_number(*gpu, "compute").value_or(0))},
                                     .whole = find_flag(*gpu, "whole")});
  }
  if (const auto* claim = find_object(object, "claim")) {
    allocation.claim = ClaimPart{
        .name = {std::string(find_text(*claim, "namespace")),
                 std::string(find_text(*claim, "name")), std::string(find_text(*claim, "uid"))},
        .request = std::string(find_text(*claim, "request")),
        .proportional = find_flag(*claim, "proportional")};
  }
  allocation.grant.holder = allocation.claim ? holder_of(*allocation.claim)
                                             : holder_of(allocation.pod, allocation.container);
  allocation.grant.owner = Uid(static_cast<std::uint32_t>(*owner));
  allocation.grant.any_user = true;
  allocation.grant.group = Gid(65'534);  // nobody's
  return allocation;
}

Result<std::unique_ptr<Allocations>> Allocations::create(Parts parts) {
  TRY(sys::make_own_folder(parts.run / kPods, 0700));
  auto made = std::unique_ptr<Allocations>(new Allocations(std::move(parts)));
  made->take_up();
  return made;
}

void Allocations::take_up() {
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(parts_.run / kPods, error)) {
    const auto text = sys::read_whole(entry.path() / kRecord);
    auto allocation = text ? parse_allocation(*text) : tl::make_unexpected(text.error());
    if (!allocation || digest_of(allocation->ids) != entry.path().filename()) {
      // Half of one that was being made: the kubelet asks again before it starts the container.
      if (text) spdlog::warn("{} is no record of ours: dropped", entry.path().string());
      std::error_code ignored;
      fs::remove_all(entry.path(), ignored);
      continue;
    }
    parts_.enforcer.adopt(allocation->grant);
    held_.insert_or_assign(allocation->grant.holder, std::move(*allocation));
  }
  parts_.enforcer.recovered();
  if (!held_.empty()) spdlog::info("took up {} containers", held_.size());
}

bool Allocations::is_intact(const Allocation& allocation) const {
  if (allocation.resource.kind == Kind::whole) return true;
  const fs::path folder =
      parts_.run / "grants" / node::folder_name(allocation.grant.holder) / ALIQUOT_LIMITS_FILE;
  return ::access(folder.c_str(), F_OK) == 0;
}

// A container that was started before has its devices no longer, or is an init container that has
// done its work.
Result<void> Allocations::make_room(const Allocation& allocation) {
  std::vector<Allocation> over;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [holder, other] : held_) {
      if (holder == allocation.grant.holder) {
        if (other.ids != allocation.ids) over.push_back(other);
        continue;
      }
      const bool handed_on = other.pod.uid == allocation.pod.uid && other.role == Role::init;
      if (overlap(other.ids, allocation.ids) ||
          (handed_on && exclude(other.grant, allocation.grant))) {
        over.push_back(other);
      } else if (exclude(other.grant, allocation.grant)) {
        return fail(Error::Code::unavailable,
                    "GPU {} is {} by container {} of pod {}/{}: waiting for it",
                    allocation.grant.gpus.front().gpu,
                    other.resource.kind == Kind::whole ? "held whole" : "shared", other.container,
                    other.pod.space, other.pod.name);
      }
    }
  }
  for (const Allocation& other : over) drop(other);
  return {};
}

Result<void> set_links(const fs::path& links, const fs::path& run, const fs::path& library,
                       const HolderId& holder) {
  const fs::path grants = run / "grants";
  TRY(set_link(links / "grant", grants / node::folder_name(holder)));
  if (!library.empty()) TRY(set_link(links / "lib", library));
  const fs::path pipes = node::GrantFolder::read_how(grants, holder, {}).pipes;
  if (!pipes.empty()) return set_link(links / "mps", pipes);
  // A folder without a server: CUDA then goes without, and looks nowhere else.
  std::error_code error;
  if (fs::is_symlink(links / "mps", error)) fs::remove(links / "mps", error);
  return sys::make_own_folder(links / "mps", 0755);
}

Result<void> Allocations::hold(const Allocation& allocation) {
  const std::lock_guard working(working_);
  TRY(make_room(allocation));
  const auto known = find(allocation.grant.holder);
  if (!known || *known != allocation || !is_intact(allocation)) {
    const fs::path links = links_of(parts_.run, allocation.ids);
    TRY(sys::make_own_folder(links, 0700));
    // Before it is held, so that whatever is held is on record.
    TRY(sys::write_whole(links / kRecord, format_allocation(allocation), 0600, false));
    const auto held = parts_.enforcer.grant(allocation.grant);
    if (!held) {
      drop(allocation);
      return tl::make_unexpected(held.error());
    }
    const std::lock_guard lock(mutex_);
    held_.insert_or_assign(allocation.grant.holder, allocation);
  }
  if (allocation.resource.kind == Kind::whole) return {};
  return set_links(links_of(parts_.run, allocation.ids), parts_.run, parts_.library,
                   allocation.grant.holder);
}

void Allocations::drop(const Allocation& allocation) {
  parts_.enforcer.release(allocation.grant.holder, std::nullopt);
  std::error_code ignored;
  fs::remove_all(links_of(parts_.run, allocation.ids), ignored);
  const std::lock_guard lock(mutex_);
  held_.erase(allocation.grant.holder);
}

void Allocations::release(const HolderId& holder) {
  const std::lock_guard working(working_);
  if (const auto allocation = find(holder)) drop(*allocation);
}

Result<void> Allocations::correct(const HolderId& holder,
                                  const std::vector<core::GrantedGpu>& gpus) {
  const std::lock_guard working(working_);
  auto allocation = find(holder);
  if (!allocation || allocation->grant.gpus == gpus) return {};
  allocation->grant.gpus = gpus;
  TRY(sys::write_whole(links_of(parts_.run, allocation->ids) / kRecord,
                       format_allocation(*allocation), 0600, false));
  TRY(parts_.enforcer.correct(allocation->grant));
  const std::lock_guard lock(mutex_);
  held_.insert_or_assign(holder, std::move(*allocation));
  return {};
}

std::vector<Allocation> Allocations::list() const {
  const std::lock_guard lock(mutex_);
  std::vector<Allocation> all;
  for (const auto& [holder, allocation] : held_) all.push_back(allocation);
  return all;
}

std::optional<Allocation> Allocations::find(const HolderId& holder) const {
  const std::lock_guard lock(mutex_);
  const auto found = held_.find(holder);
  return found == held_.end() ? std::nullopt : std::optional(found->second);
}

}  // namespace aliquot::kube
