// The options that the listing commands have in common: which columns (-o, -O) and how often (-i).
#pragma once

#include <functional>
#include <string>

#include "cli/option_set.hpp"
#include "cli/voice.hpp"

namespace aliquot::cli {

struct ColumnChoice {
  std::string format;
  bool by_name = false;  // -O: names, not letters
  bool given = false;    // if not, the command chooses
};
// Of -o and -O the one given last. What the environment says counts only if `use_environment`.
ColumnChoice chosen_columns(const OptionSet& options, bool use_environment);

// Shows once, or every so many seconds with --iterate; the exit status.
int show_every(const OptionSet& options, const Voice& voice, const std::function<int()>& show);

}  // namespace aliquot::cli
