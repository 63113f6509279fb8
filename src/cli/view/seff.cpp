// seff: the command line.
#include <fmt/format.h>
#include <getopt.h>

#include <array>
#include <cstdio>

#include "cli/console.hpp"
#include "cli/view/job_text.hpp"
#include "cli/view/named.hpp"
#include "cli/view/seff_text.hpp"
#include "cli/view/slurm_command.hpp"
#include "cli/view/slurm_json.hpp"
#include "net/http.hpp"

namespace aliquot::cli {
namespace {

constexpr std::string_view kSeffUsage =
    "Usage: seff [Options] <Jobid>\n"
    "       Options:\n"
    "       -h    Help menu\n"
    "       -v    Version\n"
    "       -d    Debug mode: display raw data\n"
    "       --json\n";

constexpr auto kSeffOptions = std::to_array<option>({
    {"json", no_argument, nullptr, 'J'},
    {"help", no_argument, nullptr, 'h'},
    {nullptr, 0, nullptr, 0},
});

}  // namespace

int run_seff(int argc, char** argv) {
  bool json = false;
  int letter = 0;
  while ((letter = getopt_long(argc, argv, "hvdf", kSeffOptions.data(), nullptr)) != -1) {
    switch (letter) {
      case 'h':
        return print(kSeffUsage);
      case 'v':
        return print("seff 2.1 (aliquot)\n");
      case 'J':
        json = true;
        break;
      case '?':
        return try_help("seff");
      default:
        break;
    }
  }
  if (optind + 1 != argc || !is_job_id(argv[optind])) {
    std::fputs(std::string(kSeffUsage).c_str(), stderr);
    return 2;
  }
  auto daemon = Daemon::connect();
  if (!daemon) return load_failed("seff: error", daemon.error());
  const auto id = resolve_job_id(*daemon, argv[optind]);
  if (!id) return load_failed("seff: error", id.error());
  auto list =
      daemon->list("/v1/accounting?id=" + net::percent_encode(id->substr(0, id->find('_'))));
  if (!list) return load_failed("seff: error", list.error());
  const auto cluster = daemon->get<api::ClusterInfo>("/v1/cluster");
  if (!cluster) return load_failed("seff: error", cluster.error());
  for (const auto& job : list->jobs) {
    if (!matches_job_id(job, *id)) continue;
    if (json) return print(sacct_json({job}, cluster->cluster, wall_now()));
    return print(format_seff(job, cluster->cluster, wall_now()));
  }
  fmt::print(stderr, "Job not found.\n");
  return 2;
}

}  // namespace aliquot::cli
