// `aliquot`: reads the command line and runs the command. What each command does is in its own
// file.
#include <CLI/CLI.hpp>
#include <exception>
#include <string>

#include "cli/commands.hpp"
#include "cli/console.hpp"

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

int run(int argc, char** argv) {
  CLI::App app("Shares GPUs: a job gets exactly the part it asked for.", "aliquot");
  app.set_version_flag("--version", "aliquot " ALIQUOT_VERSION);
  app.set_help_all_flag("--help-all", "Print the help of every command");
  app.require_subcommand(1);
  Invocation invocation;
  add_sim(app, invocation);
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& asked) {  // --help and --version end here too
    return app.exit(asked) == 0 ? kDone : kFailed;
  } catch (const CLI::ParseError& error) {
    const auto command = named(app);
    complain(fmt::format("{}{} (try 'aliquot {}{}--help')", command.empty() ? "" : command + ": ",
                         error.what(), command, command.empty() ? "" : " "));
    return kMisused;
  }
  return invocation.run();
}

}  // namespace
}  // namespace aliquot::cli

int main(int argc, char** argv) {
  try {
    return aliquot::cli::run(argc, argv);
  } catch (const std::exception& error) {  // out of memory, or no thread to be had
    aliquot::cli::complain(error.what());
    return aliquot::cli::kFailed;
  }
}
