#include "cli/multicall.hpp"

#include <array>

#include "cli/view/named.hpp"

namespace aliquot::cli {
namespace {

constexpr auto kCommands = std::to_array<NamedCommand>({
    {"sbatch", run_sbatch},
    {"srun", run_srun},
    {"salloc", run_salloc},
    {"scancel", run_scancel},
    {"squeue", run_squeue},
    {"sinfo", run_sinfo},
    {"scontrol", run_scontrol},
    {"sacct", run_sacct},
    {"seff", run_seff},
});

}  // namespace

std::vector<std::string> named_commands() {
  std::vector<std::string> names;
  for (const auto& command : kCommands) names.emplace_back(command.name);
  return names;
}

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
