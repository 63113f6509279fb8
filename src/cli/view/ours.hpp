// The viewing commands below `aliquot`.
#pragma once

#include "cli/commands.hpp"

namespace aliquot::cli {

// All of them.
void add_view_commands(CLI::App& parent, Invocation& invocation);

void add_status(CLI::App& parent, Invocation& invocation);
void add_why(CLI::App& parent, Invocation& invocation);
void add_gpus(CLI::App& parent, Invocation& invocation);
void add_logs(CLI::App& parent, Invocation& invocation);
void add_doctor(CLI::App& parent, Invocation& invocation);
void add_up(CLI::App& parent, Invocation& invocation);
void add_down(CLI::App& parent, Invocation& invocation);
void add_shims(CLI::App& parent, Invocation& invocation);

}  // namespace aliquot::cli
