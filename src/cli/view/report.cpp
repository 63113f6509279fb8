// `aliquot report`: GPU hours granted, used and wasted, by user or by account.
#include <optional>

#include "cli/console.hpp"
#include "cli/engine_choice.hpp"
#include "cli/moment.hpp"
#include "cli/own_command.hpp"
#include "cli/query.hpp"
#include "cli/view/engine_query.hpp"
#include "cli/view/usage_text.hpp"

namespace aliquot::cli {
namespace {

struct ReportOptions {
  std::optional<std::string> user;
  std::optional<std::string> account;
  std::string since = "now-30days";
  bool json = false;
  bool csv = false;
};

int print_usage(const ReportOptions& options) {
  if (const auto status = refused_on_cluster(
          "report", {.slurm = "ask sreport",
                     .kubernetes = "ask Prometheus for aliquot_share_gpu_seconds_total"})) {
    return *status;
  }
  const WallTime now = wall_now();
  const auto since = parse_moment(options.since, now, Tense::past);
  if (!since) return misused(since.error());
  UsageWanted wanted{.since = *since, .until = now};
  if (options.account) wanted.by = UsageBy::account;
  wanted.name = options.account.value_or(options.user.value_or(""));
  auto daemon = DaemonClient::connect();
  if (!daemon) return refused(daemon.error());
  const auto cluster = daemon->get<api::ClusterInfo>("/v1/cluster");
  if (!cluster) return refused(cluster.error());
  const auto list =
      daemon->list(fmt::format("/v1/accounting?duplicates&start={}", wanted.since.ms()));
  if (!list) return refused(list.error());
  const auto rows = count_usage(list->jobs, cluster->node, wanted);
  if (options.csv) return print(usage_csv(rows, wanted));
  return print(options.json ? usage_json(rows, wanted) : usage_table(rows, wanted));
}

}  // namespace

void add_report(CLI::App& command, Invocation& invocation) {
  auto& options = run_with(command, invocation, print_usage);
  auto* user = command.add_option("--user", options.user, "By user, as usual; or this one alone");
  auto* account = command.add_option("--account", options.account, "By account; or this one alone");
  user->expected(0, 1);
  account->expected(0, 1)->excludes(user);
  command
      .add_option("--since", options.since,
                  "From when on: 2026-11-01, yesterday, now-7days, as in sacct -S")
      ->capture_default_str();
  auto* csv = command.add_flag("--csv", options.csv, "Print comma-separated values");
  command.add_flag("--json", options.json, kJsonAbout)->excludes(csv);
}

}  // namespace aliquot::cli
