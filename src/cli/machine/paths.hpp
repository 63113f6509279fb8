// Where things of ours are: programs in PATH or beside the one that runs, and the daemon's state.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace aliquot::cli {

// Empty: not there.
std::string find_program(std::string_view name);
std::string find_beside_or_in_path(std::string_view name);
// A part of ours that is not for the PATH: beside the one that runs, or in libexec/aliquot.
std::string find_part_program(std::string_view name);
// Becomes that program; returns, with the exit status, only where it cannot.
int run_part(const std::string& name, const std::vector<std::string>& words);

// Where the caller's aliquotd keeps its state, and its log when no system manager looks after it.
std::string state_folder();

}  // namespace aliquot::cli
