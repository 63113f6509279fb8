// What a pod asks of GPUs: from the resources of its containers to core's words, container by
// container, and what that comes to for the pod as a whole.
//
// Containers of one pod may be on different GPUs, but for one case: the kubelet hands what an init
// container held on to those that start later, so a pod whose init containers hold shares has all
// its shares on one GPU.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "base/units.hpp"
#include "core/grant.hpp"
#include "core/request.hpp"
#include "kube/model/limits.hpp"
#include "kube/model/pod.hpp"

namespace aliquot::kube {

struct ContainerNeed {
  std::string container;
  Role role = Role::app;
  // A share of one GPU (count 1, amounts) or whole GPUs.
  core::GpuRequest gpus;
  std::int64_t units = 0;  // of gpu-mem; 0 for whole GPUs
  std::string resource;    // by which name it asks: the kubelet knows its devices by it

  [[nodiscard]] bool whole() const { return std::holds_alternative<core::WholeGpu>(gpus.what); }
  friend bool operator==(const ContainerNeed&, const ContainerNeed&) = default;
};

// Shares that must be on one GPU: mostly of one container.
struct ShareNeed {
  core::Amounts amounts;           // at most at one time
  std::vector<std::size_t> needs;  // whose, by position in PodRequest::needs
  friend bool operator==(const ShareNeed&, const ShareNeed&) = default;
};

struct PodRequest {
  std::vector<ContainerNeed> needs;  // of the containers that ask for GPUs, in order of start
  std::vector<ShareNeed> shares;     // the same, as they are to be placed
  std::int64_t whole = 0;            // whole GPUs, at most at one time
  CpuMilli cpus;                     // of all containers, at most at one time
  Bytes memory;
  bool gpushare = false;  // it asks by gpushare's names
  bool odd = false;       // of odd_request()

  [[nodiscard]] bool asks() const { return !needs.empty(); }
  friend bool operator==(const PodRequest&, const PodRequest&) = default;
};

// `unit`: bytes of one gpu-mem. `nvidia`: whether `nvidia.com/gpu` is ours to serve; else it is
// passed over. An error says which container asks for what cannot be.
Result<PodRequest> read_request(const Pod& pod, const Names& names, Bytes unit, bool nvidia);
// Of a pod that read_request() refuses: nobody who knows us places it, but if somebody bound it the
// kubelet has given it devices. Each container that asks for any may have a whole GPU.
PodRequest odd_request(const Pod& pod, const Names& names);
// Whether it asks for `nvidia.com/gpu`, whoever serves it.
bool asks_nvidia(const Pod& pod);

// What each container holds, by its name: the body of a grant.
using ContainerGrants = std::map<std::string, std::vector<core::GrantedGpu>>;

// What the pod holds of each GPU at most at one time, by UUID, when its containers hold this. What
// containers hold that ask for nothing is not counted.
std::map<GpuId, core::GrantedGpu> held_by(const PodRequest& request, const ContainerGrants& grants);
// Whether every container that asks for GPUs holds as many as it asks for, of the right kind; of an
// odd request, whether it holds any.
bool covers(const ContainerGrants& grants, const PodRequest& request);

// Where the whole GPUs of each container are among the pod's: those of init containers serve again
// for what comes after them. By position in PodRequest::needs; first and count.
std::vector<std::pair<std::int64_t, std::int64_t>> whole_places(const PodRequest& request);

}  // namespace aliquot::kube
