#include "enforce/footprint.hpp"

#include <algorithm>

#include <sys/mman.h>

#include "enforce/memory.hpp"

namespace aliquot::enforce {
namespace {

constexpr int kDeepest = 8;
constexpr std::size_t kMostNodes = 1U << 20;
constexpr std::size_t kMostBytes = 256U << 20;  // of our own, to know what comes before what

// Not from the program's malloc, which may be what called us.
template <class T>
class Array {
 public:
  explicit Array(std::size_t count) : bytes_(count * sizeof(T)) {
    if (bytes_ == 0) return;
    void* memory =
        mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory != MAP_FAILED) all_ = static_cast<T*>(memory);
  }
  ~Array() {
    if (all_ != nullptr) (void)munmap(all_, bytes_);
  }
  Array(const Array&) = delete;
  Array& operator=(const Array&) = delete;
  explicit operator bool() const { return bytes_ == 0 || all_ != nullptr; }
  T& operator[](std::size_t i) { return all_[i]; }
  T* begin() { return all_; }

 private:
  std::size_t bytes_;
  T* all_ = nullptr;
};

enum NodeKind : std::uint32_t { node_other, node_alloc, node_free };

struct Node {
  CUgraphNode handle;
  NodeKind kind;
  int gpu;
  std::uint64_t size;
  CUdeviceptr address;
  std::size_t free_number;  // among the frees
  std::size_t waits_for;    // edges into it that are not passed yet
};

// A place for an allocation, and then for others.
struct Place {
  int gpu;
  std::uint64_t size;
  CUdeviceptr address;
  bool taken;
  std::size_t freed_by;
};

class Plan {
 public:
  Plan(CUgraph graph, std::size_t count, std::size_t edges, Footprint* out)
      : graph_(graph),
        count_(count),
        edges_(edges),
        out_(out),
        nodes_(count),
        from_(edges),
        to_(edges) {}

  void add(bool ordered, int depth);

 private:
  bool read_nodes(int depth);
  bool read_edges();
  bool lay_out();
  void sum_up();
  bool assign();
  void allocate(const Node& node);
  void release(const Node& node);
  bool comes_before(std::size_t node, std::size_t free_number);
  std::size_t index_of(CUgraphNode handle);

  CUgraph graph_;
  std::size_t count_;
  std::size_t edges_;
  Footprint* out_;
  Array<Node> nodes_;
  Array<CUgraphNode> from_;
  Array<CUgraphNode> to_;
  std::size_t allocs_ = 0;
  std::size_t frees_ = 0;
  // While places are assigned:
  std::uint64_t* before_ = nullptr;  // a row of bits for each node: the frees that come before it
  std::size_t words_ = 0;
  Place* places_ = nullptr;
  std::size_t place_count_ = 0;
};

void add_at_depth(CUgraph graph, Footprint* out, int depth) {
  std::size_t count = 0;
  if (depth > kDeepest || real::cuGraphGetNodes(graph, nullptr, &count) != kSuccess || count == 0 ||
      count > kMostNodes)
    return;
  std::size_t edges = 0;
  if (real::cuGraphGetEdges(graph, nullptr, nullptr, &edges) != kSuccess &&
      real::cuGraphGetEdges_v2(graph, nullptr, nullptr, nullptr, &edges) != kSuccess)
    edges = SIZE_MAX;
  const bool ordered = edges <= kMostNodes * 4;
  Plan(graph, count, ordered ? edges : 0, out).add(ordered, depth);
}

bool Plan::read_nodes(int depth) {
  Array<CUgraphNode> handles(count_);
  std::size_t count = count_;
  if (!handles || !nodes_ || real::cuGraphGetNodes(graph_, handles.begin(), &count) != kSuccess)
    return false;
  for (std::size_t i = 0; i < count_; ++i) {
    Node& node = nodes_[i];
    node = {handles[i], node_other, kNoGpu, 0, 0, 0, 0};
    int type = -1;
    if (real::cuGraphNodeGetType(node.handle, &type) != kSuccess) continue;
    CUgraph child = nullptr;
    CUDA_MEM_ALLOC_NODE_PARAMS params{};
    if (type == kNodeGraph) {
      // A child's memory is its own.
      if (real::cuGraphChildGraphNodeGetGraph(node.handle, &child) == kSuccess)
        add_at_depth(child, out_, depth + 1);
    } else if (type == kNodeMemAlloc) {
      if (real::cuGraphMemAllocNodeGetParams(node.handle, &params) != kSuccess) continue;
      node.gpu = gpu_of_device(params.poolProps.location.id);
      if (node.gpu < 0) continue;
      node.kind = node_alloc;
      node.size = params.bytesize;
      node.address = params.dptr;
      out_->device[node.gpu] = params.poolProps.location.id;
      ++allocs_;
    } else if (type == kNodeMemFree &&
               real::cuGraphMemFreeNodeGetParams(node.handle, &node.address) == kSuccess) {
      node.kind = node_free;
      node.free_number = frees_++;
    }
  }
  return true;
}

bool Plan::read_edges() {
  std::size_t count = edges_;
  if (edges_ == 0) return true;
  if (!from_ || !to_) return false;
  if (real::cuGraphGetEdges(graph_, from_.begin(), to_.begin(), &count) == kSuccess)
    return count == edges_;
  Array<char> data(edges_ * kEdgeDataBytes);
  count = edges_;
  return data &&
         real::cuGraphGetEdges_v2(graph_, from_.begin(), to_.begin(), data.begin(), &count) ==
             kSuccess &&
         count == edges_;
}

std::size_t Plan::index_of(CUgraphNode handle) {
  const Node* found =
      std::lower_bound(nodes_.begin(), nodes_.begin() + count_, handle,
                       [](const Node& node, CUgraphNode key) { return node.handle < key; });
  return static_cast<std::size_t>(found - nodes_.begin());
}

bool Plan::comes_before(std::size_t node, std::size_t free_number) {
  return (before_[node * words_ + free_number / 64] >> (free_number % 64) & 1U) != 0;
}

void Plan::allocate(const Node& node) {
  const std::size_t index = static_cast<std::size_t>(&node - nodes_.begin());
  Place* best = nullptr;
  for (std::size_t i = 0; i < place_count_; ++i) {
    Place& place = places_[i];
    if (!place.taken && place.gpu == node.gpu && place.size >= node.size &&
        (best == nullptr || place.size < best->size) && comes_before(index, place.freed_by))
      best = &place;
  }
  if (best == nullptr) {
    best = &places_[place_count_++];
    best->gpu = node.gpu;
    best->size = node.size;
  }
  best->taken = true;
  best->address = node.address;
}

void Plan::release(const Node& node) {
  for (std::size_t i = 0; i < place_count_; ++i) {
    Place& place = places_[i];
    if (!place.taken || place.address != node.address) continue;
    place.taken = false;
    place.freed_by = node.free_number;
    return;
  }
}

// Node after node, each when all that it waits for are done.
bool Plan::assign() {
  Array<std::size_t> first(count_ + 1);  // of each node's edges in `next`
  Array<std::size_t> next(edges_);
  Array<std::size_t> ready(count_);
  if (!first || !next || !ready) return false;
  for (std::size_t e = 0; e < edges_; ++e) {
    const std::size_t from = index_of(from_[e]);
    const std::size_t to = index_of(to_[e]);
    if (from >= count_ || to >= count_) return false;
    ++first[from + 1];
    ++nodes_[to].waits_for;
  }
  for (std::size_t i = 0; i < count_; ++i) first[i + 1] += first[i];
  {
    Array<std::size_t> filled(count_);
    if (!filled) return false;
    for (std::size_t e = 0; e < edges_; ++e) {
      const std::size_t from = index_of(from_[e]);
      next[first[from] + filled[from]++] = index_of(to_[e]);
    }
  }
  std::size_t end = 0;
  for (std::size_t i = 0; i < count_; ++i)
    if (nodes_[i].waits_for == 0) ready[end++] = i;
  for (std::size_t at = 0; at < end; ++at) {
    const std::size_t index = ready[at];
    const Node& node = nodes_[index];
    if (node.kind == node_alloc) allocate(node);
    if (node.kind == node_free) release(node);
    for (std::size_t e = first[index]; e < first[index + 1]; ++e) {
      std::uint64_t* row = before_ + next[e] * words_;
      for (std::size_t w = 0; w < words_; ++w) row[w] |= before_[index * words_ + w];
      if (node.kind == node_free) row[node.free_number / 64] |= 1ULL << (node.free_number % 64);
      if (--nodes_[next[e]].waits_for == 0) ready[end++] = next[e];
    }
  }
  return end == count_;
}

bool Plan::lay_out() {
  words_ = frees_ / 64 + 1;
  if (count_ * words_ > kMostBytes / sizeof(std::uint64_t)) return false;
  std::sort(nodes_.begin(), nodes_.begin() + count_,
            [](const Node& a, const Node& b) { return a.handle < b.handle; });
  Array<std::uint64_t> before(count_ * words_);
  Array<Place> places(allocs_);
  if (!before || !places) return false;
  before_ = before.begin();
  places_ = places.begin();
  if (!read_edges() || !assign()) return false;
  std::uint64_t small[ALIQUOT_MAX_GPUS] = {};
  for (std::size_t i = 0; i < place_count_; ++i) {
    const Place& place = places_[i];
    // Small ones share a piece.
    if (place.size < kPoolPiece)
      small[place.gpu] += round_up(place.size, kSmallPiece);
    else
      out_->bytes[place.gpu] += round_up(place.size, kPoolPiece);
    out_->kept[place.gpu] |= place.taken;
  }
  for (int gpu = 0; gpu < ALIQUOT_MAX_GPUS; ++gpu)
    out_->bytes[gpu] += round_up(small[gpu], kPoolPiece);
  return true;
}

// Nothing is known of the order: each has a place of its own.
void Plan::sum_up() {
  for (std::size_t i = 0; i < count_; ++i) {
    const Node& node = nodes_[i];
    if (node.kind != node_alloc) continue;
    out_->bytes[node.gpu] += round_up(node.size, kPoolPiece);
    out_->kept[node.gpu] = true;
  }
}

void Plan::add(bool ordered, int depth) {
  if (!read_nodes(depth) || allocs_ == 0) return;
  if (!ordered || !lay_out()) sum_up();
}

}  // namespace

void add_footprint(CUgraph graph, Footprint* out) { add_at_depth(graph, out, 0); }

}  // namespace aliquot::enforce
