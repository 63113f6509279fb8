// Results that others published for a workload, policy by policy, to hold ours against.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"

namespace aliquot::sim {

struct ExpectedPoint {
  std::int64_t arrived = 0;
  double allocated = 0;                  // percent, mean over the seeds
  std::optional<double> deviation = {};  // over the seeds, where published
};

struct Expected {
  std::string workload;
  std::string policy;  // by our name for it
  std::int64_t seeds = 1;
  std::vector<ExpectedPoint> points = {};
};

// Columns workload, policy, seeds, alloc_<percent> and, for some of these, alloc_sd_<percent>.
// Published names of policies (`05-BestFit`) become ours (`best-fit`).
Result<std::vector<Expected>> parse_expected(std::string_view text, std::string_view name);

// What is published for one workload; an error names those there are.
Result<std::vector<Expected>> expected_of(const std::vector<Expected>& all,
                                          std::string_view workload);

// `…/openb_pod_list_default.csv` is the workload `default`: what follows the last `_`.
std::string workload_name(std::string_view pods_file);

}  // namespace aliquot::sim
