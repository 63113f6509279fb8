#include <unistd.h>

#include <cstdio>
#include <iostream>
#include <sstream>
#include <string>

#include "cli/console.hpp"
#include "cli/sim/sim.hpp"
#include "sim/file.hpp"
#include "sim/shell.hpp"

namespace aliquot::cli {
namespace {

struct ShellOptions {
  std::string file;
  bool echo = false;
};

// Answers on stdout and errors on stderr, in the order in which they come. A person at a terminal
// sees an error and goes on; a script has failed.
int converse(std::istream& in, const std::string& source, bool interactive, bool echo) {
  sim::Shell shell({.read = sim::read_file, .write = sim::write_file});
  int status = kDone;
  std::string line;
  for (std::size_t number = 1; !shell.done(); ++number) {
    if (interactive && print("aliquot> ") != kDone) return kFailed;
    if (!std::getline(in, line)) break;
    if (echo && print("> " + line + "\n") != kDone) return kFailed;
    const auto answer = shell.execute(line);
    if (answer) {
      if (print(*answer) != kDone) return kFailed;
      continue;
    }
    const auto where = interactive ? std::string() : fmt::format("{}:{}: ", source, number);
    std::fputs(fmt::format("error: {}{}\n", where, answer.error()).c_str(), stderr);
    if (!interactive) status = kFailed;
  }
  if (interactive && !shell.done()) print("\n");
  return status;
}

int run_shell(const ShellOptions& options) {
  if (options.file.empty() || options.file == "-") {
    const bool interactive = ::isatty(STDIN_FILENO) == 1 && ::isatty(STDOUT_FILENO) == 1;
    return converse(std::cin, "stdin", interactive, options.echo);
  }
  const auto text = sim::read_file(options.file);
  if (!text) return failed(text.error());
  std::istringstream in(*text);
  return converse(in, options.file.substr(options.file.rfind('/') + 1), false, options.echo);
}

}  // namespace

void add_sim_shell(CLI::App& command, Invocation& invocation) {
  auto& options = run_with(command, invocation, run_shell);
  command.add_option("file", options.file, "Commands to run; default: stdin");
  command.add_flag("--echo", options.echo, "Print each command before its answer");
}

}  // namespace aliquot::cli
