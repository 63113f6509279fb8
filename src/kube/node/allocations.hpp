// The containers that have devices here, and are held to them: for each a grant with the node's
// enforcer, the links that its mounts lead through, and a record on disk, so that an agent that was
// killed takes all of them up again without asking anybody.
//
// The kubelet's word is what counts: devices that it gives to one container are no longer
// another's. From any thread; hold() may wait for a process to start.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/ids.hpp"
#include "base/result.hpp"
#include "core/grant.hpp"
#include "kube/model/claim.hpp"
#include "kube/model/pod.hpp"
#include "kube/node/resources.hpp"
#include "node/enforcer.hpp"

namespace aliquot::kube {

// What is held by a request of a claim, for all containers that name it.
struct ClaimPart {
  ClaimName name;
  std::string request;
  bool proportional = false;  // its compute was not said, and follows from its memory
  friend bool operator==(const ClaimPart&, const ClaimPart&) = default;
};

struct Allocation {
  PodName pod;  // of a claim the first one, and its first container
  std::string container;
  Role role = Role::app;
  Resource resource;
  DeviceIds ids;      // sorted
  core::Grant grant;  // the holder is holder_of(pod, container), or holder_of(claim)
  std::optional<ClaimPart> claim = {};
  friend bool operator==(const Allocation&, const Allocation&) = default;
};

HolderId holder_of(const ClaimPart& claim);
// As devices are called by which a claim is held: nobody else has them.
DeviceIds ids_of(const ClaimPart& claim);

// Whom a container's grant counts for: those of one namespace that run as one user share an MPS
// server; one whose user only its image knows has its own, since a server serves one user at a
// time.
Uid tenant_of(const PodName& pod, const std::string& container, const std::optional<Uid>& user);

std::string format_allocation(const Allocation& allocation);
Result<Allocation> parse_allocation(std::string_view text);

// Has the links in this folder lead to what the holder is held with: its grant folder, the pipes of
// its MPS server, and the library (the folder that it lies in; empty: none). The folder is there.
Result<void> set_links(const std::filesystem::path& links, const std::filesystem::path& run,
                       const std::filesystem::path& library, const HolderId& holder);

class Allocations {
 public:
  struct Parts {
    std::filesystem::path run;      // pods/ lies in it, beside what the enforcer keeps
    std::filesystem::path library;  // the folder that it lies in; empty: none
    node::Enforcer& enforcer;
  };
  // Takes up those of the agent before it.
  static Result<std::unique_ptr<Allocations>> create(Parts parts);

  // Before the container is made, each time that it is. What it holds already stays as it is. Where
  // a living container of another pod has one of the GPUs in a way that excludes this: unavailable.
  Result<void> hold(const Allocation& allocation);
  void release(const HolderId& holder);
  // Of one that is held: other portions of the same GPUs, from now on.
  Result<void> correct(const HolderId& holder, const std::vector<core::GrantedGpu>& gpus);

  [[nodiscard]] std::vector<Allocation> list() const;
  [[nodiscard]] std::optional<Allocation> find(const HolderId& holder) const;

 private:
  explicit Allocations(Parts parts) : parts_(std::move(parts)) {}
  void take_up();
  Result<void> make_room(const Allocation& allocation);
  [[nodiscard]] bool is_intact(const Allocation& allocation) const;
  void drop(const Allocation& allocation);

  Parts parts_;
  std::mutex working_;  // one container at a time; the kubelet starts them one by one anyway
  mutable std::mutex mutex_;
  std::map<HolderId, Allocation> held_;
};

}  // namespace aliquot::kube
