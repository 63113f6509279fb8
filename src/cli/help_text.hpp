// What --help, --usage and --version print, for all commands that Slurm has as well.
#pragma once

#include <string>

#include "cli/option_set.hpp"

namespace aliquot::cli {

std::string help_text(SlurmCommand command);
std::string usage_text(SlurmCommand command);
// Clients look for two words and a number.
std::string version_text();

}  // namespace aliquot::cli
