// The folder through which a job is told its limits and says what it uses (enforce/abi.h): written
// here, mapped by libaliquot.so in the job. `limits` is ours and readable; `usage` is the job's
// user's to write.
//
// What a job writes is hearsay: it is read by copying, never mapped (its owner could truncate the
// file under us), and no number in it is trusted as an index. Nothing is written into it either:
// processes that died are left out of the sums here, and cleared by the library when it needs room.
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
#include "node/process.hpp"
#include "node/spawn.hpp"

namespace aliquot::node {

struct LeasePlace {
  std::filesystem::path board;
  std::uint32_t slot = 0;
  friend bool operator==(const LeasePlace&, const LeasePlace&) = default;
};

struct GpuGrant {
  GpuId gpu;
  Bytes memory;  // 0: no limit
  Compute compute;
  std::optional<LeasePlace> lease = {};
};

struct GrantSpec {
  JobId job;
  std::int64_t attempt = 0;
  Uid uid;
  Gid gid;
  std::vector<GpuGrant> gpus;
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
  // Of the processes that live:
  std::vector<FlightUsage> flights;  // of those that launch
  std::int64_t last_launch_ns = 0;   // CLOCK_MONOTONIC; 0: never
};

class GrantFolder {
 public:
  // root is ours; users walk through it.
  static Result<GrantFolder> create(const std::filesystem::path& root, const GrantSpec& spec);
  // After a restart of the daemon.
  static Result<GrantFolder> open(const std::filesystem::path& root, JobId job);
  static void remove(const std::filesystem::path& root, JobId job);
  static std::vector<JobId> list(const std::filesystem::path& root);

  [[nodiscard]] const std::filesystem::path& path() const { return path_; }
  [[nodiscard]] const std::vector<GpuGrant>& gpus() const { return gpus_; }

  // One for each GPU of the grant. Not thread-safe: who reads often has a folder of its own.
  std::vector<GpuUsage> usage();
  struct Member {
    Pid pid;
    std::vector<Bytes> charged;  // what it says it holds, one for each GPU of the grant
  };
  // The processes that have registered and live, by the locks they hold: the kernel says who that
  // is.
  std::vector<Member> members();
  // Looks again which processes are dead; between two calls they are taken for what they were.
  void find_dead();

 private:
  GrantFolder(std::filesystem::path path, std::vector<GpuGrant> gpus, Fd usage)
      : path_(std::move(path)), gpus_(std::move(gpus)), usage_(std::move(usage)) {}
  // As much of the file as may be in use, or nothing.
  bool copy();
  // Who holds a slot's lock.
  [[nodiscard]] std::optional<Pid> holder(std::uint32_t slot) const;

  std::filesystem::path path_;
  std::vector<GpuGrant> gpus_;
  Fd usage_;
  std::vector<std::uint64_t> copy_;  // of the file, in words for the alignment
  std::uint32_t slots_ = 0;          // that are in it
  std::set<std::pair<std::uint32_t, std::uint32_t>> dead_;  // slot and generation
};

// "GPU-8178b55f-6126-…" as the 16 bytes that CUDA has.
std::optional<std::vector<std::uint8_t>> uuid_bytes(const GpuId& gpu);

}  // namespace aliquot::node
