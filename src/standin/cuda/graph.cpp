#include "standin/cuda/graph.hpp"

#include <algorithm>
#include <map>
#include <set>

#include "standin/cuda/kernel.hpp"
#include "standin/cuda/memory.hpp"

namespace aliquot::standin {
namespace {

constexpr std::uint64_t kPiece = 32ULL << 20;

// Graphs of one stream share what they need; those of several need it each. Nothing of it goes back
// before it is trimmed.
struct GraphMemory {
  std::map<Stream*, std::uint64_t> stock;
  std::map<CUdeviceptr, std::uint64_t> kept;  // not freed by the graph that allocated it
  std::uint64_t reserved = 0, reserved_high = 0;
};

GraphMemory& graph_memory(unsigned gpu) {
  static auto* const memory = new GraphMemory[kMaxGpus];
  return memory[gpu];
}

// Makes the charge what the stock and the kept need.
CUresult settle(unsigned gpu) {
  GraphMemory& m = graph_memory(gpu);
  std::uint64_t wanted = 0;
  for (const auto& [stream, bytes] : m.stock) wanted += bytes;
  for (const auto& [address, bytes] : m.kept) wanted += bytes;
  if (wanted > m.reserved)
    if (const CUresult r = Driver::instance().charge(gpu, wanted - m.reserved); r != kSuccess)
      return r;
  if (wanted < m.reserved) Driver::instance().refund(gpu, m.reserved - wanted);
  m.reserved = wanted;
  m.reserved_high = std::max(m.reserved_high, wanted);
  return kSuccess;
}

// What the nodes of one GPU need, one after the other: an allocation has the place of a freed one
// that is large enough, or a new one. Small ones share a piece.
std::uint64_t need_of(const std::vector<GraphNode>& nodes, unsigned gpu,
                      std::map<CUdeviceptr, std::uint64_t>* kept) {
  std::multiset<std::uint64_t> free_places;
  std::map<CUdeviceptr, std::uint64_t> live;
  std::uint64_t small = 0;
  std::uint64_t large = 0;
  for (const GraphNode& node : nodes) {
    if (node.gpu != gpu) continue;
    if (node.type == NodeType::free && live.contains(node.address)) {
      free_places.insert(live[node.address]);
      live.erase(node.address);
    }
    if (node.type != NodeType::allocate) continue;
    auto place = free_places.lower_bound(node.size);
    std::uint64_t size = node.size;
    if (place != free_places.end()) {
      size = *place;
      free_places.erase(place);
    } else if (size < kPiece) {
      small += size;
    } else {
      large += round_up(size, kPiece);
    }
    live[node.address] = size;
  }
  for (const auto& [address, size] : live) (*kept)[address] = round_up(size, kPiece);
  return large + round_up(small, kPiece);
}

// Before the first node of a launch or upload.
CUresult graph_memory_take(const GraphExec& exec, Stream* stream) {
  const std::lock_guard lock(Driver::instance().mutex);
  for (unsigned gpu = 0; gpu < kMaxGpus; ++gpu) {
    std::map<CUdeviceptr, std::uint64_t> kept;
    std::uint64_t need = need_of(exec.nodes, gpu, &kept);
    if (need == 0) continue;
    GraphMemory& m = graph_memory(gpu);
    const GraphMemory before = m;
    for (const auto& [address, bytes] : kept) {
      m.kept[address] = bytes;
      need -= std::min(need, bytes);
    }
    m.stock[stream] = std::max(m.stock[stream], need);
    if (const CUresult r = settle(gpu); r != kSuccess) {
      m = before;
      return r;
    }
  }
  return kSuccess;
}

GraphNode* add(Graph* graph, NodeType type, Operation operation = {}) {
  graph->nodes.push_back(std::make_unique<GraphNode>(GraphNode{type, std::move(operation)}));
  return graph->nodes.back().get();
}

CUresult add_allocation(Graph* graph, Context* context, unsigned gpu, std::size_t size,
                        GraphNode** out) {
  if (size == 0) return kInvalidValue;
  Block block;
  block.kind = BlockKind::graph;
  block.size = size;
  block.context = context;
  block.gpu = gpu;
  block.backed = size <= kBackedLimit;
  block.base = reinterpret_cast<std::uintptr_t>(reserve_range(size, block.backed));
  if (block.base == 0) return kOutOfMemory;
  memory_insert(block);
  *out = add(graph, NodeType::allocate);
  (*out)->address = block.base;
  (*out)->size = size;
  (*out)->gpu = gpu;
  return kSuccess;
}

CUresult add_free(Graph* graph, CUdeviceptr address, GraphNode** out) {
  const Block* block = memory_find(address);
  if (block == nullptr || block->kind != BlockKind::graph) return kInvalidValue;
  *out = add(graph, NodeType::free);
  (*out)->address = address;
  (*out)->size = block->size;
  (*out)->gpu = block->gpu;
  return kSuccess;
}

CUresult instantiate(CUgraphExec* out, CUgraph graph) {
  if (const CUresult r = Driver::instance().ready(); r != kSuccess) return r;
  if (out == nullptr || graph == nullptr) return kInvalidValue;
  *out = new GraphExec;
  for (const auto& node : graph->nodes) (*out)->nodes.push_back(*node);
  return kSuccess;
}

CUresult start(CUgraph* out) {
  if (const CUresult r = Driver::instance().ready(); r != kSuccess) return r;
  return give(out, new Graph);
}

CUresult begin_capture(CUstream stream) {
  Stream* s = nullptr;
  if (const CUresult r = resolve_stream(stream, &s); r != kSuccess) return r;
  // The legacy stream cannot be captured.
  if (s == s->context->legacy.get()) return kCaptureUnsupported;
  if (s->capture != nullptr) return kIllegalState;
  static std::atomic<unsigned long long> ids{1};
  s->capture = new Graph;
  s->capture_broken = false;
  s->capture_id = ids++;
  return kSuccess;
}

CUresult capture_info(CUstream stream, int* status, unsigned long long* id, CUgraph* graph) {
  Stream* s = nullptr;
  if (const CUresult r = resolve_stream(stream, &s); r != kSuccess) return r;
  if (status == nullptr) return kInvalidValue;
  *status = s->capture == nullptr ? 0 : s->capture_broken ? 2 : 1;
  if (id != nullptr) *id = s->capture_id;
  if (graph != nullptr) *graph = s->capture;
  return kSuccess;
}

CUresult launch(CUgraphExec exec, CUstream stream) {
  Stream* s = nullptr;
  if (const CUresult r = resolve_stream(stream, &s); r != kSuccess) return r;
  if (exec == nullptr) return kInvalidValue;
  if (const CUresult r = graph_memory_take(*exec, s); r != kSuccess) return r;
  for (const GraphNode& node : exec->nodes) {
    if (node.type == NodeType::allocate || node.type == NodeType::free) continue;
    if (const CUresult r = enqueue(s, node.operation); r != kSuccess) return r;
  }
  return kSuccess;
}

CUresult add_kernel(CUgraphNode* out, CUgraph graph, const CUDA_KERNEL_NODE_PARAMS* p) {
  Context* context = nullptr;
  if (const CUresult r = Driver::instance().current(&context); r != kSuccess) return r;
  if (out == nullptr || graph == nullptr || p == nullptr) return kInvalidValue;
  Operation operation;
  const Grid grid{p->gridDimX, p->gridDimY, p->gridDimZ, p->blockDimX, p->blockDimY, p->blockDimZ};
  const CUresult r =
      kernel_operation(*context, p->func, grid, p->kernelParams, p->extra, &operation);
  if (r != kSuccess) return r;
  *out = add(graph, NodeType::kernel, std::move(operation));
  return kSuccess;
}

}  // namespace

CUresult capture_operation(Stream* stream, Operation operation) {
  if (stream->capture_broken) return kCaptureInvalidated;
  const NodeType type = operation.host ? NodeType::host : NodeType::kernel;
  add(stream->capture, type, std::move(operation));
  return kSuccess;
}

CUresult capture_allocate(Stream* stream, std::size_t size, CUdeviceptr* out) {
  if (out == nullptr) return kInvalidValue;
  GraphNode* node = nullptr;
  const CUresult r =
      add_allocation(stream->capture, stream->context, stream->context->gpu, size, &node);
  if (r == kSuccess) *out = node->address;
  return r;
}

CUresult capture_free(Stream* stream, CUdeviceptr address) {
  GraphNode* node = nullptr;
  return add_free(stream->capture, address, &node);
}

void capture_abandon(Stream* stream) {
  delete stream->capture;
  stream->capture = nullptr;
}

void graph_stream_gone(Stream* stream) {
  const std::lock_guard lock(Driver::instance().mutex);
  for (unsigned gpu = 0; gpu < kMaxGpus; ++gpu) {
    auto& stock = graph_memory(gpu).stock;
    if (const auto found = stock.find(stream); found != stock.end()) {
      stock[nullptr] += found->second;
      stock.erase(stream);
    }
  }
}

void graph_memory_free(unsigned gpu, CUdeviceptr address) {
  const std::lock_guard lock(Driver::instance().mutex);
  GraphMemory& m = graph_memory(gpu);
  const auto found = m.kept.find(address);
  if (found == m.kept.end()) return;
  // Into the stock, under no stream's name.
  m.stock[nullptr] += found->second;
  m.kept.erase(found);
}

CU_API cuGraphCreate(CUgraph* out, unsigned) { return start(out); }

CU_API cuGraphDestroy(CUgraph graph) {
  if (graph == nullptr) return kInvalidValue;
  delete graph;
  return kSuccess;
}

CU_API cuGraphAddKernelNode(CUgraphNode* out, CUgraph graph, const CUgraphNode*, std::size_t,
                            const CUDA_KERNEL_NODE_PARAMS* p) {
  return add_kernel(out, graph, p);
}

CU_API cuGraphAddKernelNode_v2(CUgraphNode* out, CUgraph graph, const CUgraphNode*, std::size_t,
                               const CUDA_KERNEL_NODE_PARAMS_v2* p) {
  if (p == nullptr) return kInvalidValue;
  CUDA_KERNEL_NODE_PARAMS v1 = p->v1;
  if (v1.func == nullptr) v1.func = p->kern;
  return add_kernel(out, graph, &v1);
}

CU_API cuGraphAddEmptyNode(CUgraphNode* out, CUgraph graph, const CUgraphNode*, std::size_t) {
  return graph == nullptr ? kInvalidValue : give(out, add(graph, NodeType::empty));
}

CU_API cuGraphAddHostNode(CUgraphNode* out, CUgraph graph, const CUgraphNode*, std::size_t,
                          const CUDA_HOST_NODE_PARAMS* p) {
  if (graph == nullptr || p == nullptr) return kInvalidValue;
  Operation operation;
  operation.host = [fn = p->fn, data = p->userData] { fn(data); };
  return give(out, add(graph, NodeType::host, std::move(operation)));
}

CU_API cuGraphAddMemAllocNode(CUgraphNode* out, CUgraph graph, const CUgraphNode*, std::size_t,
                              CUDA_MEM_ALLOC_NODE_PARAMS* p) {
  Driver& driver = Driver::instance();
  Context* context = nullptr;
  if (const CUresult r = driver.current(&context); r != kSuccess) return r;
  if (out == nullptr || graph == nullptr || p == nullptr) return kInvalidValue;
  if (!driver.is_device(p->poolProps.location.id)) return kInvalidDevice;
  const unsigned gpu = driver.gpu_of(p->poolProps.location.id);
  const CUresult r = add_allocation(graph, context, gpu, p->bytesize, out);
  if (r == kSuccess) p->dptr = (*out)->address;
  return r;
}

CU_API cuGraphAddMemFreeNode(CUgraphNode* out, CUgraph graph, const CUgraphNode*, std::size_t,
                             CUdeviceptr address) {
  return out == nullptr || graph == nullptr ? kInvalidValue : add_free(graph, address, out);
}

CU_API cuGraphAddChildGraphNode(CUgraphNode* out, CUgraph graph, const CUgraphNode*, std::size_t,
                                CUgraph child) {
  if (out == nullptr || graph == nullptr || child == nullptr) return kInvalidValue;
  // Flattened: the child's operations run where it stands.
  for (const auto& node : child->nodes) graph->nodes.push_back(std::make_unique<GraphNode>(*node));
  return give(out, add(graph, NodeType::graph));
}

CU_API cuGraphGetNodes(CUgraph graph, CUgraphNode* nodes, std::size_t* count) {
  if (graph == nullptr || count == nullptr) return kInvalidValue;
  if (nodes != nullptr)
    for (std::size_t i = 0; i < *count; ++i)
      nodes[i] = i < graph->nodes.size() ? graph->nodes[i].get() : nullptr;
  *count = graph->nodes.size();
  return kSuccess;
}

CU_API cuGraphNodeGetType(CUgraphNode node, int* type) {
  return node == nullptr ? kInvalidValue : give(type, static_cast<int>(node->type));
}

CU_API cuGraphMemAllocNodeGetParams(CUgraphNode node, CUDA_MEM_ALLOC_NODE_PARAMS* p) {
  if (node == nullptr || p == nullptr || node->type != NodeType::allocate) return kInvalidValue;
  *p = {};
  const auto& visible = Driver::instance().visible();
  for (std::size_t d = 0; d < visible.size(); ++d)
    if (visible[d] == node->gpu) p->poolProps.location = {kLocationDevice, static_cast<int>(d)};
  p->poolProps.allocType = 1;
  p->bytesize = node->size;
  p->dptr = node->address;
  return kSuccess;
}

CU_API cuGraphMemFreeNodeGetParams(CUgraphNode node, CUdeviceptr* address) {
  if (node == nullptr || node->type != NodeType::free) return kInvalidValue;
  return give(address, node->address);
}

// The order in which they were added: each depends on the one before it.
CU_API cuGraphGetEdges(CUgraph graph, CUgraphNode* from, CUgraphNode* to, std::size_t* count) {
  if (graph == nullptr || count == nullptr) return kInvalidValue;
  const std::size_t edges = graph->nodes.empty() ? 0 : graph->nodes.size() - 1;
  for (std::size_t i = 0; from != nullptr && to != nullptr && i < std::min(edges, *count); ++i) {
    from[i] = graph->nodes[i].get();
    to[i] = graph->nodes[i + 1].get();
  }
  *count = edges;
  return kSuccess;
}

CU_API cuGraphInstantiate(CUgraphExec* out, CUgraph graph, CUgraphNode*, char*, std::size_t) {
  return instantiate(out, graph);
}

CU_API cuGraphInstantiate_v2(CUgraphExec* out, CUgraph graph, CUgraphNode*, char*, std::size_t) {
  return instantiate(out, graph);
}

CU_API cuGraphInstantiateWithFlags(CUgraphExec* out, CUgraph graph, unsigned long long) {
  return instantiate(out, graph);
}

CU_API_STREAM(cuGraphInstantiateWithParams, _ptsz,
              (CUgraphExec * out, CUgraph graph, CUDA_GRAPH_INSTANTIATE_PARAMS* p),
              (out, graph, p)) {
  if (p == nullptr) return kInvalidValue;
  p->result_out = 0;
  return instantiate(out, graph);
}

CU_API cuGraphExecDestroy(CUgraphExec exec) {
  if (exec == nullptr) return kInvalidValue;
  delete exec;
  return kSuccess;
}

CU_API_STREAM(cuGraphUpload, _ptsz, (CUgraphExec exec, CUstream stream), (exec, stream)) {
  Stream* s = nullptr;
  if (const CUresult r = resolve_stream(stream, &s); r != kSuccess) return r;
  return exec == nullptr ? kInvalidValue : graph_memory_take(*exec, s);
}

CU_API_STREAM(cuGraphLaunch, _ptsz, (CUgraphExec exec, CUstream stream), (exec, stream)) {
  return launch(exec, stream);
}

CU_API_STREAM(cuStreamBeginCapture, _ptsz, (CUstream stream), (stream)) {
  return begin_capture(stream);
}

CU_API_STREAM(cuStreamBeginCapture_v2, _ptsz, (CUstream stream, int), (stream, 0)) {
  return begin_capture(stream);
}

CU_API_STREAM(cuStreamEndCapture, _ptsz, (CUstream stream, CUgraph* out), (stream, out)) {
  Stream* s = nullptr;
  if (const CUresult r = resolve_stream(stream, &s); r != kSuccess) return r;
  if (s->capture == nullptr) return kIllegalState;
  if (s->capture_broken) {
    capture_abandon(s);
    if (out != nullptr) *out = nullptr;
    return kCaptureInvalidated;
  }
  Graph* graph = s->capture;
  s->capture = nullptr;
  return give(out, graph);
}

CU_API_STREAM(cuStreamIsCapturing, _ptsz, (CUstream stream, int* status), (stream, status)) {
  return capture_info(stream, status, nullptr, nullptr);
}

CU_API_STREAM(cuStreamGetCaptureInfo, _ptsz, (CUstream stream, int* status, unsigned long long* id),
              (stream, status, id)) {
  return capture_info(stream, status, id, nullptr);
}

CU_API_STREAM(cuStreamGetCaptureInfo_v2, _ptsz,
              (CUstream stream, int* status, unsigned long long* id, CUgraph* graph,
               const CUgraphNode** dependencies, std::size_t* count),
              (stream, status, id, graph, dependencies, count)) {
  if (dependencies != nullptr) *dependencies = nullptr;
  if (count != nullptr) *count = 0;
  return capture_info(stream, status, id, graph);
}

CU_API_STREAM(cuStreamGetCaptureInfo_v3, _ptsz,
              (CUstream stream, int* status, unsigned long long* id, CUgraph* graph,
               const CUgraphNode** dependencies, const void** edges, std::size_t* count),
              (stream, status, id, graph, dependencies, edges, count)) {
  if (dependencies != nullptr) *dependencies = nullptr;
  if (edges != nullptr) *edges = nullptr;
  if (count != nullptr) *count = 0;
  return capture_info(stream, status, id, graph);
}

CU_API cuThreadExchangeStreamCaptureMode(int* mode) {
  static thread_local int own = 0;
  if (mode == nullptr) return kInvalidValue;
  std::swap(*mode, own);
  return kSuccess;
}

CU_API cuDeviceGetGraphMemAttribute(CUdevice device, int attribute, void* value) {
  Driver& driver = Driver::instance();
  if (const CUresult r = driver.ready(); r != kSuccess) return r;
  if (!driver.is_device(device)) return kInvalidDevice;
  if (value == nullptr || attribute < 0 || attribute > 3) return kInvalidValue;
  const GraphMemory& m = graph_memory(driver.gpu_of(device));
  // What is in stock counts as used.
  const std::uint64_t numbers[] = {m.reserved, m.reserved_high, m.reserved, m.reserved_high};
  *static_cast<std::uint64_t*>(value) = numbers[attribute];
  return kSuccess;
}

CU_API cuDeviceGraphMemTrim(CUdevice device) {
  Driver& driver = Driver::instance();
  if (const CUresult r = driver.ready(); r != kSuccess) return r;
  if (!driver.is_device(device)) return kInvalidDevice;
  const std::lock_guard lock(driver.mutex);
  // Not what a stream is still at.
  std::erase_if(graph_memory(driver.gpu_of(device)).stock,
                [](const auto& each) { return each.first == nullptr || drained(each.first); });
  return settle(driver.gpu_of(device));
}

}  // namespace aliquot::standin
