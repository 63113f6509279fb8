// The options of sbatch, srun and salloc: one table that says which command knows which, how
// getopt_long shall read them and what values they take. Messages and exit codes are Slurm's. What
// an option means for a job is job_request.hpp's.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <tl/expected.hpp>
#include <utility>
#include <vector>

namespace aliquot::cli {

enum class Submitter : unsigned { sbatch = 1, srun = 2, salloc = 4 };

// How a value is checked before anything else happens.
enum class ValueKind {
  flag,      // none
  text,      // anything
  count,     // a whole number from 1
  whole,     // a whole number from 0
  duration,  // Slurm's time: 90, 1:30:00, 2-12, UNLIMITED
  memory,    // 512, 8G
  moment,    // now+1hour, 16:00, 2030-01-01
  nodes,     // 1, 1-4
  signal,    // B:USR1@60
  open_mode,
  yes_no,
  nice,
  priority,
  gpu_mem,
  gpu_share,
};

struct OptionRow {
  const char* name;  // of the long option
  char letter;       // 0: none
  int argument;      // getopt's no_argument, required_argument, optional_argument
  ValueKind kind;
  unsigned commands;           // of Submitter
  const char* same_as;         // another spelling of that option
  const char* variable;        // behind SBATCH_, SALLOC_, SLURM_ (srun)
  unsigned variable_commands;  // for which of them
  const char* help;            // nullptr: not in --help
};

std::span<const OptionRow> option_rows();

// Who said it: the later the stronger.
enum class Source { script, environment, command_line };

// Why a command line is refused: the exit status and what to say, unless getopt said it.
struct Refusal {
  int status = 1;
  std::string message;
  bool fatal = false;  // `fatal:`, not `error:`
};
template <class T>
using Parsed = tl::expected<T, Refusal>;

// The values of the options that were given, by the option's name. A value is as the user wrote it,
// and valid.
class OptionSet {
 public:
  struct Value {
    std::string text;
    Source source = Source::script;
    int times = 0;  // for -v
  };

  explicit OptionSet(Submitter command);

  Parsed<void> set(std::string_view name, std::string_view value, Source source);
  // As if it had not been said.
  void clear(std::string_view name);

  [[nodiscard]] bool has(std::string_view name) const { return find(name) != nullptr; }
  [[nodiscard]] const Value* find(std::string_view name) const;
  [[nodiscard]] std::string text(std::string_view name, std::string_view otherwise = {}) const;
  [[nodiscard]] std::optional<std::string> maybe(std::string_view name) const;
  [[nodiscard]] std::optional<std::int64_t> number(std::string_view name) const;
  [[nodiscard]] int times(std::string_view name) const;

  // In the table's order: the option's name and value, for -v.
  [[nodiscard]] std::vector<std::pair<std::string_view, std::string>> given() const;
  [[nodiscard]] Submitter command() const { return command_; }

 private:
  Submitter command_;
  std::vector<std::optional<Value>> values_;  // one for each row
};

struct Word {
  std::string name;  // of the option
  std::string value;
};
struct CommandLine {
  std::vector<Word> words;
  std::size_t rest = 0;  // argv from here on is the script or command and its arguments
};

// Reads argv up to the first word that is no option. getopt_long complains on stderr, as Slurm lets
// it, unless quiet. Not for several threads.
Parsed<CommandLine> read_arguments(Submitter command, int argc, char* const* argv,
                                   bool quiet = false);

// The options the environment sets, e.g. SBATCH_TIMELIMIT.
std::vector<Word> read_variables(Submitter command);

Parsed<void> apply(OptionSet& options, const std::vector<Word>& words, Source source);

// `[R][B:]name or number[@seconds]`
struct SignalOption {
  int number = 0;
  std::int64_t seconds = 60;
  bool batch = false;
};
std::optional<SignalOption> parse_signal_option(std::string_view text);
// `TERM`, `SIGTERM`, `term`, `15`
std::optional<int> parse_signal_name(std::string_view text);

std::string_view command_name(Submitter command);
// What --help and --usage print.
std::string help_text(Submitter command);
std::string usage_text(Submitter command);
// What --version prints. Clients look for two words and a number.
std::string version_text();

}  // namespace aliquot::cli
