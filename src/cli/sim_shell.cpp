#include "cli/commands.hpp"
#include "cli/console.hpp"

namespace aliquot::cli {

void add_sim_shell(CLI::App&, Invocation&) {}

}  // namespace aliquot::cli
