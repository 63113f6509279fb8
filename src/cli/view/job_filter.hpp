// Which jobs squeue and sacct show.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "api/types.hpp"

namespace aliquot::cli {

struct JobFilter {
  bool none = false;             // nothing at all
  std::vector<std::string> ids;  // each list: empty means any
  std::vector<std::uint32_t> uids;
  std::vector<std::string> states;  // long names; empty: what has not ended
  bool all_states = false;
  std::vector<std::string> partitions;
  std::vector<std::string> names;
  std::vector<std::string> accounts;
  std::vector<std::string> qos;
  std::vector<std::string> reservations;
  std::vector<std::string> licenses;  // no job has any
  std::vector<std::string> nodes;     // where it runs

  [[nodiscard]] bool accepts(const api::JobInfo& job) const;
  // It accepts nothing that is over.
  [[nodiscard]] bool only_unfinished() const;
};

}  // namespace aliquot::cli
