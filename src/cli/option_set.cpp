#include "cli/option_set.hpp"

#include <fmt/format.h>
#include <getopt.h>
#include <signal.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>

#include "base/percent.hpp"
#include "base/size.hpp"
#include "base/slurm_time.hpp"
#include "base/text.hpp"
#include "cli/moment.hpp"
#include "cli/option_words.hpp"

namespace aliquot::cli {
namespace {

constexpr WallTime kAnyTime{days(366)};  // which forms are moments does not depend on today
// Less than a program's first call takes; 8 is 8 MiB, and meant as 8G.
constexpr Bytes kLeastGpuMemory = mib(64);
constexpr int kBadValue = 255;       // what exit(-1) becomes
constexpr int kLongOption = 0x1000;  // + the row

bool known_to(unsigned commands, SlurmCommand command) { return (commands & bit(command)) != 0; }

bool is_submitter(SlurmCommand command) { return command <= SlurmCommand::salloc; }

struct Spelling {
  std::string_view name;
  std::string_view prefix;  // of the variables in the environment
};
const Spelling& spelling(SlurmCommand command) {
  static constexpr auto kSpellings = std::to_array<Spelling>({{"sbatch", "SBATCH_"},
                                                              {"srun", "SLURM_"},
                                                              {"salloc", "SALLOC_"},
                                                              {"scancel", "SCANCEL_"},
                                                              {"squeue", "SQUEUE_"},
                                                              {"sinfo", "SINFO_"},
                                                              {"sacct", "SACCT_"},
                                                              {"scontrol", "SCONTROL_"},
                                                              {"seff", "SEFF_"},
                                                              {"sprio", "SPRIO_"},
                                                              {"sshare", "SSHARE_"},
                                                              {"sacctmgr", "SACCTMGR_"},
                                                              {"sstat", "SSTAT_"},
                                                              {"sreport", "SREPORT_"},
                                                              {"sattach", "SATTACH_"},
                                                              {"sdiag", "SDIAG_"}});
  return kSpellings.at(static_cast<std::size_t>(command));
}

// Options after which nothing else is read.
bool asks_about_command(std::string_view name) {
  return name == "help" || name == "helpformat" || name == "usage" || name == "version";
}

// The row of an option as this command knows it, under its first name.
std::optional<std::size_t> find_row(SlurmCommand command, std::string_view name) {
  const auto rows = option_rows();
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (name == rows[i].name && known_to(rows[i].commands, command)) {
      return rows[i].same_as == nullptr ? i : find_row(command, rows[i].same_as);
    }
  }
  return std::nullopt;
}

// An option's own letter before that of another spelling of it.
std::optional<std::size_t> find_letter(SlurmCommand command, char letter) {
  const auto rows = option_rows();
  std::optional<std::size_t> other;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (rows[i].letter != letter || !known_to(rows[i].commands, command)) continue;
    if (rows[i].same_as == nullptr) return i;
    if (!other) other = find_row(command, rows[i].same_as);
  }
  return other;
}

Parsed<void> check_nodes(std::string_view text) {
  const auto dash = text.find('-');
  const auto read = [](std::string_view word) {
    const auto number = parse_digits(word);
    return number && *number <= INT32_MAX ? number : std::nullopt;
  };
  const auto no_count = [](std::string_view word) -> Parsed<void> {
    return tl::make_unexpected(
        Misuse{kBadValue, fmt::format("\"{}\" is not a valid node count", word)});
  };
  const auto least = read(text.substr(0, dash));
  if (!least) return no_count(text.substr(0, dash));
  if (dash == text.npos) return {};
  const auto most = read(text.substr(dash + 1));
  if (!most) return no_count(text.substr(dash + 1));
  if (*most >= *least) return {};
  return tl::make_unexpected(Misuse{
      kBadValue,
      fmt::format("Maximum node count {} is less than minimum node count {}", *most, *least)});
}

bool is_mail_type(std::string_view word) {
  constexpr auto kWords = std::to_array<std::string_view>(
      {"NONE", "BEGIN", "END", "FAIL", "REQUEUE", "ALL", "INVALID_DEPEND", "STAGE_OUT",
       "TIME_LIMIT", "TIME_LIMIT_90", "TIME_LIMIT_80", "TIME_LIMIT_50", "ARRAY_TASKS"});
  return std::ranges::any_of(
      kWords, [&](std::string_view known) { return equals_ignoring_case(word, known); });
}

// Slurm's words, and for our own options what is expected.
Misuse invalid(const OptionRow& row) {
  const std::string_view name = row.name;
  const std::string_view expected = name == "gpu-mem"
                                        ? ": more than a program's context takes, as 8G"
                                    : name == "gpu-share" ? ": above 0 and up to 100%, as 25%"
                                                          : "";
  return {kBadValue, fmt::format("Invalid --{} specification{}", name, expected)};
}

Parsed<void> check(const OptionRow& row, std::string_view value) {
  const auto text = std::string(value);
  const auto unless = [&](bool good) -> Parsed<void> {
    if (good) return {};
    return tl::make_unexpected(invalid(row));
  };
  switch (row.kind) {
    case ValueKind::text:
      return check_option_words(row.name, value);
    case ValueKind::flag:
    case ValueKind::list:
      return {};
    case ValueKind::count:
    case ValueKind::whole: {
      if (value.empty() && row.argument == optional_argument) return {};
      const auto number = parse_digits(value);
      if (number && *number <= INT32_MAX && (*number > 0 || row.kind == ValueKind::whole)) {
        return {};
      }
      return tl::make_unexpected(
          Misuse{1, fmt::format("Invalid numeric value \"{}\" for --{}.", value, row.name)});
    }
    case ValueKind::duration:
      return unless(parse_time_limit(value).has_value());
    case ValueKind::memory:
      return unless(parse_size(value).has_value());
    case ValueKind::moment: {
      if (parse_moment(value, kAnyTime)) return {};
      Misuse wrong = invalid(row);
      if (!value.empty()) wrong.plain = no_moment(value);
      return tl::make_unexpected(std::move(wrong));
    }
    case ValueKind::nodes:
      return check_nodes(value);
    case ValueKind::signal:
      return unless(parse_signal_option(value).has_value());
    case ValueKind::open_mode:
      return unless(value == "a" || value == "append" || value == "t" || value == "truncate");
    case ValueKind::yes_no:
      return unless(equals_ignoring_case(value, "yes") || equals_ignoring_case(value, "no"));
    case ValueKind::nice: {
      const auto digits = value.substr(!value.empty() && value[0] == '-' ? 1 : 0);
      const auto number = parse_digits(digits);
      if (value.empty() || (number && *number <= 2'147'483'645)) return {};
      if (!digits.empty() &&
          std::ranges::all_of(digits, [](char c) { return c >= '0' && c <= '9'; })) {
        return tl::make_unexpected(
            Misuse{kBadValue, "Invalid --nice value, out of range (+/- 2147483645)"});
      }
      return tl::make_unexpected(
          Misuse{kBadValue, fmt::format("Invalid --nice value, must be a number: {}", value)});
    }
    case ValueKind::priority:
      if (value.size() > 1 && value[0] == '-' && parse_digits(value.substr(1))) {
        return tl::make_unexpected(Misuse{kBadValue, "Priority must be >= 0"});
      }
      if (const auto number = parse_digits(value); number && *number >= 4'294'967'294) {
        return tl::make_unexpected(Misuse{kBadValue, "Priority must be < 4294967294"});
      }
      return unless(equals_ignoring_case(value, "TOP") || parse_digits(value).has_value());
    case ValueKind::mail_types:
      return unless(std::ranges::all_of(split(value, ','), is_mail_type));
    case ValueKind::gpu_mem: {
      const auto size = parse_size(value);
      return unless(size && *size >= kLeastGpuMemory);
    }
    case ValueKind::gpu_share:
      return unless(parse_percent(value).has_value());
  }
  return {};
}

struct SignalName {
  std::string_view name;
  int number;
};
constexpr auto kSignals = std::to_array<SignalName>({
    {"HUP", SIGHUP},       {"INT", SIGINT},   {"QUIT", SIGQUIT},   {"ILL", SIGILL},
    {"TRAP", SIGTRAP},     {"ABRT", SIGABRT}, {"BUS", SIGBUS},     {"FPE", SIGFPE},
    {"KILL", SIGKILL},     {"USR1", SIGUSR1}, {"SEGV", SIGSEGV},   {"USR2", SIGUSR2},
    {"PIPE", SIGPIPE},     {"ALRM", SIGALRM}, {"TERM", SIGTERM},   {"CHLD", SIGCHLD},
    {"CONT", SIGCONT},     {"STOP", SIGSTOP}, {"TSTP", SIGTSTP},   {"TTIN", SIGTTIN},
    {"TTOU", SIGTTOU},     {"URG", SIGURG},   {"XCPU", SIGXCPU},   {"XFSZ", SIGXFSZ},
    {"VTALRM", SIGVTALRM}, {"PROF", SIGPROF}, {"WINCH", SIGWINCH}, {"IO", SIGIO},
    {"PWR", SIGPWR},       {"SYS", SIGSYS},
});

// Variables whose name is not the prefix and the option's usual one.
struct ExtraVariable {
  SlurmCommand command;
  const char* variable;
  const char* option;
};
constexpr auto kExtraVariables = std::to_array<ExtraVariable>({
    {SlurmCommand::sbatch, "SBATCH_DEBUG", "verbose"},
    {SlurmCommand::srun, "SLURM_DEBUG", "verbose"},
    {SlurmCommand::salloc, "SALLOC_DEBUG", "verbose"},
    {SlurmCommand::scancel, "SCANCEL_VERBOSE", "verbose"},
    {SlurmCommand::sbatch, "SLURM_UMASK", "umask"},
    {SlurmCommand::sbatch, "SLURM_CLUSTERS", "clusters"},
    {SlurmCommand::scancel, "SLURM_CLUSTERS", "clusters"},
    {SlurmCommand::squeue, "SLURM_CLUSTERS", "clusters"},
    {SlurmCommand::sinfo, "SLURM_CLUSTERS", "clusters"},
    {SlurmCommand::sdiag, "SLURM_CLUSTERS", "clusters"},
    {SlurmCommand::sreport, "SREPORT_CLUSTER", "clusters"},
    {SlurmCommand::srun, "SLURM_EXPORT_ENV", "export"},
    {SlurmCommand::srun, "SRUN_EXPORT_ENV", "export"},
    {SlurmCommand::srun, "SRUN_CPUS_PER_TASK", "cpus-per-task"},
    {SlurmCommand::srun, "SRUN_CONTAINER", "container"},
    {SlurmCommand::srun, "SLURM_NTASKS_PER_CORE", "ntasks-per-core"},
    {SlurmCommand::srun, "SLURM_NTASKS_PER_SOCKET", "ntasks-per-socket"},
    {SlurmCommand::srun, "SLURM_NPROCS", "ntasks"},
    {SlurmCommand::srun, "SLURM_NTASKS", "ntasks"},
    {SlurmCommand::srun, "SLURM_NTASKS_PER_NODE", "ntasks-per-node"},
    {SlurmCommand::srun, "SLURM_STDOUTMODE", "output"},
    {SlurmCommand::srun, "SLURM_STDERRMODE", "error"},
    {SlurmCommand::srun, "SLURM_STDINMODE", "input"},
});

}  // namespace

OptionSet::OptionSet(SlurmCommand command) : command_(command), values_(option_rows().size()) {}

Parsed<void> OptionSet::set(std::string_view name, std::string_view value, Source source) {
  const auto row = find_row(command_, name);
  if (!row) {
    return tl::make_unexpected(Misuse{kBadValue, fmt::format("unknown option --{}", name)});
  }
  // A NUL would cut the value off on its way to the job.
  if (value.find('\0') != value.npos) return tl::make_unexpected(invalid(option_rows()[*row]));
  if (auto good = check(option_rows()[*row], value); !good) return good;
  auto& slot = values_[*row];
  if (slot && slot->source > source) return {};
  const bool again = slot && slot->source == source;
  auto text = again && option_rows()[*row].kind == ValueKind::list
                  ? fmt::format("{},{}", slot->text, value)
                  : std::string(value);
  slot = Value{std::move(text), source, again ? slot->times + 1 : 1, ++places_};
  return {};
}

const OptionSet::Value* OptionSet::find(std::string_view name) const {
  const auto row = find_row(command_, name);
  return row && values_[*row] ? &*values_[*row] : nullptr;
}

std::string OptionSet::text(std::string_view name, std::string_view otherwise) const {
  const auto* value = find(name);
  return value == nullptr ? std::string(otherwise) : value->text;
}

std::optional<std::string> OptionSet::maybe(std::string_view name) const {
  const auto* value = find(name);
  if (value == nullptr) return std::nullopt;
  return value->text;
}

std::optional<std::int64_t> OptionSet::number(std::string_view name) const {
  const auto* value = find(name);
  return value == nullptr ? std::nullopt : parse_digits(value->text);
}

int OptionSet::times(std::string_view name) const {
  const auto* value = find(name);
  return value == nullptr ? 0 : value->times;
}

std::vector<std::string> OptionSet::words(std::string_view name) const {
  const auto* value = find(name);
  if (value == nullptr) return {};
  const auto parts = split(value->text, ',');
  return {parts.begin(), parts.end()};
}

std::vector<std::pair<std::string_view, std::string>> OptionSet::given() const {
  std::vector<std::pair<std::string_view, std::string>> all;
  const auto rows = option_rows();
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (!values_[i]) continue;
    std::string text = values_[i]->text;
    if (rows[i].kind == ValueKind::flag) {
      text = std::string_view(rows[i].name) == "verbose" ? fmt::format("{}", values_[i]->times)
                                                         : "set";
    }
    all.emplace_back(rows[i].name, std::move(text));
  }
  return all;
}

Parsed<CommandLine> read_arguments(SlurmCommand command, int argc, char* const* argv, bool quiet) {
  const auto rows = option_rows();
  std::string letters = is_submitter(command) ? "+" : "";
  std::vector<option> longs;
  longs.reserve(rows.size() + 1);
  // Other spellings last: of those that mean the same getopt names the first in its list.
  for (const bool other_spelling : {false, true}) {
    for (const auto& row : rows) {
      if (!known_to(row.commands, command) || (row.same_as != nullptr) != other_spelling) continue;
      const auto first = find_row(command, row.name);
      if (row.name[0] != '-') {
        longs.push_back({row.name, row.argument, nullptr, kLongOption + static_cast<int>(*first)});
      }
      if (row.letter != 0 && letters.find(row.letter) == letters.npos) {
        letters += row.letter;
        letters.append(static_cast<std::size_t>(row.argument), ':');  // none, one or two
      }
    }
  }
  longs.push_back({nullptr, 0, nullptr, 0});

  CommandLine line;
  optind = 0;  // glibc: start afresh
  opterr = quiet ? 0 : 1;
  while (true) {
    const int found = ::getopt_long(argc, argv, letters.c_str(), longs.data(), nullptr);
    if (found == -1) break;
    std::optional<std::size_t> row;
    if (found >= kLongOption) {
      row = static_cast<std::size_t>(found - kLongOption);
    } else if (found != '?') {
      row = find_letter(command, static_cast<char>(found));
    }
    if (!row) {
      // These say no more, in Slurm either.
      const bool silent = command == SlurmCommand::sstat || command == SlurmCommand::sacct;
      if (!quiet && !silent) {
        fmt::print(stderr, "Try \"{} --help\" for more information\n", command_name(command));
      }
      return tl::make_unexpected(Misuse{is_submitter(command) ? kBadValue : 1, {}});
    }
    line.words.push_back({rows[*row].name, optarg == nullptr ? "" : optarg});
    if (!is_submitter(command) && asks_about_command(line.words.back().name)) break;
  }
  line.rest = static_cast<std::size_t>(optind);
  return line;
}

std::vector<Word> read_variables(SlurmCommand command) {
  const std::string prefix(spelling(command).prefix);
  std::vector<Word> words;
  for (const auto& extra : kExtraVariables) {
    if (extra.command != command) continue;
    const char* value = std::getenv(extra.variable);
    if (value == nullptr) continue;
    // As often as it says.
    const bool times = std::string_view(extra.option) == "verbose";
    const std::int64_t count =
        times ? std::min<std::int64_t>(parse_digits(value).value_or(0), 9) : 1;
    for (std::int64_t i = 0; i < count; ++i) words.push_back({extra.option, value});
  }
  for (const auto& row : option_rows()) {
    if (row.variable == nullptr || !known_to(row.variable_commands, command)) continue;
    const char* value = std::getenv((prefix + row.variable).c_str());
    if (value == nullptr || (*value == '\0' && !is_submitter(command))) continue;
    // A flag is set by any value but these.
    if (row.kind == ValueKind::flag &&
        (std::strcmp(value, "0") == 0 || equals_ignoring_case(value, "no"))) {
      continue;
    }
    words.push_back({row.name, value});
  }
  return words;
}

Parsed<OptionSet> gather_options(SlurmCommand command, const CommandLine& line,
                                 const std::vector<Word>& directives) {
  OptionSet options(command);
  const auto variables = read_variables(command);
  for (const auto& [words, source] :
       {std::pair(&directives, Source::script), std::pair(&variables, Source::environment),
        std::pair(&line.words, Source::command_line)}) {
    for (const auto& word : *words) {
      if (auto set = options.set(word.name, word.value, source); !set) {
        return tl::make_unexpected(set.error());
      }
    }
  }
  return options;
}

std::optional<int> parse_signal_name(std::string_view text) {
  if (const auto number = parse_digits(text)) {
    if (*number > 0 && *number < NSIG) return static_cast<int>(*number);
    return std::nullopt;
  }
  if (text.size() > 3 && equals_ignoring_case(text.substr(0, 3), "SIG")) text.remove_prefix(3);
  for (const auto& signal : kSignals) {
    if (equals_ignoring_case(text, signal.name)) return signal.number;
  }
  return std::nullopt;
}

std::optional<SignalOption> parse_signal_option(std::string_view text) {
  SignalOption option;
  if (const auto colon = text.find(':'); colon != text.npos) {
    for (const char c : text.substr(0, colon)) {
      if (c == 'B' || c == 'b') {
        option.batch = true;
      } else if (c != 'R' && c != 'r') {
        return std::nullopt;
      }
    }
    text.remove_prefix(colon + 1);
  }
  const auto at = text.find('@');
  const auto number = parse_signal_name(text.substr(0, at));
  if (!number) return std::nullopt;
  option.number = *number;
  if (at != text.npos) {
    const auto seconds = parse_digits(text.substr(at + 1));
    if (!seconds || *seconds > 0xffff) return std::nullopt;
    option.seconds = *seconds;
  }
  return option;
}

std::string_view command_name(SlurmCommand command) { return spelling(command).name; }

}  // namespace aliquot::cli
