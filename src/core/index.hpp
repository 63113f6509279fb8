// Fast decisions on a large cluster: keeps, for every kind of request seen, each node's score and
// the best of them, and on the next decision looks only at the nodes that changed since. Bound to
// one cluster and one policy. Gives exactly what place_by_scan gives.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

#include "core/placement.hpp"

namespace aliquot::core {

class Index {
 public:
  Index(const Cluster& cluster, Policy& policy) : cluster_(cluster), policy_(policy) {}

  std::optional<Placement> place(const Shape& shape);

 private:
  // One kind of request: the nodes' scores as leaves of a tournament, winners above.
  struct Board {
    std::vector<float> scores;
    std::vector<NodeIndex> winners;  // inner places of the tree in heap order, the root at 1
    std::uint64_t version = 0;       // of the cluster
    std::uint64_t epoch = 0;         // of the policy
    std::uint64_t last_used = 0;
  };

  Board& board_of(const Shape& shape);
  void refresh(Board& board, const Shape& shape);
  void rebuild(Board& board, const Shape& shape);
  static void settle(Board& board, std::size_t inner);
  float score(const Shape& shape, NodeIndex node);

  const Cluster& cluster_;
  Policy& policy_;
  std::unordered_map<Shape, Board, ShapeHash> boards_;
  std::uint64_t epoch_ = 1;
  std::uint64_t decisions_ = 0;
  Candidates candidates_;
  std::vector<std::uint64_t> looked_at_;  // by node: the last refresh that scored it
  std::uint64_t looks_ = 0;
  std::vector<NodeIndex> changed_;
};

}  // namespace aliquot::core
