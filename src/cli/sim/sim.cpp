// `aliquot sim …`: the simulator's commands.
#include "cli/sim/sim.hpp"

#include <array>

namespace aliquot::cli {

void add_defaulted(CLI::App& command, const char* name, std::string& value, const char* about) {
  command.add_option(name, value, about)->capture_default_str();
}

void add_sim(CLI::App& command, Invocation& invocation) {
  static constexpr auto kSimCommands = std::to_array<Command>({
      {"replay", "Replay a trace of a cluster on the real placement", add_sim_replay},
      {"shell", "Try placement by hand ('help' lists the commands)", add_sim_shell},
      {"generate", "Write a synthetic trace", add_sim_generate},
      {"policies", "List the placement policies", add_sim_policies},
  });
  command.require_subcommand(1);
  add_commands(command, invocation, kSimCommands);
}

}  // namespace aliquot::cli
