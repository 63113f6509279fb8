// The start of every command that Slurm has as well: its command line is read by the one table of
// options, questions about the command itself are answered, and what cannot be understood is
// refused in Slurm's words.
#pragma once

#include <string_view>
#include <tl/expected.hpp>
#include <vector>

#include "cli/option_set.hpp"
#include "cli/voice.hpp"

namespace aliquot::cli {

// The error is the exit status to end with; the message was printed already.
template <class T>
using OrStatus = tl::expected<T, int>;

struct NamedCall {
  CommandLine line;
  OptionSet options;
  std::vector<std::string_view> words;  // after the options
};

OrStatus<CommandLine> read_line(SlurmCommand command, int argc, char** argv, const Voice& voice);
// The options as well, and -v and -Q for the voice.
OrStatus<NamedCall> read_call(SlurmCommand command, int argc, char** argv, Voice& voice);

// Slurm's commands may be cut short to what is still theirs alone: so many letters.
bool is_command(std::string_view word, std::string_view name, std::size_t least);

// -v and -Q.
int voice_level(const OptionSet& options);

// Says why not, and returns the exit status.
int refused(const Voice& voice, const Misuse& misuse);

// `Try "squeue --help" for more information`; the exit status of squeue and its kin.
int try_help(std::string_view command);

}  // namespace aliquot::cli
