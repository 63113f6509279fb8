#include "core/index.hpp"

#include <algorithm>
#include <bit>
#include <limits>

namespace aliquot::core {
namespace {

constexpr float kUnfit = -std::numeric_limits<float>::infinity();
// How many nodes ahead memory is asked for.
constexpr std::size_t kAhead = 6;
// Bounds the memory of all boards together: 8 bytes a leaf.
constexpr std::size_t kMaxLeaves = std::size_t{1} << 25U;

}  // namespace

std::optional<Placement> Index::place(const Shape& shape) {
  ++decisions_;
  if (policy_.prepare(cluster_)) ++epoch_;
  if (cluster_.size() == 0) return std::nullopt;
  Board& board = board_of(shape);
  refresh(board, shape);
  const NodeIndex best = board.winners[1];
  if (board.scores[best] == kUnfit) return std::nullopt;
  find_candidates(cluster_, shape, best, candidates_);
  return use_of(cluster_, shape, best, policy_.choose(cluster_, shape, candidates_));
}

Index::Board& Index::board_of(const Shape& shape) {
  auto found = boards_.find(shape);
  if (found == boards_.end()) {
    if ((boards_.size() + 1) * std::bit_ceil(cluster_.size()) > kMaxLeaves && !boards_.empty()) {
      boards_.erase(std::ranges::min_element(
          boards_, {}, [](const auto& entry) { return entry.second.last_used; }));
    }
    found = boards_.emplace(shape, Board{}).first;
  }
  found->second.last_used = decisions_;
  return found->second;
}

float Index::score(const Shape& shape, NodeIndex node) {
  if (!find_candidates(cluster_, shape, node, candidates_)) return kUnfit;
  return static_cast<float>(policy_.score(cluster_, shape, candidates_));
}

void Index::refresh(Board& board, const Shape& shape) {
  const std::size_t leaves = std::bit_ceil(cluster_.size());
  const std::uint64_t behind = cluster_.version() - board.version;
  if (board.epoch != epoch_ || board.scores.size() != leaves || behind > cluster_.size()) {
    rebuild(board, shape);
    return;
  }
  looked_at_.resize(leaves, 0);
  ++looks_;
  changed_.clear();
  const bool known = cluster_.visit_changes(board.version, [&](NodeIndex node) {
    if (looked_at_[node] == looks_) return;
    looked_at_[node] = looks_;
    changed_.push_back(node);
  });
  for (std::size_t i = 0; known && i < changed_.size(); ++i) {
    if (i + kAhead < changed_.size()) {
      cluster_.prefetch(changed_[i + kAhead]);
      __builtin_prefetch(&board.scores[changed_[i + kAhead]]);
    }
    const NodeIndex node = changed_[i];
    const float now = score(shape, node);
    if (now == board.scores[node]) continue;
    board.scores[node] = now;
    for (std::size_t inner = (leaves + node) / 2; inner > 0; inner /= 2) settle(board, inner);
  }
  if (!known) rebuild(board, shape);
  board.version = cluster_.version();
}

void Index::rebuild(Board& board, const Shape& shape) {
  const std::size_t leaves = std::bit_ceil(cluster_.size());
  board.scores.assign(leaves, kUnfit);
  for (NodeIndex node = 0; node < cluster_.size(); ++node) board.scores[node] = score(shape, node);
  board.winners.resize(leaves);
  for (std::size_t i = leaves - 1; i > 0; --i) settle(board, i);
  if (leaves == 1) board.winners.assign(2, 0);
  board.version = cluster_.version();
  board.epoch = epoch_;
}

void Index::settle(Board& board, std::size_t inner) {
  const std::size_t leaves = board.scores.size();
  const auto winner = [&](std::size_t child) {
    return child >= leaves ? static_cast<NodeIndex>(child - leaves) : board.winners[child];
  };
  const NodeIndex left = winner(2 * inner);
  const NodeIndex right = winner(2 * inner + 1);
  board.winners[inner] = board.scores[right] > board.scores[left] ? right : left;
}

}  // namespace aliquot::core
