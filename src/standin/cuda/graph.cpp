#include "standin/cuda/graph.hpp"

#include <algorithm>

#include "standin/cuda/kernel.hpp"
#include "standin/cuda/memory.hpp"

namespace aliquot::standin {
namespace {

struct GraphMemory {
  std::uint64_t used = 0, used_high = 0, reserved = 0, reserved_high = 0;
};

GraphMemory& graph_memory(unsigned gpu) {
  static auto* const memory = new GraphMemory[kMaxGpus];
  return memory[gpu];
}

CUresult graph_memory_take(unsigned gpu, std::size_t size) {
  Driver& driver = Driver::instance();
  const std::lock_guard lock(driver.mutex);
  GraphMemory& m = graph_memory(gpu);
  const std::uint64_t used = m.used + round_up(size, kGranularity);
  if (used > m.reserved) {
    if (const CUresult r = driver.charge(gpu, used - m.reserved); r != kSuccess) return r;
    m.reserved = used;
    m.reserved_high = std::max(m.reserved_high, used);
  }
  m.used = used;
  m.used_high = std::max(m.used_high, used);
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
  for (const GraphNode& node : exec->nodes) {
    CUresult r = kSuccess;
    if (node.type == NodeType::allocate)
      r = graph_memory_take(node.gpu, node.size);
    else if (node.type == NodeType::free)
      graph_memory_free(node.gpu, node.size);
    else
      r = enqueue(s, node.operation);
    if (r != kSuccess) return r;
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

void graph_memory_free(unsigned gpu, std::size_t size) {
  const std::lock_guard lock(Driver::instance().mutex);
  GraphMemory& m = graph_memory(gpu);
  m.used -= std::min<std::uint64_t>(m.used, round_up(size, kGranularity));
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
  return exec == nullptr ? kInvalidValue : kSuccess;
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
  const std::uint64_t numbers[] = {m.used, m.used_high, m.reserved, m.reserved_high};
  *static_cast<std::uint64_t*>(value) = numbers[attribute];
  return kSuccess;
}

CU_API cuDeviceGraphMemTrim(CUdevice device) {
  Driver& driver = Driver::instance();
  if (const CUresult r = driver.ready(); r != kSuccess) return r;
  if (!driver.is_device(device)) return kInvalidDevice;
  const std::lock_guard lock(driver.mutex);
  GraphMemory& m = graph_memory(driver.gpu_of(device));
  driver.refund(driver.gpu_of(device), m.reserved - m.used);
  m.reserved = m.used;
  return kSuccess;
}

}  // namespace aliquot::standin
