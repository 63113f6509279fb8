#include "cli/commands.hpp"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <string>

#include "cli/console.hpp"
#include "cli/engine_choice.hpp"

namespace aliquot::cli {

void add_commands(CLI::App& parent, Invocation& invocation, std::span<const Command> commands) {
  for (const auto& [name, about, start] : commands) {
    if (const auto* add = std::get_if<AddCommand*>(&start)) {
      (*add)(*parent.add_subcommand(std::string(name), std::string(about)), invocation);
    }
  }
}

bool run_named_command(int argc, char** argv, int& status) {
  for (int i = 0; i < 2 && i < argc; ++i) {
    std::string_view name = argv[i];
    if (i == 0) name.remove_prefix(name.rfind('/') + 1);  // npos + 1 is 0
    const auto* const command = std::ranges::find(kCommands, name, &Command::name);
    if (command == kCommands.end() || !command->is_slurms()) continue;
    // getopt names the program by argv[0], whichever way it was called.
    argv[i] += std::string_view(argv[i]).size() - name.size();
    const auto engine = engine_asked();
    if (!engine) {
      status = failed(engine.error());
    } else if (*engine == Engine::slurm) {
      status = run_slurms(argv + i);
    } else if (*engine == Engine::kubernetes) {
      complain(fmt::format("{} is not for Kubernetes: pods are made and looked at with kubectl",
                           command->name));
      status = kFailed;
    } else {
      status = std::get<RunCommand*>(command->start)(argc - i, argv + i);
    }
    return true;
  }
  return false;
}

}  // namespace aliquot::cli
