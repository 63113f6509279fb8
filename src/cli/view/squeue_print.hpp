// squeue after the daemon has answered: which jobs are shown, in which order and form. Pure, so
// that it can be tested and measured without a daemon.
#pragma once

#include <string>
#include <vector>

#include "api/types.hpp"
#include "base/result.hpp"
#include "cli/view/job_filter.hpp"
#include "cli/view/job_text.hpp"

namespace aliquot::cli {

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
  std::string wrong_sort;  // what is wrong with --sort: then there is no more than the header
};

// Sorts and expands `jobs` in place.
Result<SqueueText> format_squeue(std::vector<api::JobInfo>& jobs, const SqueueView& view);

// Keeps what the filter accepts and, with -r, puts every element of an array in its own record.
void select_jobs(std::vector<api::JobInfo>& jobs, const SqueueView& view);

}  // namespace aliquot::cli
