// Options of sbatch, srun and salloc that Slurm knows and this engine does not carry out. Those
// that ask for what is not there are refused, each with a sentence; those that cannot matter on one
// machine are listed. Every other option is in effect: a test compares both lists with the table of
// options and with the manual.
#pragma once

#include <span>
#include <string_view>

#include "cli/option_set.hpp"

namespace aliquot::cli {

// The options that ask for nothing a single machine could give or withhold.
std::span<const std::string_view> idle_options();

struct RefusedOption {
  std::string_view name;
  std::string_view why;  // what the engine does not do, and what to write instead
  // Whether a value asks for that; null: whatever the value, it does.
  bool (*asks)(std::string_view value) = nullptr;
};
std::span<const RefusedOption> refused_options();

// The first of the given options that is refused.
Parsed<void> check_words(const OptionSet& options);

}  // namespace aliquot::cli
