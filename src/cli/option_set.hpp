// The options of all commands that Slurm has as well: one table says which command knows which
// option, how getopt_long shall read it and what values it takes. Messages and exit codes are
// Slurm's. What an option means is for the command to say; for jobs job_request.hpp does.
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

// The commands with a name that Slurm has.
enum class SlurmCommand {
  sbatch,
  srun,
  salloc,
  scancel,
  squeue,
  sinfo,
  sacct,
  scontrol,
  seff,
  sprio,
  sshare,
  sacctmgr,
  sstat,
  sreport,
  sattach,
  sdiag
};
constexpr unsigned bit(SlurmCommand command) { return 1U << static_cast<unsigned>(command); }
std::string_view command_name(SlurmCommand command);

// How a value is checked before anything else happens.
enum class ValueKind {
  flag,      // none
  text,      // anything; the last one counts
  list,      // words with commas between them; if it is given again, more words
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
  mail_types,  // END,FAIL
  gpu_mem,
  gpu_share,
};

struct OptionRow {
  const char* name;  // of the long option; `-d` where there is only the letter
  char letter;       // 0: none
  int argument;      // getopt's no_argument, required_argument, optional_argument
  ValueKind kind;
  unsigned commands;               // bits of SlurmCommand
  const char* same_as = nullptr;   // another spelling of that option
  const char* variable = nullptr;  // behind SBATCH_, SALLOC_, SLURM_ (srun), SQUEUE_, …
  unsigned variable_commands = 0;  // for which of them
  const char* help = nullptr;      // nullptr: not in --help
};

std::span<const OptionRow> option_rows();

// Where an option was given. A later source is stronger.
enum class Source { script, environment, command_line };

// Why a command line is refused: the exit status and what to say, unless getopt said it.
struct Misuse {
  int status = 1;
  std::string message;
  bool fatal = false;      // `fatal:`, not `error:`
  std::string plain = {};  // a line before it, without the command's name
  std::string why = {};    // an error before it
};
template <class T>
using Parsed = tl::expected<T, Misuse>;

// The values of the options that were given, by the option's name. A value is as the user wrote it,
// and valid.
class OptionSet {
 public:
  struct Value {
    std::string text;
    Source source = Source::script;
    int times = 0;          // for -v
    std::size_t place = 0;  // a larger one was set later
  };

  explicit OptionSet(SlurmCommand command);

  Parsed<void> set(std::string_view name, std::string_view value, Source source);
  [[nodiscard]] bool has(std::string_view name) const { return find(name) != nullptr; }
  [[nodiscard]] const Value* find(std::string_view name) const;
  [[nodiscard]] std::string text(std::string_view name, std::string_view otherwise = {}) const;
  [[nodiscard]] std::optional<std::string> maybe(std::string_view name) const;
  [[nodiscard]] std::optional<std::int64_t> number(std::string_view name) const;
  [[nodiscard]] int times(std::string_view name) const;
  // The words of a list; none where it was not given.
  [[nodiscard]] std::vector<std::string> words(std::string_view name) const;

  // In the table's order: the option's name and value, for -v.
  [[nodiscard]] std::vector<std::pair<std::string_view, std::string>> given() const;

 private:
  SlurmCommand command_;
  std::vector<std::optional<Value>> values_;  // one for each row
  std::size_t places_ = 0;
};

struct Word {
  std::string name;  // of the option
  std::string value;
};
struct CommandLine {
  std::vector<Word> words;
  std::size_t rest = 0;  // argv from here on is the script or command and its arguments
};

// Reads argv: of sbatch, srun and salloc up to the first word that is no option; of the others all,
// with the options moved to the front, or up to --help and --version. getopt_long complains on
// stderr, as Slurm lets it, unless quiet. Not for several threads.
Parsed<CommandLine> read_arguments(SlurmCommand command, int argc, char* const* argv,
                                   bool quiet = false);

// The options the environment sets, e.g. SBATCH_TIMELIMIT.
std::vector<Word> read_variables(SlurmCommand command);

// What the script's directives, the environment and the command line say together.
Parsed<OptionSet> gather_options(SlurmCommand command, const CommandLine& line,
                                 const std::vector<Word>& directives = {});

// --json, and --yaml: JSON is YAML as well.
inline bool wants_json(const OptionSet& options) {
  return options.has("json") || options.has("yaml");
}

// `[R][B:]name or number[@seconds]`
struct SignalOption {
  int number = 0;
  std::int64_t seconds = 60;
  bool batch = false;
};
std::optional<SignalOption> parse_signal_option(std::string_view text);
// `TERM`, `SIGTERM`, `term`, `15`
std::optional<int> parse_signal_name(std::string_view text);

}  // namespace aliquot::cli
