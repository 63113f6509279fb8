#include "cli/view/slurm_command.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>

#include "base/clock.hpp"
#include "base/text.hpp"
#include "cli/console.hpp"

namespace aliquot::cli {

int try_help(std::string_view command) {
  fmt::print(stderr, "Try \"{} --help\" for more information\n", command);
  return 1;
}

int load_failed(std::string_view prefix, const api::ErrorInfo& error) {
  std::fflush(stdout);
  fmt::print(stderr, "{}: {}\n", prefix, error_text(error));
  return 1;
}

Answer<std::string> resolve_job_id(Daemon& daemon, std::string_view id) {
  if (id != "last") return std::string(id);
  auto job = daemon.get<api::JobInfo>("/v1/jobs/last");
  if (!job) return tl::make_unexpected(job.error());
  return fmt::format("{}", job->array_job_id.value_or(job->id));
}

Answer<std::vector<std::string>> resolve_job_ids(Daemon& daemon, std::string_view list) {
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

bool is_here(Daemon& daemon, std::string_view clusters, const Voice& voice) {
  if (clusters.empty() || equals_ignoring_case(clusters, "all")) return true;
  const auto cluster = daemon.get<api::ClusterInfo>("/v1/cluster");
  if (!cluster) {
    voice.error(error_text(cluster.error()));
    return false;
  }
  for (const auto name : split(clusters, ',')) {
    if (name == cluster->cluster) return true;
  }
  voice.error(fmt::format("No cluster '{}' known by database.", clusters));
  return false;
}

tl::expected<std::vector<std::uint32_t>, std::string> resolve_users(std::string_view list) {
  std::vector<std::uint32_t> uids;
  for (const auto name : split(list, ',')) {
    const auto uid = find_user(name);
    if (!uid) return tl::make_unexpected(std::string(name));
    uids.push_back(uid->value());
  }
  return uids;
}

WallTime wall_now() { return SystemClock().wall(); }

void add_words(std::vector<std::string>& to, std::string_view list) {
  for (const auto word : split(list, ',')) to.emplace_back(word);
}

std::optional<unsigned> read_iterate(const Voice& voice, std::string_view value) {
  const auto every = parse_digits(value);
  if (every && *every >= 1 && *every <= 1'000'000) return static_cast<unsigned>(*every);
  voice.error(fmt::format("--iterate={}", value));
  return std::nullopt;
}

int show_every(unsigned seconds, const std::function<int()>& show) {
  while (true) {
    const int status = show();
    if (seconds == 0) return status;
    ::sleep(seconds);
    print("\n");
  }
}

}  // namespace aliquot::cli
