// The daemon's refusals in Slurm's words: the text that Slurm prints for an error code, and the
// number that becomes an exit status. A command decides where the message goes.
#pragma once

#include <string>
#include <string_view>

#include "api/types.hpp"

namespace aliquot::cli {

// Nobody answered at the daemon's socket.
inline constexpr std::string_view kUnreachable = "SLURMCTLD_COMMUNICATIONS_CONNECTION_ERROR";

// The daemon is away, or cannot answer now: the request may be repeated.
bool is_passing(const api::ErrorInfo& error);

// Slurm's text for the error, e.g. `Invalid job id specified`; the daemon's own text where Slurm
// has none.
std::string error_text(const api::ErrorInfo& error);
// Slurm's number for it (2002: access denied); 1 where it has none. As an exit status modulo 256.
int error_number(std::string_view code);

}  // namespace aliquot::cli
