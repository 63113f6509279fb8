// What graphs allocate when they run. As measured (H200, driver 580): nothing is taken when a graph
// is instantiated; with its first upload or launch the driver takes what the graph needs, in pieces
// of 32 MiB, and keeps it in stock until it is trimmed. Graphs on one stream share the stock; on
// several each may need its own. So before a launch the most that the stock can grow by is
// reserved, and afterwards the driver says what it has (footprint.hpp tells what a graph needs).
#include "enforce/footprint.hpp"
#include "enforce/memory.hpp"
#include "enforce/overhead.hpp"
#include "enforce/reset.hpp"

namespace aliquot::enforce {
namespace {

constexpr std::size_t kMostStreams = 16;

struct Stock {
  bool used;
  CUdevice device;
  std::uint64_t charged;  // what the driver has, and more while a launch is under way
  // Since the stock was last empty:
  std::uint32_t age;    // counts how often it was
  std::uint64_t needs;  // of all graphs launched, also those that are gone
  bool apart;           // on several streams, or with memory that outlives its graph
  std::size_t streams;  // on which they were launched
  CUstream stream[kMostStreams];
};

Lock lock;  // held over the launch: the stock must not move in between
Table
    execs;  // key: graph + GPU; size: need; owner: its memory may outlive it; kind: age counted in
Stock stocks[ALIQUOT_MAX_GPUS];

std::uint64_t key_of(CUgraphExec exec, int gpu) {
  return reinterpret_cast<std::uintptr_t>(exec) + static_cast<unsigned>(gpu);
}

void settle(int gpu) {
  Stock& stock = stocks[gpu];
  std::uint64_t reserved = 0;
  if (!stock.used || real::cuDeviceGetGraphMemAttribute(stock.device, kGraphReservedCurrent,
                                                        &reserved) != kSuccess)
    return;
  (void)change_charge(gpu, &stock.charged, reserved);
  if (reserved != 0) return;
  ++stock.age;
  stock.needs = 0;
  stock.apart = false;
  stock.streams = 0;
}

void launched_on(Stock& stock, CUstream stream) {
  for (std::size_t i = 0; i < stock.streams; ++i)
    if (stock.stream[i] == stream) return;
  stock.apart |= stock.streams > 0;
  if (stock.streams < kMostStreams) stock.stream[stock.streams++] = stream;
}

// By how much the stock may grow when this graph runs.
std::uint64_t growth(Stock& stock, Record& exec, CUstream stream) {
  stock.apart |= exec.owner != 0;
  launched_on(stock, stream);
  if (exec.kind != stock.age) {
    exec.kind = stock.age;
    stock.needs += exec.size;
  }
  const std::uint64_t most = stock.apart ? stock.needs : exec.size;
  const std::uint64_t more = most > stock.charged ? most - stock.charged : 0;
  return more < exec.size ? more : exec.size;
}

CUresult launch_once(CUgraphExec exec, CUresult (*call)(CUgraphExec, CUstream), CUstream stream,
                     int* short_of) {
  const Hold hold(lock);
  for (int gpu = 0; gpu < ALIQUOT_MAX_GPUS; ++gpu) {
    Record* need = stocks[gpu].used ? execs.find(key_of(exec, gpu)) : nullptr;
    if (need == nullptr) continue;
    settle(gpu);
    const std::uint64_t more = growth(stocks[gpu], *need, stream);
    *short_of = gpu;
    if (!reserve(gpu, more)) return kRefused;
    stocks[gpu].charged += more;
  }
  const CUresult r = call(exec, stream);
  for (int gpu = 0; gpu < ALIQUOT_MAX_GPUS; ++gpu) settle(gpu);
  return r;
}

template <class Call>
CUresult instantiate(CUgraphExec* out, CUgraph graph, Call call) {
  const bool ours = governed();
  const CUresult r = call();
  if (!ours || r != kSuccess || out == nullptr) return r;
  Footprint footprint{};
  add_footprint(graph, &footprint);
  const Hold hold(lock);
  for (int gpu = 0; gpu < ALIQUOT_MAX_GPUS; ++gpu) {
    if (footprint.bytes[gpu] == 0) continue;
    Stock& stock = stocks[gpu];
    stock.used = true;
    stock.device = footprint.device[gpu];
    (void)execs.insert({key_of(*out, gpu), footprint.bytes[gpu], footprint.kept[gpu] ? 1U : 0U, gpu,
                        stock.age - 1});
  }
  return r;
}

}  // namespace

void reset_graphs() {
  lock = {};
  execs.reset();
  for (Stock& stock : stocks) stock = {};
}

void settle_graphs() {
  if (execs.size() == 0) return;
  const Hold hold(lock);
  for (int gpu = 0; gpu < ALIQUOT_MAX_GPUS; ++gpu) settle(gpu);
}

void trim_graphs(int gpu) {
  if (!__atomic_load_n(&stocks[gpu].used, __ATOMIC_RELAXED)) return;
  const Hold hold(lock);
  (void)real::cuDeviceGraphMemTrim(stocks[gpu].device);
  settle(gpu);
}

void wait_for_graphs(int gpu, std::uint64_t until_ns) {
  if (gpu < 0 || !__atomic_load_n(&stocks[gpu].used, __ATOMIC_RELAXED)) return;
  Stock copy{};
  {
    const Hold hold(lock);
    copy = stocks[gpu];
  }
  for (std::size_t i = 0; i < copy.streams; ++i) (void)wait_for_stream(copy.stream[i], until_ns);
}

void graphs_stream_gone(CUstream stream) {
  if (execs.size() == 0) return;
  const Hold hold(lock);
  for (Stock& stock : stocks)
    for (std::size_t i = 0; i < stock.streams; ++i)
      if (stock.stream[i] == stream) {
        stock.stream[i] = stock.stream[--stock.streams];
        stock.apart = true;  // what it had on that stream is still there
      }
}

CUresult with_graph_memory(CUgraphExec exec, CUresult (*call)(CUgraphExec, CUstream),
                           CUstream stream) {
  // In a capture nothing runs.
  if (execs.size() == 0 || is_capturing(stream)) return call(exec, stream);
  int gpu = kNoGpu;
  CUresult r = launch_once(exec, call, stream, &gpu);
  if (r != kRefused) return r;
  return persevere(gpu, [&] { return launch_once(exec, call, stream, &gpu); });
}

ALIQUOT_HOOK cuDeviceGraphMemTrim(CUdevice device) {
  const bool ours = governed();
  const CUresult r = real::cuDeviceGraphMemTrim(device);
  if (ours) settle_graphs();
  return r;
}

ALIQUOT_HOOK cuGraphInstantiate(CUgraphExec* out, CUgraph graph, CUgraphNode* node, char* log,
                                std::size_t size) {
  return instantiate(out, graph,
                     [&] { return real::cuGraphInstantiate(out, graph, node, log, size); });
}

ALIQUOT_HOOK cuGraphInstantiate_v2(CUgraphExec* out, CUgraph graph, CUgraphNode* node, char* log,
                                   std::size_t size) {
  return instantiate(out, graph,
                     [&] { return real::cuGraphInstantiate_v2(out, graph, node, log, size); });
}

ALIQUOT_HOOK cuGraphInstantiateWithFlags(CUgraphExec* out, CUgraph graph,
                                         unsigned long long flags) {
  return instantiate(out, graph,
                     [&] { return real::cuGraphInstantiateWithFlags(out, graph, flags); });
}

ALIQUOT_HOOK cuGraphInstantiateWithParams(CUgraphExec* out, CUgraph graph, void* params) {
  return instantiate(out, graph,
                     [&] { return real::cuGraphInstantiateWithParams(out, graph, params); });
}

ALIQUOT_HOOK cuGraphInstantiateWithParams_ptsz(CUgraphExec* out, CUgraph graph, void* params) {
  return instantiate(out, graph,
                     [&] { return real::cuGraphInstantiateWithParams_ptsz(out, graph, params); });
}

ALIQUOT_HOOK cuGraphExecDestroy(CUgraphExec exec) {
  const bool ours = governed();
  const CUresult r = real::cuGraphExecDestroy(exec);
  if (!ours || r != kSuccess || execs.size() == 0) return r;
  const Hold hold(lock);
  for (int gpu = 0; gpu < ALIQUOT_MAX_GPUS; ++gpu) {
    Record gone{};
    (void)execs.remove(key_of(exec, gpu), &gone);
    settle(gpu);
  }
  return r;
}

ALIQUOT_HOOK cuGraphUpload(CUgraphExec exec, CUstream stream) {
  return governed() ? with_graph_memory(exec, real::cuGraphUpload, stream)
                    : real::cuGraphUpload(exec, stream);
}

ALIQUOT_HOOK cuGraphUpload_ptsz(CUgraphExec exec, CUstream stream) {
  return governed() ? with_graph_memory(exec, real::cuGraphUpload_ptsz, stream)
                    : real::cuGraphUpload_ptsz(exec, stream);
}

}  // namespace aliquot::enforce
