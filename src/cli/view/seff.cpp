// seff: what a job used of what it had.
#include <fmt/format.h>

#include <cstdio>

#include "cli/commands.hpp"
#include "cli/console.hpp"
#include "cli/help_text.hpp"
#include "cli/query.hpp"
#include "cli/view/job_text.hpp"
#include "cli/view/seff_text.hpp"
#include "cli/view/slurm_json.hpp"
#include "net/http.hpp"

namespace aliquot::cli {

int run_seff(int argc, char** argv) {
  constexpr std::string_view kPrefix = "seff: error";
  Voice voice("seff");
  const auto call = read_call(SlurmCommand::seff, argc, argv, voice);
  if (!call) return call.error();
  if (call->options.has("-v")) return print("seff 2.1 (aliquot)\n");
  if (call->words.size() != 1 || !is_job_id(call->words.front())) {
    std::fputs(help_text(SlurmCommand::seff).c_str(), stderr);
    return 2;
  }
  auto daemon = open_daemon(call->options, voice, kPrefix);
  if (!daemon) return daemon.error();
  const auto id = resolve_job_id(*daemon, call->words.front());
  if (!id) return load_failed(kPrefix, id.error());
  auto list =
      daemon->list("/v1/accounting?id=" + net::percent_encode(id->substr(0, id->find('_'))));
  if (!list) return load_failed(kPrefix, list.error());
  const auto cluster = daemon->get<api::ClusterInfo>("/v1/cluster");
  if (!cluster) return load_failed(kPrefix, cluster.error());
  for (const auto& job : list->jobs) {
    if (!matches_job_id(job, *id)) continue;
    return print(call->options.has("json") ? sacct_json({job}, cluster->cluster, wall_now())
                                           : format_seff(job, cluster->cluster, wall_now()));
  }
  fmt::print(stderr, "Job not found.\n");
  return 2;
}

}  // namespace aliquot::cli
