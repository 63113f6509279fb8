// From options to what is sent to the daemon, the same for sbatch, srun and salloc.
#pragma once

#include <string>

#include "api/types.hpp"
#include "base/time.hpp"
#include "cli/daemon_client.hpp"
#include "cli/jobs/export.hpp"
#include "cli/named_call.hpp"

namespace aliquot::cli {

// Where and by whom the command was called.
struct CallSite {
  Environment environment;
  std::string folder;
  std::string host;
  std::uint32_t umask = 0022;
};
CallSite describe_caller();

// All but what is particular to a command: name, script, command.
Parsed<api::JobSpec> make_job(const OptionSet& options, const CallSite& caller, WallTime now);

// What -w, -x and -M name must be this machine and this cluster: asks the daemon if they are given.
Reply<void> check_places(const OptionSet& options, DaemonClient& daemon, const Voice& voice);

// --uid and --gid, for root: becomes that user before the daemon sees who calls.
Parsed<void> become_user(const OptionSet& options);

// -v: the options in force.
void say_options(const OptionSet& options, const Voice& voice);

// Slurm's lines about a refused job: what is particular to it, then `<prefix>: <text>`.
void say_refusal(const Voice& voice, std::string_view prefix, const api::ErrorInfo& error,
                 const api::JobSpec& job);

// --test-only: says when the job could start, and submits nothing. The exit status.
inline constexpr std::string_view kTestFailed = "allocation failure";
int test_only(DaemonClient& daemon, const api::JobSpec& job, const Voice& voice);

// Whether to ask once more: the queue is full, or the daemon cannot write its record now. As
// Slurm's commands do, says so the first time, and waits 1, 2, … seconds; not for ever.
bool may_ask_again(const api::ErrorInfo& error, unsigned tries, const Voice& voice);

template <class T>
Reply<T> post_patiently(DaemonClient& daemon, std::string_view target, const std::string& body,
                        const Voice& voice) {
  for (unsigned tries = 0;; ++tries) {
    auto answer = daemon.post<T>(target, body);
    if (answer || !may_ask_again(answer.error(), tries, voice)) return answer;
    // The daemon closes the connection of whom it cannot serve: a new one is needed.
    if (auto again = DaemonClient::connect()) daemon = std::move(*again);
  }
}

}  // namespace aliquot::cli
