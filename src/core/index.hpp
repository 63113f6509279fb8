// Fast decisions on a large cluster: keeps, for every kind of request seen, each node's score and
// the best of them, and on the next decision looks only at the nodes that changed since. Bound to
// one cluster and one policy, which it alone prepares. Gives exactly what place_by_scan gives.
//
// Requests that differ only in host memory or models have the same scores where they fit, so they
// share a board, and each takes the best of its nodes that it fits on. Nodes in the same state have
// the same scores too, so a board looks at each state once.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "core/placement.hpp"

namespace aliquot::core {

class Index {
 public:
  Index(const Cluster& cluster, Policy& policy) : cluster_(cluster), policy_(policy) {}

  std::optional<Placement> place(const Shape& shape);

  // For those who are told the node, or choose among some of them.
  static constexpr float kUnfit = -std::numeric_limits<float>::infinity();
  // Each node's score, kUnfit where it does not fit. Until the next call.
  std::span<const float> scores(const Shape& shape);
  // Before the policy is asked by anybody else.
  void prepare();

 private:
  using Leaf = std::uint32_t;
  using StateId = std::uint32_t;

  // One kind of request: the nodes' scores as leaves of a tournament, winners above. A change costs
  // the memory that it touches: so the lowest matches are between as many leaves as fill a line of
  // the cache, and what does not change the best of those touches nothing else.
  struct Board {
    std::vector<float> by_state;  // not a number: not asked for yet
    std::vector<float> scores;
    std::vector<Leaf> winners;  // of the groups and above them, in heap order, the root at 1
    std::uint64_t version = 0;  // of the cluster
    std::uint64_t epoch = 0;    // of the policy and of the leaves' order
    std::uint64_t last_used = 0;
  };
  struct Search {
    std::optional<Leaf> best;
    std::size_t looks = 0;  // at places of the tree
  };

  void lay_out();
  void number_states();
  StateId number(NodeIndex node);
  [[nodiscard]] Shape common(const Shape& shape) const;
  // The board of the request, or the common one that serves it, up to date; and whose it is.
  std::pair<Board*, Shape> board_for(const Shape& shape);
  std::optional<NodeIndex> best_node(const Shape& shape);
  void search(const Board& board, const Shape& shape, std::size_t place, Search& found) const;
  [[nodiscard]] bool admits(const Shape& shape, Leaf leaf) const;
  Board& board_of(const Shape& shape);
  void refresh(Board& board, const Shape& shape);
  void change(Board& board, Leaf leaf, float score) const;
  [[nodiscard]] Leaf best_of_group(const Board& board, std::size_t group) const;
  [[nodiscard]] Leaf better(const Board& board, std::size_t place) const;
  [[nodiscard]] bool beats(const Board& board, Leaf leaf, Leaf other) const;
  void score_states(Board& board, const Shape& shape, const std::vector<NodeIndex>& nodes);
  float score(const Shape& shape, NodeIndex node);

  const Cluster& cluster_;
  Policy& policy_;
  std::unordered_map<Shape, Board, ShapeHash> boards_;
  std::uint64_t epoch_ = 1;
  std::uint64_t decisions_ = 0;
  Candidates candidates_;
  // Nodes of the same models are neighbours in the tree: whole branches are of no use to a request
  // for others.
  std::vector<Leaf> leaf_of_;
  std::vector<NodeIndex> node_at_;
  std::size_t groups_ = 0;                  // of leaves: the lowest places of the tree
  std::vector<std::uint64_t> models_;       // by place in the tree: of all nodes below
  std::vector<std::uint64_t> leaf_models_;  // by leaf
  std::uint64_t mixed_ = 0;                 // models that share a node with another one
  std::size_t laid_out_gpus_ = 0;
  std::unordered_map<std::string, StateId> states_;
  std::string state_;
  std::vector<StateId> state_of_;     // by node
  std::uint64_t states_version_ = 0;  // of the cluster
  std::vector<Room> rooms_;           // by state
  std::vector<NodeNote> notes_;       // by state
  std::uint64_t notes_epoch_ = 0;
  std::vector<std::uint64_t> looked_at_;  // by node: the last refresh that scored it
  std::uint64_t looks_ = 0;
  std::vector<NodeIndex> changed_;
  std::vector<NodeIndex> unknown_;  // one node for each state to score
  std::vector<float> told_;         // what scores() gave
};

}  // namespace aliquot::core
