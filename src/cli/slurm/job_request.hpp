// From options to what is sent to the daemon, the same for sbatch, srun and salloc.
#pragma once

#include <optional>
#include <string>

#include "api/types.hpp"
#include "base/time.hpp"
#include "cli/common.hpp"
#include "cli/slurm/export.hpp"
#include "cli/slurm/options.hpp"

namespace aliquot::cli {

// Where and by whom the command was called.
struct Caller {
  Environment environment;
  std::string folder;
  std::string host;
  std::uint32_t umask = 0022;
};
Caller describe_caller();

// All but what is particular to a command: name, script, command.
Parsed<api::JobSpec> make_job(const OptionSet& options, const Caller& caller, WallTime now);

// What -w, -x and -M name must be this machine and this cluster: asks the daemon if they are given.
Answer<void> check_places(const OptionSet& options, Daemon& daemon, const Voice& voice);

// --uid and --gid, for root: becomes that user before the daemon sees who calls.
Parsed<void> become_user(const OptionSet& options);

// --help, --usage and --version: prints it and returns the exit status, if one of them is there.
std::optional<int> answer_about(Submitter command, const CommandLine& line);

// Says why not, and returns the exit status.
int refused(const Voice& voice, const Refusal& refusal);

// -v: the options in force.
void say_options(const OptionSet& options, const Voice& voice);

// -v and -Q.
int voice_level(const OptionSet& options);

// Slurm's lines about a refused job: what is particular to it, then `<prefix>: <text>`.
void say_refusal(const Voice& voice, std::string_view prefix, const api::ErrorInfo& error,
                 const api::JobSpec& job);

// Whether to ask once more: the queue is full, or the daemon cannot write its record now. As
// Slurm's commands do, says so the first time, and waits 1, 2, … seconds; not for ever.
bool may_ask_again(const api::ErrorInfo& error, unsigned tries, const Voice& voice);

template <class T>
Answer<T> post_patiently(Daemon& daemon, std::string_view target, const std::string& body,
                         const Voice& voice) {
  for (unsigned tries = 0;; ++tries) {
    auto answer = daemon.post<T>(target, body);
    if (answer || !may_ask_again(answer.error(), tries, voice)) return answer;
    // Whoever was one connection too many has none now.
    if (auto again = Daemon::connect()) daemon = std::move(*again);
  }
}

}  // namespace aliquot::cli
