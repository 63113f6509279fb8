// scontrol show.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "base/hostlist.hpp"
#include "base/text.hpp"
#include "cli/console.hpp"
#include "cli/control/scontrol_call.hpp"
#include "cli/control/scontrol_reservation.hpp"
#include "cli/query.hpp"
#include "cli/view/job_text.hpp"
#include "cli/view/slurm_json.hpp"
#include "net/http.hpp"

namespace aliquot::cli {
namespace {

// As Slurm does it: said, and no failure.
int no_hosts() {
  Voice("scontrol").error("host list is empty");
  return 0;
}

int show_hostnames(const ControlCall& call) {
  std::string list(call.word(1));
  if (list.empty() && call.words.size() > 1) return 0;
  if (list.empty()) {
    const char* own = std::getenv("SLURM_NODELIST");
    if (own == nullptr) return no_hosts();
    list = own;
  }
  const auto hosts = expand_hostlist(list);
  if (!hosts) return fail_with(hosts.error().message);
  std::string out;
  for (const auto& host : *hosts) out += host + "\n";
  return print(out);
}

int show_hostlist(const ControlCall& call, bool sorted) {
  auto hosts = expand_hostlist(call.word(1));
  if (!hosts) return fail_with(hosts.error().message);
  if (hosts->empty()) return no_hosts();
  if (sorted) {
    std::ranges::sort(*hosts);
    hosts->erase(std::unique(hosts->begin(), hosts->end()), hosts->end());
  }
  return print(fold_hostlist(*hosts) + "\n");
}

Reply<std::vector<api::JobInfo>> load_jobs(DaemonClient& daemon, std::string_view id) {
  using Jobs = Reply<std::vector<api::JobInfo>>;
  std::string target = "/v1/jobs";
  std::string wanted;
  if (!id.empty()) {
    auto resolved = resolve_job_id(daemon, id);
    if (!resolved) return tl::make_unexpected(resolved.error());
    wanted = std::move(*resolved);
    target += "?id=" + net::percent_encode(wanted.substr(0, wanted.find_first_of("_.")));
  }
  auto list = daemon.list(target);
  if (!list) return tl::make_unexpected(list.error());
  if (!wanted.empty()) {
    std::erase_if(list->jobs, [&](const auto& job) { return !matches_job_id(job, wanted); });
    if (list->jobs.empty()) {
      return tl::make_unexpected(api::ErrorInfo{"ESLURM_INVALID_JOB_ID", ""});
    }
  }
  std::ranges::sort(list->jobs, {}, &api::JobInfo::id);
  return Jobs(std::move(list->jobs));
}

// On the standard output, as Slurm does it.
int not_found(std::string_view what, std::string_view name) {
  print(fmt::format("{} {} not found\n", what, make_plain(name)));
  return 1;
}

// Of `7_2`, where the array still waits as one: that element.
void narrow_array(std::vector<api::JobInfo>& jobs, std::string_view id) {
  const auto line = id.find('_');
  if (line == id.npos || jobs.size() != 1 || !parse_digits(id.substr(line + 1))) return;
  if (!jobs[0].array_pending.empty()) jobs[0].array_pending = id.substr(line + 1);
}

int show_jobs(const ControlCall& call) {
  const auto id = call.word(1);
  if (!id.empty() && (!is_job_id(id) || id.find('.') != id.npos)) {
    // A number that no job has is looked for.
    return load_failed(is_digits(id) ? kLoadJobs : "scontrol_print_job error",
                       {"ESLURM_INVALID_JOB_ID", ""});
  }
  auto daemon = DaemonClient::connect();
  if (!daemon) return load_failed(kLoadJobs, daemon.error());
  auto jobs = load_jobs(*daemon, id);
  if (!jobs && jobs.error().code == "ESLURM_INVALID_JOB_ID") {
    if (call.quiet) return 1;
    // The array is there, and has no such element.
    if (const auto line = id.find('_'); line != id.npos && load_jobs(*daemon, id.substr(0, line))) {
      return not_found("Job", id);
    }
  }
  if (!jobs) return load_failed(kLoadJobs, jobs.error());
  narrow_array(*jobs, id);
  if (call.json) {
    const auto cluster = daemon->get<api::ClusterInfo>("/v1/cluster");
    if (!cluster) return load_failed(kLoadJobs, cluster.error());
    return print(squeue_json(*jobs, cluster->cluster));
  }
  if (jobs->empty()) return print("No jobs in the system\n");
  std::string out;
  for (const auto& job : *jobs) out += show_job(job, call.style, wall_now());
  return print(out);
}

int show_steps(const ControlCall& call) {
  constexpr std::string_view kPrefix = "slurm_get_job_steps error";
  auto daemon = DaemonClient::connect();
  if (!daemon) return load_failed(kPrefix, daemon.error());
  const auto id = call.word(1);
  const auto dot = id.find('.');
  const auto jobs = load_jobs(*daemon, id.substr(0, dot));
  if (!jobs) return load_failed(kPrefix, jobs.error());
  std::string out;
  for (const auto& job : *jobs) {
    for (const auto& step : job.steps) {
      if (step.state != "RUNNING" && step.state != "SUSPENDED") continue;
      if (dot != id.npos && id.substr(dot + 1) != step.id) continue;
      out += show_step(job, step, call.style);
    }
  }
  if (out.empty()) out = "No job steps in the system\n";
  return print(out);
}

int show_cluster(const ControlCall& call, std::string_view prefix,
                 int (*show)(const ControlCall&, const api::ClusterInfo&)) {
  auto daemon = DaemonClient::connect();
  if (!daemon) return load_failed(prefix, daemon.error());
  const auto cluster = daemon->get<api::ClusterInfo>("/v1/cluster");
  if (!cluster) return load_failed(prefix, cluster.error());
  return show(call, *cluster);
}

int show_nodes(const ControlCall& call, const api::ClusterInfo& cluster) {
  if (const auto name = call.word(1); !name.empty() && name != cluster.node.name) {
    return not_found("Node", name);
  }
  return print(call.json ? sinfo_json(cluster) : show_node(cluster, call.style));
}

int show_partitions(const ControlCall& call, const api::ClusterInfo& cluster) {
  std::string out;
  for (const auto& partition : cluster.partitions) {
    const auto name = call.word(1);
    if (name.empty() || name == partition.name)
      out += show_partition(cluster, partition, call.style);
  }
  if (out.empty()) return not_found("Partition", call.word(1));
  return print(out);
}

constexpr std::string_view kReservationFailed = "slurm_load_reservations error";

int show_reservations(const ControlCall& call) {
  auto daemon = DaemonClient::connect();
  if (!daemon) return load_failed(kReservationFailed, daemon.error());
  const auto cluster = daemon->get<api::ClusterInfo>("/v1/cluster");
  if (!cluster) return load_failed(kReservationFailed, cluster.error());
  const auto all = daemon->get<api::ReservationList>("/v1/reservations");
  if (!all) return load_failed(kReservationFailed, all.error());
  std::string out;
  for (const auto& one : all->reservations) {
    if (call.word(1).empty() || call.word(1) == one.name) {
      out += show_reservation(one, *cluster, call.style, wall_now());
    }
  }
  if (out.empty() && !call.word(1).empty()) {
    return not_found("Reservation", call.word(1));
  }
  return print(out.empty() ? "No reservations in the system\n" : out);
}

// What a machine of this kind never has, in Slurm's words for having none.
int show_nothing(std::string_view what) {
  if (is_command(what, "licenses", 2)) return print("No licenses configured in Slurm.\n");
  if (is_command(what, "topology", 1)) Voice("scontrol").error("No topology information available");
  return 0;
}

}  // namespace

int fail_with(std::string_view text) {
  for (const auto line : split(text, '\n')) {
    fmt::print(stderr, "{}\n", steers_terminal(line) ? make_plain(line) : std::string(line));
  }
  return 1;
}

int show_entity(const ControlCall& given) {
  ControlCall call = given;
  // `show job=7`, and what else names a job.
  if (const auto equals = call.word(0).find('='); equals != std::string_view::npos) {
    call.words.insert(call.words.begin() + 1, call.words[0].substr(equals + 1));
    call.words[0] = call.words[0].substr(0, equals);
  }
  const auto what = call.word(0);
  if (call.words.size() > 2) return fail_with("too many arguments for keyword:show");
  if (is_command(what, "hostnames", 5)) return show_hostnames(call);
  if (is_command(what, "hostlistsorted", 9)) return show_hostlist(call, true);
  if (is_command(what, "hostlist", 5)) return show_hostlist(call, false);
  if (is_command(what, "jobs", 1) || is_command(what, "jobid", 1)) return show_jobs(call);
  if (is_command(what, "nodes", 1)) return show_cluster(call, "slurm_load_node error", show_nodes);
  if (is_command(what, "partitions", 1)) {
    return show_cluster(call, "slurm_load_partitions error", show_partitions);
  }
  if (is_command(what, "steps", 2)) return show_steps(call);
  if (is_command(what, "config", 1)) {
    return show_cluster(call, "slurm_load_ctl_conf error",
                        [](const ControlCall&, const api::ClusterInfo& cluster) {
                          return print(show_config(cluster, wall_now()));
                        });
  }
  if (is_command(what, "reservations", 1)) return show_reservations(call);
  for (const std::string_view nothing : {"licenses", "burstbuffer", "federations", "topology"}) {
    if (is_command(what, nothing, 2)) return show_nothing(what);
  }
  if (what.empty()) return fail_with("too few arguments for keyword:show");
  return fail_with(fmt::format("invalid entity:{} for keyword:show ", what));
}

}  // namespace aliquot::cli
