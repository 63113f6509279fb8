// Which engine the caller wants: $ALIQUOT_ENGINE, `embedded` or `slurm`, holds for every command. A
// command that Slurm has as well then is Slurm's own; ours that are about the daemon of this
// machine say so.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"

namespace aliquot::cli {

enum class Engine { embedded, slurm };

// Nothing: not said.
Result<std::optional<Engine>> engine_asked();

// The first program of that name in these folders ("/usr/bin:/bin") that is none of `ours` under
// another name. Empty: none.
std::string find_other_program(std::string_view name, std::string_view folders,
                               const std::vector<std::string>& ours);
// `own` and the programs that were passed on by ("/a/aliquot:/b/aliquot", or null).
std::vector<std::string> add_own_program(const char* passed, const std::string& own);

// Hands over to Slurm's own command; returns only where there is none.
int run_slurms(char** argv);

// For commands about the daemon of this machine alone: the exit status, where the caller wants
// Slurm. `instead`: what to do there.
std::optional<int> refused_on_slurm(std::string_view command, std::string_view instead);

}  // namespace aliquot::cli
