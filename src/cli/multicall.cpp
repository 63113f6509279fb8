#include "cli/multicall.hpp"

#include <array>

#include "cli/view/named.hpp"

namespace aliquot::cli {
namespace {

constexpr auto kCommands = std::to_array<NamedCommand>({
    {"sbatch", "Submit a script to the queue", run_sbatch},
    {"srun", "Run a command, or a step of a job", run_srun},
    {"salloc", "Get GPUs and CPUs for a shell", run_salloc},
    {"scancel", "Cancel or signal jobs", run_scancel},
    {"squeue", "The queue", run_squeue},
    {"sinfo", "The machine and its partitions", run_sinfo},
    {"scontrol", "Show, hold, change jobs and the machine", run_scontrol},
    {"sacct", "Jobs that have ended, too", run_sacct},
    {"seff", "What a job used of what it had", run_seff},
});

}  // namespace

std::span<const NamedCommand> named_commands() { return kCommands; }

const NamedCommand* find_named_command(std::string_view name) {
  for (const auto& command : kCommands) {
    if (command.name == name) return &command;
  }
  return nullptr;
}

bool run_named_command(int argc, char** argv, int& status) {
  for (int i = 0; i < 2 && i < argc; ++i) {
    std::string_view name = argv[i];
    if (i == 0) name.remove_prefix(name.rfind('/') + 1);  // npos + 1 is 0
    if (const auto* command = find_named_command(name)) {
      // getopt names the program by argv[0], whichever way it was called.
      argv[i] += std::string_view(argv[i]).size() - name.size();
      status = command->run(argc - i, argv + i);
      return true;
    }
  }
  return false;
}

}  // namespace aliquot::cli
