// What a call of scontrol is, for the files that carry one out. Each function prints, and returns
// the exit status.
#pragma once

#include <string_view>
#include <vector>

#include "cli/control/scontrol_text.hpp"

namespace aliquot::cli {

inline constexpr std::string_view kLoadJobs = "slurm_load_jobs error";

using ControlWords = std::vector<std::string_view>;

struct ControlCall {
  ShowStyle style;
  bool json = false;
  bool quiet = false;
  ControlWords words;  // after the command

  [[nodiscard]] std::string_view word(std::size_t i) const {
    return i < words.size() ? words[i] : std::string_view();
  }
};

// On the standard error; 1.
int fail_with(std::string_view text);

int show_entity(const ControlCall& call);

}  // namespace aliquot::cli
