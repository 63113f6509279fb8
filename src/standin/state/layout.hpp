// What all processes on a simulated machine share, as it lies in the state file. Plain data of
// fixed places: a process only ever changes its own slot and the GPUs' compute state, under State's
// lock, so that a process killed anywhere leaves nothing to repair.
#pragma once

#include <pthread.h>
#include <sys/types.h>

#include <cstdint>

namespace aliquot::standin {

inline constexpr unsigned kMaxGpus = 16;
inline constexpr unsigned kMaxProcesses = 512;
inline constexpr unsigned kMaxLanes = 512;
inline constexpr unsigned kMaxProbes = 32;
inline constexpr unsigned kMaxShared = 256;

// An event waits in a lane for the moment its mark is reached.
struct Probe {
  std::uint64_t sequence;
  double mark;
  double when;  // 0 = not yet
};

// One stream of one process on one GPU: work in nanoseconds that the GPU would need if it ran it
// alone.
struct Lane {
  bool open;
  std::int32_t client;  // slot of the process
  std::int32_t group;   // slot of its MPS server, or of the process itself
  double cap;           // active thread percentage as a fraction
  double width;         // fraction of the GPU that its kernels can fill; 0: a copy engine does it
  double length;        // of one of its kernels, on average
  double submitted, done;
  double rate;  // of done, while the model steps
  std::uint64_t next_probe;
  Probe probes[kMaxProbes];
};

struct ClientUse {
  double busy;      // ns of GPU time in which something of it ran
  double sm;        // the same, weighted with the fraction of the GPU it filled
  double window;    // busy within the window under way
  double utilized;  // fraction of the last whole window
};

struct GpuCompute {
  double now;
  double window_start, window_busy, utilized;
  double busy;  // ns in which anything ran, since the beginning
  std::uint32_t high_lane;
  Lane lanes[kMaxLanes];
  ClientUse use[kMaxProcesses];
};

struct Gpu {
  std::uint32_t model;
  unsigned char uuid[16];
  std::uint32_t xid;  // last injected error, 0 = none
  std::uint64_t xid_count;
  bool lost;
  std::uint64_t ecc_corrected, ecc_uncorrected;
  std::uint32_t compute_mode;
  std::uint32_t temperature;
  GpuCompute compute;
};

enum class Kind : std::uint32_t { free, plain, client, server };

enum class CheckpointState : std::uint32_t { running, locked, checkpointed, failed };

struct Process {
  Kind kind;
  std::uint32_t generation;
  std::int32_t pid;
  std::uint64_t start_time;
  std::uint64_t image;  // differs after every exec of the same pid
  std::uint32_t uid;
  char name[256];
  std::int32_t server;  // slot, for MPS clients
  std::uint32_t server_generation;
  std::int32_t fault;               // sticky CUresult
  double cap;                       // active thread fraction
  std::uint64_t bytes[kMaxGpus];    // as NVML attributes them
  std::uint64_t managed[kMaxGpus];  // managed memory and the like: on the GPU, attributed to nobody
  std::uint64_t parked[kMaxGpus];   // bytes, while checkpointed
  std::uint64_t parked_managed[kMaxGpus];
  std::uint64_t limit[kMaxGpus];  // MPS pinned memory limit, 0 = none
  std::uint32_t contexts[kMaxGpus];
  CheckpointState checkpoint;
  double left;  // when it was found dead; its memory goes a while later
};

// Memory that others than its owner can hold, by an import or only by a descriptor. It is on the
// GPU while anybody holds it (state/shared.cpp).
struct Shared {
  bool used;
  bool orphan;  // the owner has let go of it, or is gone: in nobody's bytes
  std::uint32_t gpu;
  std::int32_t owner;  // slot
  std::uint32_t owner_generation;
  std::uint64_t bytes;
  std::uint64_t number;   // in the name of its file
  std::int32_t importer;  // the last one, -1 = none: an orphan is attributed to it
  std::uint32_t importer_generation;
};

struct Layout {
  std::uint64_t magic;
  std::uint32_t version;
  std::uint32_t gpu_count;
  double speed;      // simulated seconds per second
  double linger_ns;  // how long the memory of a dead process stays
  char machine[256];
  char devices[256];  // where the GPUs' files are: this and a number; empty: there are none
  pthread_mutex_t mutex;
  Process processes[kMaxProcesses];
  std::uint64_t shared_count;  // ever made
  Shared shared[kMaxShared];
  Gpu gpus[kMaxGpus];
};

inline constexpr std::uint64_t kLayoutMagic = 0x414C4951554F5453ULL;
inline constexpr std::uint32_t kLayoutVersion = 3;

}  // namespace aliquot::standin
