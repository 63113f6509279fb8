// `aliquot`: reads the command line and runs the command. What each command does is in its own
// file.
#include <CLI/CLI.hpp>
#include <exception>
#include <string>
#include <string_view>
#include <vector>

#include "base/text.hpp"
#include "cli/console.hpp"
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
  if (inner == &app) {
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

int run(int argc, char** argv) {
  CLI::App app("Shares GPUs: a job gets exactly the part it asked for.", "aliquot");
  app.set_version_flag("--version", "aliquot " ALIQUOT_VERSION);
  app.require_subcommand(1);
  Invocation invocation;
  add_commands(app, invocation, kCommands);
  app.footer(list_named_commands());
  if (argc == 2 && std::string_view(argv[1]) == "help") return print(app.help());
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& asked) {  // --help and --version end here too
    return app.exit(asked) == 0 ? kDone : kFailed;
  } catch (const CLI::ParseError& error) {
    const auto command = named(app);
    complain(fmt::format("{}{} (try 'aliquot {}{}--help')", command.empty() ? "" : command + ": ",
                         describe(app, error), command, command.empty() ? "" : " "));
    return kMisused;
  }
  return invocation.run();
}

}  // namespace
}  // namespace aliquot::cli

int main(int argc, char** argv) {
  try {
    int status = 0;
    if (aliquot::cli::run_named_command(argc, argv, status)) return status;
    return aliquot::cli::run(argc, argv);
  } catch (const std::exception& error) {  // out of memory, or no thread to be had
    aliquot::cli::complain(error.what());
    return aliquot::cli::kFailed;
  }
}
