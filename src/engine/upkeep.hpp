// Clears away what the record keeps too long: scripts that nobody can run again, and jobs that were
// over long ago or are more than their user may have. Once in a minute, a little at a time.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "engine/state.hpp"

namespace aliquot::engine {

class Upkeep {
 public:
  explicit Upkeep(State& state) : state_(state) {}

  // In the transaction that is open; not while the record cannot be written.
  void tidy();

 private:
  // Whether there is more to purge.
  bool purge(WallTime now, WallTime out_of_sight);

  State& state_;
  WallTime tidied_;
  WallTime counted_;
  std::vector<std::pair<Uid, std::int64_t>> crowded_;  // who has too many records, and how many
};

}  // namespace aliquot::engine
