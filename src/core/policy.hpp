// How candidates are ranked. A policy sees one node at a time and a request that fits there, says
// how good that is, and which GPUs it would take. Its answer may depend only on that node's state
// and on what prepare() computed, so that answers can be kept until the node changes or prepare()
// says that all of them are out of date.
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "core/cluster.hpp"
#include "core/profile.hpp"

namespace aliquot::core {

// The GPUs of one node that could each serve one part of the request, by index: for a share those
// with room, for whole GPUs the free ones. At least shape.count of them.
struct Candidates {
  NodeIndex node = 0;
  std::vector<GpuIndex> gpus;
};

// Fills `out` and says whether the node can hold the request now.
bool find_candidates(const Cluster& cluster, const Shape& shape, NodeIndex node, Candidates& out);

class Policy {
 public:
  virtual ~Policy() = default;
  [[nodiscard]] virtual std::string_view name() const = 0;

  // Called before each decision. True when every earlier score is void.
  virtual bool prepare(const Cluster&) { return false; }

  // Higher is better. Ties go to the lower node index.
  virtual double score(const Cluster& cluster, const Shape& shape, const Candidates& fit) = 0;

  // Which of the candidates to take; only the chosen node is asked. By default the tightest fit:
  // the smallest rest first, lowest index on ties.
  virtual std::vector<GpuIndex> choose(const Cluster& cluster, const Shape& shape,
                                       const Candidates& fit);
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
