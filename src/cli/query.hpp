// What the commands that Slurm has as well ask the daemon: a connection to the cluster that -M
// names, and jobs by the ids that users write. What goes wrong is said in Slurm's words.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/time.hpp"
#include "cli/daemon_client.hpp"
#include "cli/named_call.hpp"

namespace aliquot::cli {

// `slurm_load_jobs error: Invalid job id specified`; exit status 1.
int load_failed(std::string_view prefix, const api::ErrorInfo& error);

// Connects to the daemon, which must serve a cluster that -M names.
OrStatus<DaemonClient> open_daemon(const OptionSet& options, const Voice& voice,
                                   std::string_view prefix);
// That there is no cluster of this name, as Slurm says it.
void say_no_cluster(const Voice& voice, std::string_view name);
// Whether the daemon's cluster is meant: -M names it or `all`, or is not given. If not, says so.
bool is_here(DaemonClient& daemon, const OptionSet& options, const Voice& voice);

// The id itself; for `last` that of the caller's latest job.
Reply<std::string> resolve_job_id(DaemonClient& daemon, std::string_view id);
Reply<std::vector<std::string>> resolve_job_ids(DaemonClient& daemon, std::string_view list);

// `7`, `7_3`, `7_[1-3]`, `last`: what may stand after -j.
bool is_job_id(std::string_view text);

// `/v1/jobs/7_3`
std::string job_target(std::string_view id);

WallTime wall_now();

}  // namespace aliquot::cli
