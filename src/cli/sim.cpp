#include "cli/commands.hpp"

namespace aliquot::cli {

void add_sim(CLI::App& parent, Invocation& invocation) {
  auto* sim = parent.add_subcommand("sim", "Try placement without a GPU");
  sim->require_subcommand(1);
  add_sim_replay(*sim, invocation);
  add_sim_shell(*sim, invocation);
  add_sim_generate(*sim, invocation);
  add_sim_policies(*sim, invocation);
}

}  // namespace aliquot::cli
