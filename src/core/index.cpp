#include "core/index.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <numeric>
#include <utility>

namespace aliquot::core {
namespace {

constexpr float kUnknown = std::numeric_limits<float>::quiet_NaN();
// How many nodes ahead memory is asked for.
constexpr std::size_t kAhead = 6;
// Leaves that fill a line of the cache.
constexpr std::size_t kGroup = 64 / sizeof(float);
// Bounds the memory of all boards together: up to 12 bytes a leaf.
constexpr std::size_t kMaxLeaves = std::size_t{1} << 25U;
// A request that looks at more than this part of the nodes, because the best of the common board
// lack the memory, gets a board of its own.
constexpr std::size_t kPatience = 8;
// States that no node is in any more are forgotten when there are more than this.
constexpr std::size_t kStatesPerNode = 2;

template <class... Values>
void write(std::string& to, const Values&... values) {
  const auto write_one = [&](const auto& value) {
    const auto bytes = std::bit_cast<std::array<char, sizeof(value)>>(value);
    to.append(bytes.data(), bytes.size());
  };
  (write_one(values), ...);
}

// Those of a group, from the first to the one behind the last.
std::pair<std::uint32_t, std::uint32_t> leaves_of(std::size_t group, std::size_t leaves) {
  return {static_cast<std::uint32_t>(group * kGroup),
          static_cast<std::uint32_t>(std::min(leaves, (group + 1) * kGroup))};
}

// What is soon looked at, and lies anywhere.
template <class T>
void fetch_ahead(const T& what) {
  __builtin_prefetch(&what);
}

// Everything a policy may judge a node by. All members are named, so that a new one is not
// overlooked here.
void write_state(std::string& to, const Cluster& cluster, NodeIndex node) {
  const auto& [cpus_free, memory_free, units, first_gpu, gpu_count, most_compute_free, free_gpus,
               jobs, jobs_by_gpus] = cluster.state(node);
  write(to, cpus_free, units.compute_limit, units.mps, units.shards, jobs, jobs_by_gpus);
  for (const GpuState& gpu : cluster.gpus(node)) {
    const auto& [memory, rest, compute_free, model, sharers, whole, usable, stale, sampled,
                 foreign_memory, utilisation, taken] = gpu;
    write(to, memory, rest, compute_free, model, sharers, whole, usable, stale, sampled,
          foreign_memory, utilisation);
  }
}

}  // namespace

std::optional<Placement> Index::place(const Shape& shape) {
  ++decisions_;
  prepare();
  if (cluster_.size() == 0) return std::nullopt;
  const auto best = best_node(shape);
  if (!best) return std::nullopt;
  candidates_.note = &notes_[state_of_[*best]];
  find_candidates(cluster_, shape, *best, candidates_);
  return use_of(cluster_, shape, *best, policy_.choose(cluster_, shape, candidates_));
}

void Index::lay_out() {
  if (leaf_of_.size() == cluster_.size() && laid_out_gpus_ == cluster_.gpu_count()) return;
  const std::size_t leaves = cluster_.size();
  leaf_of_.resize(leaves);
  laid_out_gpus_ = cluster_.gpu_count();
  ++epoch_;

  mixed_ = 0;
  std::vector<std::uint64_t> of_node(leaves, 0);
  for (NodeIndex node = 0; node < cluster_.size(); ++node) {
    for (const GpuState& gpu : cluster_.gpus(node)) of_node[node] |= std::uint64_t{1} << gpu.model;
    if (std::popcount(of_node[node]) > 1) mixed_ |= of_node[node];
  }
  node_at_.resize(leaves);
  std::iota(node_at_.begin(), node_at_.end(), NodeIndex{0});
  std::ranges::stable_sort(node_at_, {}, [&](NodeIndex node) { return of_node[node]; });
  groups_ = (leaves + kGroup - 1) / kGroup;
  leaf_models_.resize(leaves);
  models_.assign(2 * groups_, 0);
  for (Leaf leaf = 0; leaf < leaves; ++leaf) {
    leaf_of_[node_at_[leaf]] = leaf;
    leaf_models_[leaf] = of_node[node_at_[leaf]];
    models_[groups_ + leaf / kGroup] |= leaf_models_[leaf];
  }
  for (std::size_t i = groups_ - 1; i > 0; --i) models_[i] = models_[2 * i] | models_[2 * i + 1];
}

void Index::number_states() {
  const std::size_t size = cluster_.size();
  const bool known = state_of_.size() == size && states_.size() <= kStatesPerNode * size &&
                     cluster_.visit_changes(
                         states_version_, [&](NodeIndex node) { state_of_[node] = number(node); });
  if (!known) {
    ++epoch_;
    states_.clear();
    notes_.clear();
    rooms_.clear();
    state_of_.resize(size);
    for (NodeIndex node = 0; node < size; ++node) state_of_[node] = number(node);
  }
  states_version_ = cluster_.version();
  if (notes_epoch_ != epoch_) std::ranges::fill(notes_, NodeNote{});
  notes_epoch_ = epoch_;
}

Index::StateId Index::number(NodeIndex node) {
  state_.clear();
  write_state(state_, cluster_, node);
  const auto [found, fresh] = states_.try_emplace(state_, static_cast<StateId>(notes_.size()));
  if (fresh) {
    notes_.emplace_back();
    rooms_.push_back(room_on(cluster_.state(node)));
  }
  return found->second;
}

// The request whose board also serves this one: it fits wherever this one does, and there its
// candidates are the same. Only on a node of several models do the models choose between GPUs.
Shape Index::common(const Shape& shape) const {
  Shape common = shape;
  common.memory = Bytes(0);
  if (shape.kind != Shape::Kind::no_gpu) common.models |= ~mixed_;
  return common;
}

std::pair<Index::Board*, Shape> Index::board_for(const Shape& shape) {
  lay_out();
  number_states();
  Shape whose = boards_.contains(shape) ? shape : common(shape);
  Board& board = board_of(whose);
  refresh(board, whose);
  return {&board, std::move(whose)};
}

std::optional<NodeIndex> Index::best_node(const Shape& shape) {
  const auto [up_to_date, shared] = board_for(shape);
  const Board& board = *up_to_date;
  Search found;
  search(board, shape, 1, found);
  if (found.looks > cluster_.size() / kPatience && shared != shape) board_of(shape);
  if (!found.best) return std::nullopt;
  return node_at_[*found.best];
}

// Of the leaves below `place` that admit the request, the best, if it beats what was found before.
void Index::search(const Board& board, const Shape& shape, std::size_t place, Search& found) const {
  if (shape.kind != Shape::Kind::no_gpu && (models_[place] & shape.models) == 0) return;
  ++found.looks;
  const Leaf best = board.winners[place];
  if (board.scores[best] == kUnfit || (found.best && !beats(board, best, *found.best))) return;
  if (admits(shape, best)) {
    found.best = best;
  } else if (place < groups_) {
    // The better half first: then the other one often need not be entered.
    const std::size_t better = board.winners[2 * place] == best ? 2 * place : 2 * place + 1;
    search(board, shape, better, found);
    search(board, shape, better ^ 1U, found);
  } else {
    const auto [first, last] = leaves_of(place - groups_, board.scores.size());
    for (Leaf leaf = first; leaf < last; ++leaf) {
      if (board.scores[leaf] == kUnfit || !admits(shape, leaf)) continue;
      if (!found.best || beats(board, leaf, *found.best)) found.best = leaf;
    }
  }
}

// Whether the request fits where that of its common board does.
bool Index::admits(const Shape& shape, Leaf leaf) const {
  const bool right_model =
      shape.kind == Shape::Kind::no_gpu || (leaf_models_[leaf] & shape.models) != 0;
  return right_model && shape.memory <= cluster_.state(node_at_[leaf]).memory_free;
}

std::span<const float> Index::scores(const Shape& shape) {
  ++decisions_;
  prepare();
  if (cluster_.size() == 0) return {};
  const auto [board, whose] = board_for(shape);
  told_.resize(cluster_.size());
  for (NodeIndex node = 0; node < cluster_.size(); ++node) {
    const Leaf leaf = leaf_of_[node];
    told_[node] = admits(shape, leaf) ? board->scores[leaf] : kUnfit;
  }
  return told_;
}

void Index::prepare() {
  if (policy_.prepare(cluster_)) ++epoch_;
}

Index::Board& Index::board_of(const Shape& shape) {
  auto found = boards_.find(shape);
  if (found == boards_.end()) {
    if ((boards_.size() + 1) * cluster_.size() > kMaxLeaves && !boards_.empty()) {
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
  candidates_.note = &notes_[state_of_[node]];
  return static_cast<float>(policy_.score(cluster_, shape, candidates_));
}

// Sees to it that the states of these nodes have their scores.
void Index::score_states(Board& board, const Shape& shape, const std::vector<NodeIndex>& nodes) {
  Shape anywhere = shape;
  anywhere.memory = Bytes(0);
  board.by_state.resize(notes_.size(), kUnknown);
  unknown_.clear();
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    if (i + 2 * kAhead < nodes.size()) fetch_ahead(state_of_[nodes[i + 2 * kAhead]]);
    if (i + kAhead < nodes.size()) fetch_ahead(board.by_state[state_of_[nodes[i + kAhead]]]);
    const NodeIndex node = nodes[i];
    float& known = board.by_state[state_of_[node]];
    if (!std::isnan(known)) continue;
    known = kUnfit;
    if (!surely_unfit(rooms_[state_of_[node]], shape)) unknown_.push_back(node);
  }
  for (std::size_t i = 0; i < unknown_.size(); ++i) {
    if (i + 2 * kAhead < unknown_.size()) cluster_.prefetch(unknown_[i + 2 * kAhead]);
    if (i + kAhead < unknown_.size()) cluster_.prefetch_gpus(unknown_[i + kAhead]);
    board.by_state[state_of_[unknown_[i]]] = score(anywhere, unknown_[i]);
  }
}

void Index::refresh(Board& board, const Shape& shape) {
  const auto now = [&](NodeIndex node) {
    const bool lacks_memory =
        shape.memory > Bytes(0) && shape.memory > cluster_.state(node).memory_free;
    return lacks_memory ? kUnfit : board.by_state[state_of_[node]];
  };
  changed_.clear();
  looked_at_.resize(cluster_.size(), 0);
  ++looks_;
  const bool known = board.epoch == epoch_ &&
                     cluster_.version() - board.version <= cluster_.size() &&
                     cluster_.visit_changes(board.version, [&](NodeIndex node) {
                       if (looked_at_[node] == looks_) return;
                       looked_at_[node] = looks_;
                       changed_.push_back(node);
                     });
  board.version = cluster_.version();
  if (known) {
    score_states(board, shape, changed_);
    for (std::size_t i = 0; i < changed_.size(); ++i) {
      if (i + 2 * kAhead < changed_.size()) fetch_ahead(leaf_of_[changed_[i + 2 * kAhead]]);
      if (i + kAhead < changed_.size()) {
        const Leaf soon = leaf_of_[changed_[i + kAhead]];
        fetch_ahead(board.scores[soon]);
        fetch_ahead(board.winners[groups_ + soon / kGroup]);
      }
      const NodeIndex node = changed_[i];
      const Leaf leaf = leaf_of_[node];
      if (const float score = now(node); score != board.scores[leaf]) change(board, leaf, score);
    }
    return;
  }
  board.epoch = epoch_;
  board.by_state.clear();
  board.scores.assign(node_at_.size(), kUnfit);
  board.winners.resize(2 * groups_);
  changed_.resize(cluster_.size());
  std::iota(changed_.begin(), changed_.end(), NodeIndex{0});
  score_states(board, shape, changed_);
  for (const NodeIndex node : changed_) board.scores[leaf_of_[node]] = now(node);
  for (std::size_t group = 0; group < groups_; ++group) {
    board.winners[groups_ + group] = best_of_group(board, group);
  }
  for (std::size_t i = groups_ - 1; i > 0; --i) board.winners[i] = better(board, i);
}

// A leaf has another score. Where another one was and is the best, nothing changes above.
void Index::change(Board& board, Leaf leaf, float score) const {
  board.scores[leaf] = score;
  std::size_t place = groups_ + leaf / kGroup;
  Leaf best = best_of_group(board, leaf / kGroup);
  while (best == leaf || best != board.winners[place]) {
    board.winners[place] = best;
    place /= 2;
    if (place == 0) return;
    best = better(board, place);
  }
}

Index::Leaf Index::best_of_group(const Board& board, std::size_t group) const {
  const auto [first, last] = leaves_of(group, board.scores.size());
  Leaf best = first;
  for (Leaf leaf = first + 1; leaf < last; ++leaf) {
    if (beats(board, leaf, best)) best = leaf;
  }
  return best;
}

// The winner of the two places below.
Index::Leaf Index::better(const Board& board, std::size_t place) const {
  const Leaf left = board.winners[2 * place];
  const Leaf right = board.winners[2 * place + 1];
  return beats(board, right, left) ? right : left;
}

// Ties go to the lower node index.
bool Index::beats(const Board& board, Leaf leaf, Leaf other) const {
  const float score = board.scores[leaf];
  const float than = board.scores[other];
  return score > than || (score == than && node_at_[leaf] < node_at_[other]);
}

}  // namespace aliquot::core
