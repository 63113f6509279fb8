// How candidates are ranked. A policy sees one node at a time and a request that fits there, says
// how good that is, and which GPUs it would take. Its answer may depend only on that node's state
// and on what prepare() computed, so that answers can be kept until the node changes or prepare()
// says that all of them are out of date. Neither the node's memory and name nor the request's
// memory and models enter into it, beyond what fits: nodes and requests that differ in nothing else
// share their answers.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "core/cluster.hpp"
#include "core/profile.hpp"

namespace aliquot::core {

// Room for what a policy finds out about a node in one state, whatever the request. It belongs to
// whoever asks, who blanks it when prepare() says that everything is out of date.
struct NodeNote {
  bool written = false;
  std::uint32_t count = 0;
  float sum = 0;
  std::array<float, 8> lanes = {};
};

// The GPUs of one node that could each serve one part of the request, by index: for a share those
// with room, for whole GPUs the free ones. At least shape.count of them.
struct Candidates {
  NodeIndex node = 0;
  std::vector<GpuIndex> gpus;
  NodeNote* note = nullptr;  // none: nothing is kept from one question to the next
};

// What is left on a node, in short: it spares most looks at the node itself.
struct Room {
  CpuMilli cpus_free;
  Compute most_compute_free;
  std::uint32_t free_gpus = 0;
};
inline Room room_on(const NodeState& state) {
  return {state.cpus_free, state.most_compute_free, state.free_gpus};
}
// Whether no node with this room can hold the request, whatever its memory.
inline bool surely_unfit(const Room& room, const Shape& shape) {
  if (shape.cpus > room.cpus_free) return true;
  if (shape.kind == Shape::Kind::no_gpu) return false;
  if (shape.kind == Shape::Kind::whole) return room.free_gpus < shape.count;
  const auto* amounts = std::get_if<Amounts>(&shape.what);
  const Compute least = amounts != nullptr && amounts->compute ? *amounts->compute : Compute(1);
  return room.most_compute_free < least;
}

// Fills `out` and says whether the node can hold the request now.
bool find_candidates(const Cluster& cluster, const Shape& shape, NodeIndex node, Candidates& out);

// The `count` candidates with the smallest key, lowest index on ties.
template <class Key>
std::vector<GpuIndex> take_least(const Candidates& fit, std::size_t count, Key key) {
  std::vector<GpuIndex> order = fit.gpus;
  std::ranges::stable_sort(order, {}, key);
  order.resize(count);
  return order;
}
// Those with the least compute left.
std::vector<GpuIndex> tightest(const Cluster& cluster, const Shape& shape, const Candidates& fit);

class Policy {
 public:
  explicit Policy(std::string_view name) : name_(name) {}
  Policy(const Policy&) = delete;
  Policy& operator=(const Policy&) = delete;
  virtual ~Policy() = default;
  [[nodiscard]] std::string_view name() const { return name_; }

  // Called before each decision. True when every earlier score is void.
  virtual bool prepare(const Cluster&) { return false; }

  // Higher is better. Ties go to the lower node index.
  virtual double score(const Cluster& cluster, const Shape& shape, const Candidates& fit) = 0;

  // Which of the candidates to take; only the chosen node is asked.
  virtual std::vector<GpuIndex> choose(const Cluster& cluster, const Shape& shape,
                                       const Candidates& fit) {
    return tightest(cluster, shape, fit);
  }

 private:
  std::string_view name_;
};

struct PolicyInfo {
  std::string_view name;
  std::string_view summary;
};
// All policies by name, the default first.
std::vector<PolicyInfo> policies();
// Policies that know the workload learn it from `profile`.
Result<std::unique_ptr<Policy>> make_policy(std::string_view name, const Profile& profile);

}  // namespace aliquot::core
