// The batch script: where it comes from, whether it is one, and the options in its #SBATCH lines.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "cli/option_set.hpp"

namespace aliquot::cli {

struct Script {
  std::string text;
  std::string path;  // empty: from stdin or --wrap
};

// The file as named, else from the current folder, else from PATH.
Parsed<Script> read_script_file(const std::string& name);
Parsed<Script> read_script_stdin();
Script wrap_script(std::string_view command);

// Empty, binary, with DOS line ends or without #!: Slurm's refusals.
Parsed<void> check_script(std::string_view text);

// The options before the first line that is neither blank nor a comment. name: the script's, for
// messages.
Parsed<std::vector<Word>> read_directives(std::string_view text, bool quiet = false,
                                          std::string_view name = "stdin");

// A directive's words: blanks separate, quotes and backslashes keep together, # ends the line.
// A quote that nothing closes is said in `unmatched`, with what precedes it up to the last word.
std::vector<std::string> split_directive(std::string_view line,
                                         std::string_view* unmatched = nullptr);

}  // namespace aliquot::cli
