// Shares out the time on GPUs where several jobs hold leases: each look reads what the jobs say
// they are doing, asks core/lease whose turn it is, and opens and closes the jobs' gates on the
// GPUs' lease boards. It is told the time and has no thread: arbiter.hpp has one for it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/ids.hpp"
#include "core/flight_watch.hpp"
#include "core/lease.hpp"
#include "node/grant_folder.hpp"
#include "node/lease_board.hpp"

namespace aliquot::node {

class LeaseTurns {
 public:
  // grants: where the jobs' grant folders are.
  explicit LeaseTurns(std::filesystem::path grants) : grants_(std::move(grants)) {}

  // The leases of a job's grant. Jobs of one MPS server have its number; 0: the job has none.
  void add(const HolderId& job, std::uint64_t server);
  void remove(const HolderId& job);  // its gates are opened
  // A frozen job launches nothing, whatever its counters say.
  void suspend(const HolderId& job, bool suspended);

  // How long to wait for the next look, in nanoseconds; nothing: until a job is added. now_ns is
  // CLOCK_MONOTONIC.
  std::optional<std::int64_t> look(std::int64_t now_ns);

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

  // Adds what the jobs on it do to seen; how many want the GPU.
  std::size_t look_at(Board& board, std::int64_t now, std::vector<core::LeaseArbiter::Seen>& seen);

  const std::filesystem::path grants_;
  core::LeaseArbiter arbiter_;
  std::map<std::filesystem::path, Board> boards_;
  std::int64_t last_ns_ = 0;  // when it was last decided
  std::map<HolderId, GrantFolder> folders_;
  std::map<HolderId, std::vector<GpuUsage>> seen_;  // in this look
  std::set<HolderId> suspended_;
  std::int64_t dead_looked_ns_ = 0;
};

}  // namespace aliquot::node
