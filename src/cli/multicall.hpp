// The commands that have names of their own beside `aliquot`: called as `sbatch …` (a link to the
// one binary) or `aliquot sbatch …`. They read their own command lines, as Slurm's do, and are
// found before anything else of the program is set up, so that they start quickly.
#pragma once

#include <span>
#include <string_view>

namespace aliquot::cli {

struct NamedCommand {
  std::string_view name;
  std::string_view about;
  int (*run)(int argc, char** argv);  // argv[0] is the bare name
};

std::span<const NamedCommand> named_commands();

// nullptr: no such command.
const NamedCommand* find_named_command(std::string_view name);

// If argv says one of them, by its own name or as the first word after `aliquot`: runs it and
// returns true.
bool run_named_command(int argc, char** argv, int& status);

int run_sbatch(int argc, char** argv);
int run_srun(int argc, char** argv);
int run_salloc(int argc, char** argv);
int run_scancel(int argc, char** argv);

}  // namespace aliquot::cli
