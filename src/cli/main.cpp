// `aliquot`: reads the command line and runs the command. What each command does is in its own
// file.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <exception>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#include "base/text.hpp"
#include "cli/console.hpp"
#include "cli/engine_choice.hpp"
#include "cli/own_command.hpp"
#include "sim/names.hpp"

namespace aliquot::cli {
namespace {

// The innermost command the user named, for messages: `sim replay`.
std::string named(const CLI::App& app) {
  for (const auto* command : app.get_subcommands()) {
    const auto inner = named(*command);
    return inner.empty() ? command->get_name() : command->get_name() + " " + inner;
  }
  return {};
}

// What is wrong with the command line, in one sentence. The library says only that a command is
// missing where one was mistyped.
std::string describe(const CLI::App& app, const CLI::ParseError& error) {
  const CLI::App* inner = &app;
  while (!inner->get_subcommands().empty()) inner = inner->get_subcommands().front();
  const auto left = app.remaining(true);
  if (error.get_exit_code() != static_cast<int>(CLI::ExitCodes::RequiredError) || left.empty() ||
      inner->get_require_subcommand_min() == 0) {
    return error.what();
  }
  if (left.front().substr(0, 1) == "-") return fmt::format("no option {}", quote(left.front()));
  std::vector<std::string> known;
  for (const auto* command : inner->get_subcommands(nullptr)) known.push_back(command->get_name());
  if (inner == &app && app.get_name() == "aliquot") {
    for (const auto& command : kCommands) {
      if (command.is_slurms()) known.emplace_back(command.name);
    }
  }
  return sim::unknown_name("command", left.front(), known).message;
}

// Printed after the list of our own commands, in the same layout.
std::string list_named_commands() {
  std::string list = "Slurm's commands, also without 'aliquot' where 'aliquot shims' made links:\n";
  for (const auto& command : kCommands) {
    if (!command.is_slurms()) continue;
    list += fmt::format("  {:<28}{}\n", command.name, command.about);
  }
  return list;
}

// What a plugin of kubectl has: the commands that look at a cluster.
bool is_for_kubectl(const Command& command) {
  constexpr std::array<std::string_view, 4> kNames = {"status", "why", "gpus", "top"};
  return std::ranges::find(kNames, command.name) != kNames.end();
}

int run(int argc, char** argv) {
  const bool plugin = is_kubectl_plugin(argv[0]);
  const std::string called = plugin ? "kubectl aliquot" : "aliquot";
  CLI::App app("Shares GPUs: a job gets exactly the part it asked for.", called);
  app.set_version_flag("--version", "aliquot " ALIQUOT_VERSION);
  app.require_subcommand(1);
  Invocation invocation;
  if (plugin) {
    std::vector<Command> commands;
    std::ranges::copy_if(kCommands, std::back_inserter(commands), is_for_kubectl);
    add_commands(app, invocation, commands);
  } else {
    add_commands(app, invocation, kCommands);
    app.footer(list_named_commands());
  }
  if (argc == 1 || (argc == 2 && std::string_view(argv[1]) == "help")) return print(app.help());
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& asked) {  // --help and --version end here too
    return app.exit(asked) == 0 ? kDone : kFailed;
  } catch (const CLI::ParseError& error) {
    const auto command = named(app);
    complain(fmt::format("{}{} (try '{} {}{}--help')", command.empty() ? "" : command + ": ",
                         describe(app, error), called, command, command.empty() ? "" : " "));
    return kMisused;
  }
  return invocation.run();
}

}  // namespace
}  // namespace aliquot::cli

int main(int argc, char** argv) {
  try {
    int status = 0;
    if (aliquot::cli::is_kubectl_plugin(argv[0])) {
      aliquot::cli::choose_kubernetes();
      return aliquot::cli::run(argc, argv);
    }
    if (aliquot::cli::run_named_command(argc, argv, status)) return status;
    return aliquot::cli::run(argc, argv);
  } catch (const std::exception& error) {  // out of memory, or no thread to be had
    aliquot::cli::complain(error.what());
    return aliquot::cli::kFailed;
  }
}
