// Which nodes Slurm's reservations leave to a job: one with a reservation has that one's alone, any
// other job has none that a reservation holds now. Pure: from what scontrol prints.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "slurm/client.hpp"

namespace aliquot::slurm {

struct Reservation {
  std::string name = {};
  std::vector<std::string> nodes = {};
  std::int64_t cpus = 0;        // of all its nodes; a reservation may hold a part of them
  bool active = false;          // now
  bool lets_others_in = false;  // jobs that do not name it (MAGNETIC)
  bool lets_jobs_out = false;   // its jobs may take other nodes as well (FLEX)
};

// shown: `scontrol -o show reservation`.
std::vector<Reservation> read_reservations(std::string_view shown);

struct Confines {
  std::optional<std::vector<std::string>> only = {};  // no other nodes
  std::map<std::string, std::string> kept = {};       // not these nodes: by whom each is held

  [[nodiscard]] bool allow(const std::string& node) const;
};

Confines confines_of(const SlurmJob& job, const std::vector<Reservation>& reservations,
                     const std::vector<SlurmNode>& nodes);

}  // namespace aliquot::slurm
