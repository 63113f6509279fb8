// What `aliquot`'s own commands share when they add their options.
#pragma once

#include <CLI/CLI.hpp>
#include <memory>

#include "cli/commands.hpp"

namespace aliquot::cli {

// Has `run` called if the user names the command. Returns the options that it will get, for
// add_option to fill in.
template <class Options>
Options& run_with(CLI::App& command, Invocation& invocation, int (*run)(const Options&)) {
  const auto options = std::make_shared<Options>();
  command.callback(
      [&invocation, options, run] { invocation.run = [options, run] { return run(*options); }; });
  return *options;  // the callback keeps them
}

inline constexpr const char* kJsonAbout = "Print one JSON object";

}  // namespace aliquot::cli
