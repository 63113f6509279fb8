// The thread that shares out time on GPUs where several jobs hold leases (lease_turns.hpp). It
// costs nothing while no GPU has two such jobs, looks ten times a second while only one of them
// launches anything, two hundred times while two do, and a thousand while they take turns.
//
// Jobs run on without it: a board whose heartbeat stops is not obeyed.
#pragma once

#include <cstdint>
#include <filesystem>

#include "base/ids.hpp"
#include "node/lease_turns.hpp"
#include "node/worker.hpp"

namespace aliquot::node {

class Arbiter {
 public:
  explicit Arbiter(std::filesystem::path grants);  // its end opens all gates

  // As LeaseTurns has them, from any thread; they never wait.
  void add(const HolderId& job, std::uint64_t server);
  void remove(const HolderId& job);
  void suspend(const HolderId& job, bool suspended);

 private:
  LeaseTurns turns_;  // the worker's alone
  Worker worker_;
};

}  // namespace aliquot::node
