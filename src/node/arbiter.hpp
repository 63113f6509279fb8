// The thread that shares out time on GPUs where several jobs hold leases: it looks at what the jobs
// are doing, asks core/lease whose turn it is, and opens and closes their gates on the GPU's lease
// board. It costs nothing while no GPU has two such jobs, looks ten times a second while only one
// of them launches anything, and about a thousand times a second while they compete.
//
// Jobs run on without it: a board whose heartbeat stops is not obeyed.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <filesystem>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <thread>
#include <vector>

#include "base/ids.hpp"
#include "base/units.hpp"
#include "core/lease.hpp"
#include "node/grant_folder.hpp"
#include "node/lease_board.hpp"

namespace aliquot::node {

class Arbiter {
 public:
  explicit Arbiter(std::filesystem::path grants);
  Arbiter(const Arbiter&) = delete;
  Arbiter& operator=(const Arbiter&) = delete;
  ~Arbiter();  // opens all gates

  // The leases of a job's grant, whose folder is there. Jobs of one group (an MPS server) run side
  // by side; 0: the job is a group of its own.
  void add(JobId job, std::uint64_t group);
  void remove(JobId job);
  // A frozen job launches nothing, whatever its counters say.
  void suspend(JobId job, bool suspended);

 private:
  struct Member {
    JobId job;
    std::size_t gpu = 0;  // in the job's grant
    std::uint32_t slot = 0;
    Compute share;
    std::uint64_t group = 0;
    core::FlightWatch flight = {};
  };
  struct Board {
    explicit Board(LeaseBoard opened) : gates(std::move(opened)) {}
    LeaseBoard gates;
    core::LeaseArbiter arbiter;
    core::ProportionWatch proportion;
    std::vector<Member> members;
    bool contended = false;
    std::int64_t last_ns = 0;
  };

  void post(std::function<void()> change);
  void run();
  // How long to wait for the next look; nothing: until something changes.
  std::optional<std::int64_t> look();
  bool look_at(Board& board, std::int64_t now);
  void enter(JobId job, std::uint64_t group);
  void leave(JobId job);

  const std::filesystem::path grants_;
  std::map<std::filesystem::path, Board> boards_;
  std::map<JobId, GrantFolder> folders_;
  std::map<JobId, std::vector<GpuUsage>> seen_;  // in this look
  std::set<JobId> suspended_;
  std::int64_t dead_looked_ns_ = 0;

  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<std::function<void()>> changes_;
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace aliquot::node
