// The folder through which a job is told its limits and says what it uses (enforce/abi.h): written
// here, mapped by libaliquot.so in the job. `limits` is ours and readable; `usage` is the job's
// user's to write.
//
// What a job writes is not trusted. It is read by copying and never mapped, because its owner could
// truncate the file meanwhile, and no number in it is used as an index unchecked. We do not write
// to it either: the sums here leave out processes that died, and the library clears them when it
// needs room.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/ids.hpp"
#include "base/result.hpp"
#include "base/units.hpp"
#include "core/enforcement.hpp"
#include "core/grant.hpp"
#include "node/process_tree.hpp"
#include "node/spawn.hpp"
#include "sys/fd.hpp"

namespace aliquot::node {

struct LeasePlace {
  std::filesystem::path board;
  std::uint32_t slot = 0;
  friend bool operator==(const LeasePlace&, const LeasePlace&) = default;
};

// What is held of one GPU, with its place on the GPU's lease board.
struct LeasedGpu : core::GrantedGpu {
  std::optional<LeasePlace> lease = {};
};

// How a grant is held to, as it was decided when it was made.
struct HeldHow {
  core::FaultDomain domain = core::FaultDomain::user;
  bool library = false;
  std::filesystem::path pipes = {};  // of its MPS server; empty: none
  std::optional<std::int64_t> thread_percentage = {};
  std::optional<Bytes> pinned_limit = {};
  bool late = false;  // some of its processes were there before it

  friend bool operator==(const HeldHow&, const HeldHow&) = default;
};

// What one living process of a job has in flight on a GPU.
struct FlightUsage {
  std::pair<std::uint32_t, std::uint32_t> process;  // slot and generation
  std::uint64_t launched = 0;
  std::uint64_t completed = 0;
  bool waiting = false;        // at its gate
  bool in_wait = false;        // for the GPU, in the driver
  std::int64_t looked_ns = 0;  // CLOCK_MONOTONIC: when it last looked what is over
  double busy = 1;             // part of the time in which the GPU has work between two launches
  double launch_ns = 0;        // how long a launch takes by itself; 0: not known
};

struct GpuUsage {
  Bytes memory;  // of the processes that live
  Bytes memory_peak;
  std::int64_t gpu_ns = 0;  // of all, also those that are gone
  std::int64_t launches = 0;
  std::int64_t refusals = 0;
  std::int64_t waited_ns = 0;  // at the closed gate
  Bytes orphaned = Bytes(0);   // what descriptors of processes that are gone may hold
  // Of the processes that live:
  std::vector<FlightUsage> flights;  // of those that launch
  std::int64_t last_launch_ns = 0;   // CLOCK_MONOTONIC; 0: never
};

class GrantFolder {
 public:
  // root is ours; users walk through it.
  // leases: for each GPU of the grant, or none at all.
  static Result<GrantFolder> create(const std::filesystem::path& root, const core::Grant& grant,
                                    const std::vector<std::optional<LeasePlace>>& leases,
                                    const HeldHow& how);
  // After a restart of the daemon. The job's user may have seen to it that `usage` cannot be opened
  // (a lease): then nothing is heard of the job until it can.
  static Result<GrantFolder> open(const std::filesystem::path& root, const HolderId& job);
  static void remove(const std::filesystem::path& root, const HolderId& job);
  static std::vector<HolderId> list(const std::filesystem::path& root);

  // Other portions of the same GPUs, in place: processes that run have them at once.
  Result<void> correct(const core::Grant& grant, const HeldHow& how);

  [[nodiscard]] const std::filesystem::path& path() const { return path_; }
  [[nodiscard]] const std::vector<LeasedGpu>& gpus() const { return gpus_; }

  // After a restart of the daemon. A value that is not written there is as in usual.
  [[nodiscard]] static HeldHow read_how(const std::filesystem::path& root, const HolderId& holder,
                                        HeldHow usual);

  // One for each GPU of the grant. Not for several threads: each opens a GrantFolder of its own.
  std::vector<GpuUsage> usage();
  struct Member {
    Pid pid;
    std::vector<Bytes> charged;  // what it says it holds, one for each GPU of the grant
  };
  // The processes that have registered and live. The kernel names them, by the locks they hold.
  std::vector<Member> members();
  // Whether members() has named all of them when it was last asked.
  [[nodiscard]] bool heard() const { return bool(usage_) && rest_until_ns_ == 0; }
  // Cuts `usage` back to its size: the user owns the file and could fill the daemon's file system.
  // True: it had grown.
  bool cut_back();
  // Looks which processes are dead. Until the next call, usage() leaves those out and no others.
  void find_dead();

 private:
  GrantFolder(std::filesystem::path path, std::vector<LeasedGpu> gpus, sys::Fd usage)
      : path_(std::move(path)), gpus_(std::move(gpus)), usage_(std::move(usage)) {}
  // As much of the file as may be in use, or nothing.
  bool copy();
  // Who holds the slots' locks.
  std::vector<std::optional<Pid>> holders();

  std::filesystem::path path_;
  std::vector<LeasedGpu> gpus_;
  sys::Fd usage_;
  std::vector<std::uint64_t> copy_;  // of the file, in words for the alignment
  std::uint32_t slots_ = 0;          // that are in it
  std::set<std::pair<std::uint32_t, std::uint32_t>> dead_;  // slot and generation
  std::int64_t rest_until_ns_ = 0;  // CLOCK_MONOTONIC: before it nobody asks for locks
};

// The name of a holder's folder: HolderId as it is, but for a '/', which no name of a file has.
std::string folder_name(const HolderId& holder);

// "GPU-8178b55f-6126-…" as the 16 bytes that CUDA has.
std::optional<std::vector<std::uint8_t>> uuid_bytes(const GpuId& gpu);

}  // namespace aliquot::node
