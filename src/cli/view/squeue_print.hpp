// squeue after the daemon has answered: which jobs are shown, in which order and form. Pure, so
// that it can be tested and measured without a daemon.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "api/types.hpp"
#include "base/result.hpp"
#include "cli/view/job_text.hpp"

namespace aliquot::cli {

struct JobFilter {
  std::vector<std::string> ids;  // each list: empty means any
  std::vector<std::uint32_t> uids;
  std::vector<std::string> states;  // long names; empty: what has not ended
  bool all_states = false;
  std::vector<std::string> partitions;
  std::vector<std::string> names;
  std::vector<std::string> accounts;
  std::vector<std::string> qos;

  [[nodiscard]] bool accepts(const api::JobInfo& job) const;
  // It accepts nothing that is over.
  [[nodiscard]] bool only_unfinished() const;
};

struct SqueueView {
  JobFilter filter;
  std::string format;    // letters, unless by_name
  bool by_name = false;  // -O
  bool header = true;
  bool date_line = false;      // -l, -i
  bool steps = false;          // -s
  bool expand_arrays = false;  // -r
  std::string sort;
  ViewContext context;
};

struct SqueueText {
  std::string text;
  std::vector<std::string> unknown_fields;
};

// Sorts and expands `jobs` in place.
Result<SqueueText> format_squeue(std::vector<api::JobInfo>& jobs, const SqueueView& view);

// Keeps what the filter accepts and, with -r, puts every element of an array in its own record.
void select_jobs(std::vector<api::JobInfo>& jobs, const SqueueView& view);

}  // namespace aliquot::cli
