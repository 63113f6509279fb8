// `aliquot slurm …`: hands over to `aliquot-slurm`, which knows Slurm; this program does not.
#include <memory>
#include <string>
#include <vector>

#include "cli/machine/paths.hpp"
#include "cli/own_command.hpp"

namespace aliquot::cli {

void add_slurm(CLI::App& command, Invocation& invocation) {
  // Everything after it is the other program's, --help included.
  command.prefix_command();
  command.set_help_flag();
  command.callback([&invocation, &command] {
    invocation.run = [words = command.remaining()] { return run_part("aliquot-slurm", words); };
  });
}

}  // namespace aliquot::cli
