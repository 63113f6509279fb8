// The thread that shares out time on GPUs where several jobs hold leases: it looks at what the jobs
// are doing, asks core/lease whose turn it is, and opens and closes their gates on the GPUs' lease
// boards. It costs nothing while no GPU has two such jobs, looks ten times a second while only one
// of them launches anything, two hundred times while two do, and a thousand while they take turns.
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
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/ids.hpp"
#include "base/units.hpp"
#include "core/flight_watch.hpp"
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

  // The leases of a job's grant, whose folder is there. Jobs of one MPS server have its number; 0:
  // the job has none.
  void add(const HolderId& job, std::uint64_t server);
  void remove(const HolderId& job);
  // A frozen job launches nothing, whatever its counters say.
  void suspend(const HolderId& job, bool suspended);

 private:
  struct Member {
    HolderId job;
    std::size_t gpu = 0;  // in the job's grant
    std::uint32_t slot = 0;
    // Of its processes, by slot and generation.
    std::map<std::pair<std::uint32_t, std::uint32_t>, core::FlightWatch> flights = {};
  };
  struct Board {
    Board(LeaseBoard opened, std::string gpu, std::size_t index)
        : gates(std::move(opened)), name(std::move(gpu)), number(index) {}
    LeaseBoard gates;
    std::string name;    // of the GPU
    std::size_t number;  // of the GPU, for core/lease
    std::vector<Member> members;
    std::uint32_t contended = 0;
  };

  void post(std::function<void()> change);
  void run();
  // How long to wait for the next look; nothing: until something changes.
  std::optional<std::int64_t> look();
  // What the jobs on it do; how many want it.
  std::size_t look_at(Board& board, std::int64_t now, std::vector<core::LeaseArbiter::Seen>& seen);
  void enter(const HolderId& job, std::uint64_t server);
  void leave(const HolderId& job);

  const std::filesystem::path grants_;
  core::LeaseArbiter arbiter_;
  std::map<std::filesystem::path, Board> boards_;
  std::int64_t last_ns_ = 0;  // when it was last decided
  std::map<HolderId, GrantFolder> folders_;
  std::map<HolderId, std::vector<GpuUsage>> seen_;  // in this look
  std::set<HolderId> suspended_;
  std::int64_t dead_looked_ns_ = 0;

  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<std::function<void()>> changes_;
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace aliquot::node
