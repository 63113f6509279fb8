// Graphs: operations in the order they were added, which always respects their dependencies. Built
// by hand or captured from a stream; a launch enqueues them one by one. What the memory nodes need
// is taken with the first upload or launch; only cuDeviceGraphMemTrim gives it back.
#pragma once

#include <memory>
#include <vector>

#include "standin/cuda/stream.hpp"

namespace aliquot::standin {

// Numbered as the driver does.
enum class NodeType : int { kernel, memcpy, memset, host, graph, empty, allocate = 10, free };

struct GraphNode {
  NodeType type;
  Operation operation;
  CUdeviceptr address = 0;  // of memory nodes
  std::size_t size = 0;
  unsigned gpu = 0;
};

struct Graph {
  std::vector<std::unique_ptr<GraphNode>> nodes;
};

struct GraphExec {
  std::vector<GraphNode> nodes;
};

CUresult capture_operation(Stream* stream, Operation operation);
CUresult capture_allocate(Stream* stream, std::size_t size, CUdeviceptr* out);
CUresult capture_free(Stream* stream, CUdeviceptr address);
void capture_abandon(Stream* stream);
void graph_stream_gone(Stream* stream);
// A free outside the graph of what a graph allocated.
void graph_memory_free(unsigned gpu, CUdeviceptr address);

}  // namespace aliquot::standin
