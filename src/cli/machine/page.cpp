// `aliquot page`: page/main.cpp is the program that it runs.
#include "cli/machine/page_options.hpp"
#include "cli/machine/paths.hpp"
#include "cli/own_command.hpp"

namespace aliquot::cli {
namespace {

int run_page(const PageOptions& options) { return run_part("aliquot-page", words_of(options)); }

}  // namespace

void add_page(CLI::App& command, Invocation& invocation) {
  add_page_options(command, run_with(command, invocation, run_page));
}

}  // namespace aliquot::cli
