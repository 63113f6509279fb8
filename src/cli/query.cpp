#include "cli/query.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>

#include "base/text.hpp"
#include "net/http.hpp"
#include "sys/system_clock.hpp"

namespace aliquot::cli {

int load_failed(std::string_view prefix, const api::ErrorInfo& error) {
  std::fflush(stdout);
  fmt::print(stderr, "{}: {}\n", prefix, error_text(error));
  return 1;
}

OrStatus<DaemonClient> open_daemon(const OptionSet& options, const Voice& voice,
                                   std::string_view prefix) {
  auto daemon = DaemonClient::connect();
  if (!daemon) return tl::make_unexpected(load_failed(prefix, daemon.error()));
  if (!is_here(*daemon, options, voice)) return tl::make_unexpected(1);
  return std::move(*daemon);
}

bool is_here(DaemonClient& daemon, const OptionSet& options, const Voice& voice) {
  const auto clusters = options.text("clusters");
  if (clusters.empty() || equals_ignoring_case(clusters, "all")) return true;
  const auto cluster = daemon.get<api::ClusterInfo>("/v1/cluster");
  if (!cluster) {
    voice.error(error_text(cluster.error()));
    return false;
  }
  const auto named = split(clusters, ',');
  if (std::ranges::find(named, cluster->cluster) != named.end()) return true;
  say_no_cluster(voice, clusters);
  return false;
}

void say_no_cluster(const Voice& voice, std::string_view name) {
  voice.error(fmt::format("No cluster '{}' known by database.", name));
  voice.error(
      fmt::format("'{}' can't be reached now, or it is an invalid entry for --cluster.  Use "
                  "'sacctmgr list clusters' to see available clusters.",
                  name));
}

Reply<std::string> resolve_job_id(DaemonClient& daemon, std::string_view id) {
  if (id != "last") return std::string(id);
  auto job = daemon.get<api::JobInfo>("/v1/jobs/last");
  if (!job) return tl::make_unexpected(job.error());
  return fmt::format("{}", job->array_job_id.value_or(job->id));
}

Reply<std::vector<std::string>> resolve_job_ids(DaemonClient& daemon, std::string_view list) {
  std::vector<std::string> ids;
  for (const auto id : split_outside_brackets(list)) {
    auto resolved = resolve_job_id(daemon, id);
    if (!resolved) return tl::make_unexpected(resolved.error());
    ids.push_back(std::move(*resolved));
  }
  return ids;
}

bool is_job_id(std::string_view text) {
  if (text == "last") return true;
  const auto number = text.substr(0, text.find_first_of("_.+"));
  return is_digits(number) && parse_digits(number).has_value();
}

std::string job_target(std::string_view id) { return "/v1/jobs/" + net::percent_encode(id); }

WallTime wall_now() { return sys::SystemClock().wall(); }

}  // namespace aliquot::cli
