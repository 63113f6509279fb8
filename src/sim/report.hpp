// What replays came to, for people and for programs.
#pragma once

#include <string>
#include <vector>

#include "base/units.hpp"
#include "sim/expected.hpp"
#include "sim/experiment.hpp"
#include "sim/workload.hpp"

namespace aliquot::sim {

struct Report {
  const Workload& workload;
  const Plan& plan;
  const Outcome& outcome;
  Compute compute_limit = kWholeGpu;
  std::int64_t scale = 1;
  std::vector<Expected> expected = {};  // of this workload; empty: nothing to compare with
};

// Tables; ends with a newline.
std::string format_text(const Report& report);

// One object; ends with a newline.
std::string format_json(const Report& report);

// `"…"` with everything escaped that JSON wants escaped; bytes that are not UTF-8 become U+FFFD.
std::string json_string(std::string_view text);

}  // namespace aliquot::sim
