// The commands below `aliquot sim`, one source each.
#pragma once

#include <string>

#include "cli/own_command.hpp"

namespace aliquot::cli {

// An option that shows its default in --help.
void add_defaulted(CLI::App& command, const char* name, std::string& value, const char* about);

AddCommand add_sim_replay, add_sim_shell, add_sim_generate, add_sim_policies;

}  // namespace aliquot::cli
