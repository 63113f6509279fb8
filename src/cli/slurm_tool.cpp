// `aliquot slurm …`: hands over to `aliquot-slurm`, which knows Slurm; this program does not.
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "cli/commands.hpp"
#include "cli/console.hpp"
#include "cli/view/programs.hpp"

namespace aliquot::cli {
namespace {

int hand_over(const std::vector<std::string>& words) {
  const std::string program = find_part_program("aliquot-slurm");
  if (program.empty()) {
    complain("aliquot-slurm is not installed: install the package for Slurm (aliquot-slurm)");
    return kFailed;
  }
  std::vector<std::string> command{program};
  command.insert(command.end(), words.begin(), words.end());
  std::vector<char*> argv;
  argv.reserve(command.size() + 1);
  for (auto& word : command) argv.push_back(word.data());
  argv.push_back(nullptr);
  ::execv(program.c_str(), argv.data());
  complain("cannot run " + program + ": " + std::strerror(errno));
  return kFailed;
}

}  // namespace

void add_slurm(CLI::App& parent, Invocation& invocation) {
  auto* command = parent.add_subcommand(
      "slurm", "Share GPUs on a Slurm cluster: setup, check, and a sandbox to try it in");
  // Everything after it is the other program's, --help included.
  command->prefix_command();
  command->set_help_flag();
  command->callback([&invocation, command] {
    invocation.run = [words = command->remaining()] { return hand_over(words); };
  });
}

}  // namespace aliquot::cli
