// The viewing commands below `aliquot`.
#pragma once

#include <string>

#include "api/types.hpp"
#include "cli/commands.hpp"

namespace aliquot::cli {

// All of them.
void add_view_commands(CLI::App& parent, Invocation& invocation);

void add_status(CLI::App& parent, Invocation& invocation);
void add_why(CLI::App& parent, Invocation& invocation);
void add_gpus(CLI::App& parent, Invocation& invocation);
void add_top(CLI::App& parent, Invocation& invocation);
void add_logs(CLI::App& parent, Invocation& invocation);
void add_doctor(CLI::App& parent, Invocation& invocation);
void add_up(CLI::App& parent, Invocation& invocation);
void add_down(CLI::App& parent, Invocation& invocation);
void add_setup(CLI::App& parent, Invocation& invocation);
void add_shims(CLI::App& parent, Invocation& invocation);

// Says why nobody answered, or that there is no such job; the exit status.
int refused(const api::ErrorInfo& error);
int refused(const api::ErrorInfo& error, const std::string& job);

}  // namespace aliquot::cli
