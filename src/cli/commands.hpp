// The commands of `aliquot`, one file each. A command adds itself and its options below `parent`;
// when the user asked for it, Invocation::run is what to do, and main() does it once everything on
// the command line has been understood.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>

namespace aliquot::cli {

struct Invocation {
  std::function<int()> run;  // returns the exit status
};

void add_slurm(CLI::App& parent, Invocation& invocation);
void add_sim(CLI::App& parent, Invocation& invocation);
void add_sim_generate(CLI::App& parent, Invocation& invocation);
void add_sim_policies(CLI::App& parent, Invocation& invocation);
void add_sim_replay(CLI::App& parent, Invocation& invocation);
void add_sim_shell(CLI::App& parent, Invocation& invocation);

}  // namespace aliquot::cli
