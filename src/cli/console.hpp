// What a command says to whoever called it: results on stdout, one line about what went wrong on
// stderr, and the exit status.
#pragma once

#include <string_view>

#include "base/result.hpp"

namespace aliquot::cli {

inline constexpr int kDone = 0;
inline constexpr int kFailed = 1;         // the command was understood and could not be done
inline constexpr int kMisused = 2;        // the command line makes no sense
inline constexpr int kInterrupted = 130;  // as shells say it of SIGINT

// Everything to stdout, or the failure to do so.
int print(std::string_view text);

// `aliquot: message` on stderr, on one line whatever is in it.
void complain(std::string_view message);
int failed(const Error& error);
int misused(const Error& error);

}  // namespace aliquot::cli
