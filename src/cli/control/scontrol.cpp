// scontrol: one command from the command line. Interactive use is not offered.
#include <fcntl.h>
#include <fmt/ranges.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "base/hostlist.hpp"
#include "base/text.hpp"
#include "cli/commands.hpp"
#include "cli/console.hpp"
#include "cli/control/scontrol_reservation.hpp"
#include "cli/control/scontrol_text.hpp"
#include "cli/control/scontrol_update.hpp"
#include "cli/help_text.hpp"
#include "cli/query.hpp"
#include "cli/view/job_text.hpp"
#include "cli/view/json_writer.hpp"
#include "cli/view/slurm_json.hpp"
#include "net/http.hpp"
#include "sys/fd.hpp"
#include "sys/host_name.hpp"

namespace aliquot::cli {
namespace {

constexpr std::string_view kLoadJobs = "slurm_load_jobs error";

using Words = std::vector<std::string_view>;

struct Call {
  ShowStyle style;
  bool json = false;
  bool quiet = false;
  Words words;  // after the command

  [[nodiscard]] std::string_view word(std::size_t i) const {
    return i < words.size() ? words[i] : std::string_view();
  }
};

int say(std::string_view text) {
  fmt::print(stderr, "{}\n", steers_terminal(text) ? make_plain(text) : std::string(text));
  return 1;
}

int show_hostnames(const Call& call) {
  std::string list(call.word(1));
  if (list.empty()) {
    const char* own = std::getenv("SLURM_JOB_NODELIST");
    if (own == nullptr) own = std::getenv("SLURM_NODELIST");
    if (own == nullptr) {
      return say("host list is empty");
    }
    list = own;
  }
  const auto hosts = expand_hostlist(list);
  if (!hosts) return say(hosts.error().message);
  std::string out;
  for (const auto& host : *hosts) out += host + "\n";
  return print(out);
}

int show_hostlist(const Call& call, bool sorted) {
  auto hosts = expand_hostlist(call.word(1));
  if (!hosts) return say(hosts.error().message);
  if (hosts->empty()) return say("host list is empty");
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

int show_jobs(const Call& call) {
  const auto id = call.word(1);
  if (!id.empty() && !is_job_id(id)) {
    return load_failed(kLoadJobs, {"ESLURM_INVALID_JOB_ID", ""});
  }
  auto daemon = DaemonClient::connect();
  if (!daemon) return load_failed(kLoadJobs, daemon.error());
  const auto jobs = load_jobs(*daemon, id);
  if (!jobs) return load_failed(kLoadJobs, jobs.error());
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

int show_steps(const Call& call) {
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

int show_cluster(const Call& call, std::string_view prefix,
                 int (*show)(const Call&, const api::ClusterInfo&)) {
  auto daemon = DaemonClient::connect();
  if (!daemon) return load_failed(prefix, daemon.error());
  const auto cluster = daemon->get<api::ClusterInfo>("/v1/cluster");
  if (!cluster) return load_failed(prefix, cluster.error());
  return show(call, *cluster);
}

int show_nodes(const Call& call, const api::ClusterInfo& cluster) {
  if (const auto name = call.word(1); !name.empty() && name != cluster.node.name) {
    return say(fmt::format("Node {} not found", name));
  }
  return print(call.json ? sinfo_json(cluster) : show_node(cluster, call.style));
}

int show_partitions(const Call& call, const api::ClusterInfo& cluster) {
  std::string out;
  for (const auto& partition : cluster.partitions) {
    const auto name = call.word(1);
    if (name.empty() || name == partition.name)
      out += show_partition(cluster, partition, call.style);
  }
  if (out.empty()) return say(fmt::format("Partition {} not found", call.word(1)));
  return print(out);
}

constexpr std::string_view kReservationFailed = "slurm_load_reservations error";

int show_reservations(const Call& call) {
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
    return say(fmt::format("Reservation {} not found", call.word(1)));
  }
  return print(out.empty() ? "No reservations in the system\n" : out);
}

// `create reservation …`, and the same for update and delete; `words` without that word.
int change_reservation(std::string_view verb, const std::vector<std::string_view>& words) {
  const auto failed = [&](const api::ErrorInfo& error) {
    // Ours says which GPU or which word; Slurm's texts are for what Slurm would say.
    const std::string& text =
        error.code == "ESLURM_NODES_BUSY" || error.code == "ESLURM_INVALID_TIME_VALUE"
            ? error_text(error) + ": " + error.message
            : error_text(error);
    return say(fmt::format("Error {} the reservation: {}",
                           verb == "create"   ? "creating"
                           : verb == "update" ? "updating"
                                              : "deleting",
                           text));
  };
  auto daemon = DaemonClient::connect();
  if (!daemon) return failed(daemon.error());
  const auto cluster = daemon->get<api::ClusterInfo>("/v1/cluster");
  if (!cluster) return failed(cluster.error());
  std::vector<std::int64_t> gpus;
  for (const auto& gpu : cluster->node.gpus) gpus.push_back(gpu.index);
  const auto spec = parse_reservation(words, gpus, wall_now());
  if (!spec) return say(spec.error().message);
  if (verb != "create" && spec->name.empty())
    return say("Reservation must be given.  No update sent");
  const auto done = daemon->post<api::ReservationInfo>(fmt::format("/v1/reservations/{}", verb),
                                                       api::to_json(*spec));
  if (!done) return failed(done.error());
  if (verb == "create") return print(fmt::format("Reservation created: {}\n", done->name));
  return verb == "update" ? print("Reservation updated.\n") : 0;
}

bool is_reservation(std::string_view word) {
  const auto key = word.substr(0, word.find('='));
  return equals_ignoring_case(key, "ReservationName") || equals_ignoring_case(key, "Reservation");
}

// `create reservation Users=…`, `create ReservationName=…`, `delete reservation=…`
int reservation_command(std::string_view verb, const Call& call) {
  if (call.words.empty()) return say(fmt::format("too few arguments for keyword:{}", verb));
  Words words = call.words;
  const bool plain = words[0].find('=') == words[0].npos;
  if (!is_reservation(words[0]) && std::ranges::none_of(words, is_reservation)) {
    return say(fmt::format("Invalid {} option: {}", verb, words[0]));
  }
  if (plain) {
    words.erase(words.begin());
    // `delete reservation course`
    if (verb == "delete" && words.size() == 1 && words[0].find('=') == words[0].npos) {
      const std::string name = fmt::format("ReservationName={}", words[0]);
      return change_reservation(verb, {name});
    }
  }
  return change_reservation(verb, words);
}

int show(const Call& call) {
  const auto what = call.word(0);
  if (is_command(what, "hostnames", 5)) return show_hostnames(call);
  if (is_command(what, "hostlistsorted", 9)) return show_hostlist(call, true);
  if (is_command(what, "hostlist", 5)) return show_hostlist(call, false);
  if (is_command(what, "jobs", 1)) return show_jobs(call);
  if (is_command(what, "nodes", 1)) return show_cluster(call, "slurm_load_node error", show_nodes);
  if (is_command(what, "partitions", 1)) {
    return show_cluster(call, "slurm_load_partitions error", show_partitions);
  }
  if (is_command(what, "steps", 2)) return show_steps(call);
  if (is_command(what, "config", 1)) {
    return show_cluster(call, "slurm_load_ctl_conf error",
                        [](const Call&, const api::ClusterInfo& cluster) {
                          return print(show_config(cluster, wall_now()));
                        });
  }
  if (is_command(what, "reservations", 1)) return show_reservations(call);
  if (what.empty()) return say("too few arguments for keyword:show");
  return say(fmt::format("invalid entity:{} for keyword:show ", what));
}

// `hold 14,15 16`: each id gets the same request.
int for_jobs(const Call& call, std::string_view command, std::string_view action,
             std::string_view body = {}) {
  if (call.words.empty()) return say(fmt::format("too few arguments for keyword:{}", command));
  auto daemon = DaemonClient::connect();
  int status = 0;
  for (const auto& word : call.words) {
    for (const auto id : split(word, ',')) {
      if (id.empty()) continue;
      Reply<std::string> answer;
      if (!is_job_id(id)) {
        answer = tl::make_unexpected(api::ErrorInfo{"ESLURM_INVALID_JOB_ID", ""});
      } else if (!daemon) {
        answer = tl::make_unexpected(daemon.error());
      } else {
        answer = daemon->send("POST", fmt::format("{}/{}", job_target(id), action), body);
      }
      if (answer) continue;
      status = 1;
      if (!call.quiet) say(fmt::format("{} for job {}", error_text(answer.error()), id));
    }
  }
  return status;
}

// All of them in one request: their order counts.
int top_jobs(const Call& call) {
  if (call.words.empty()) return say("too few arguments for keyword:top");
  std::string ids;
  for (const auto word : call.words) ids += (ids.empty() ? "" : ",") + std::string(word);
  auto daemon = DaemonClient::connect();
  auto answer = daemon ? daemon->send("POST", job_target(ids) + "/top")
                       : Reply<std::string>(tl::make_unexpected(daemon.error()));
  if (answer) return 0;
  if (!call.quiet) say(fmt::format("{} for job {}", error_text(answer.error()), ids));
  return 1;
}

int update_job(const Call& call, const JobUpdate& update, const std::string& id) {
  std::optional<Millis> limit;
  if (update.longer) {
    const auto failed = [&](const api::ErrorInfo& error) {
      return call.quiet ? 1 : say(fmt::format("{} for job {}", error_text(error), id));
    };
    auto daemon = DaemonClient::connect();
    if (!daemon) return failed(daemon.error());
    const auto job = daemon->get<api::JobInfo>(job_target(id));
    if (!job) return failed(job.error());
    if (job->time_limit_ms) limit = Millis(*job->time_limit_ms);
  }
  const auto body = update.body_for(limit);
  if (!body) return say(body.error().message);
  Call each = call;
  each.words = {id};
  return for_jobs(each, "update", "update", *body);
}

int update(const Call& call) {
  const auto parsed = parse_update(call.words, wall_now());
  if (!parsed) return say(parsed.error().message);
  auto daemon = DaemonClient::connect();
  for (const auto& node : parsed->nodes) {
    const auto failed = [&](const api::ErrorInfo& error) {
      return say(fmt::format("slurm_update error: {}", error_text(error)));
    };
    if (!daemon) return failed(daemon.error());
    const auto cluster = daemon->get<api::ClusterInfo>("/v1/cluster");
    if (!cluster) return failed(cluster.error());
    if (node.name != cluster->node.name && !equals_ignoring_case(node.name, "ALL")) {
      return failed({"ESLURM_INVALID_NODE_NAME", ""});
    }
    const auto body = api::to_json(api::DrainSpec{node.reason, node.gpus, node.down});
    const auto answer =
        daemon->send("POST", node.drain ? "/v1/node/drain" : "/v1/node/resume", body);
    if (!answer) return failed(answer.error());
  }
  int status = 0;
  for (const auto& job : parsed->jobs) {
    for (const auto& id : job.ids) status = std::max(status, update_job(call, job, id));
  }
  return status;
}

// Until the job runs.
int wait_job(const Call& call) {
  const auto id = call.word(0);
  if (id.empty()) return say("too few arguments for keyword:wait_job");
  const Voice voice("scontrol");
  while (true) {
    auto daemon = DaemonClient::connect();
    if (!daemon) return load_failed(kLoadJobs, daemon.error());
    const auto job = daemon->get<api::JobInfo>(job_target(id));
    if (!job) return load_failed(kLoadJobs, job.error());
    if (is_active(*job)) {
      voice.info(fmt::format("Nodes {} are ready for job {}", job->node, job->id));
      return 0;
    }
    if (is_finished(*job)) {
      voice.info(fmt::format("Problem running job {}", job->id));
      return 1;
    }
    ::usleep(250'000);
  }
}

int write_file(const std::string& path, std::string_view text) {
  // The script may hold secrets: as private as Slurm makes it.
  const sys::Fd file(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0700));
  if (!file) {
    return say(fmt::format("failed to create file `{}`: {}", path, std::strerror(errno)));
  }
  if (sys::write_all(file.get(), text)) return 0;
  return say(fmt::format("failed to write file `{}`: {}", path, std::strerror(errno)));
}

int write_script(const Call& call) {
  const auto id = call.word(1);
  if (!is_command(call.word(0), "batch_script", 1)) {
    return say(fmt::format("invalid entity:{} for keyword:write", call.word(0)));
  }
  if (id.empty()) return say("too few arguments for keyword:write");
  auto daemon = DaemonClient::connect();
  const auto failed = [](const api::ErrorInfo& error) {
    return say(fmt::format("job script retrieval failed: {}", error_text(error)));
  };
  if (!daemon) return failed(daemon.error());
  const auto job = daemon->get<api::JobInfo>(job_target(id));
  if (!job) return failed(job.error());
  const auto script = daemon->send("GET", job_target(id) + "?script=1");
  if (!script) return failed(script.error());
  if (call.word(2) == "-") return print(*script);
  const auto path =
      call.word(2).empty() ? fmt::format("slurm-{}.sh", job->id) : std::string(call.word(2));
  if (const int status = write_file(path, *script)) return status;
  return print(fmt::format("batch script for job {} written to {}\n", job->id, path));
}

int ping() {
  auto daemon = DaemonClient::connect();
  const bool up = daemon && daemon->send("GET", "/v1/cluster");
  const int status =
      print(fmt::format("Slurmctld(primary) at {} is {}\n", sys::host_name(), up ? "UP" : "DOWN"));
  return up ? status : 1;
}

int reconfigure() {
  auto daemon = DaemonClient::connect();
  const auto done = daemon ? daemon->post<api::Reconfigured>("/v1/reconfigure", "{}")
                           : Reply<api::Reconfigured>(tl::make_unexpected(daemon.error()));
  if (!done) return say(fmt::format("slurm_reconfigure error: {}", error_text(done.error())));
  if (!done->needs_restart.empty()) {
    say(fmt::format("These have changed and need a restart: {}",
                    fmt::join(done->needs_restart, ", ")));
  }
  return 0;
}

// The commands, with how many letters of each are enough.
int run_control(std::string_view command, const Call& call) {
  struct OnJobs {
    std::string_view name;
    std::size_t least;
    std::string_view action;
  };
  constexpr auto kOnJobs = std::to_array<OnJobs>({{"hold", 2, "hold"},
                                                  {"uhold", 2, "hold"},
                                                  {"release", 3, "release"},
                                                  {"requeue", 3, "requeue"},
                                                  {"requeuehold", 8, "requeue?hold=1"},
                                                  {"suspend", 2, "suspend"},
                                                  {"resume", 3, "resume"}});
  for (const auto& [name, least, action] : kOnJobs) {
    if (is_command(command, name, least)) return for_jobs(call, name, action);
  }
  if (is_command(command, "show", 2)) return show(call);
  if (is_command(command, "top", 3)) return top_jobs(call);
  // Jobs have a key of the same name.
  const bool of_job = std::ranges::any_of(call.words, [](std::string_view word) {
    return equals_ignoring_case(word.substr(0, 3), "job");
  });
  if (is_command(command, "update", 1) && !of_job &&
      std::ranges::any_of(call.words, is_reservation)) {
    return reservation_command("update", call);
  }
  if (is_command(command, "update", 1)) return update(call);
  if (is_command(command, "create", 2)) return reservation_command("create", call);
  if (is_command(command, "delete", 3)) return reservation_command("delete", call);
  if (is_command(command, "wait_job", 1)) return wait_job(call);
  if (is_command(command, "write", 2)) return write_script(call);
  if (is_command(command, "reconfigure", 3)) return reconfigure();
  if (is_command(command, "ping", 1)) return ping();
  if (is_command(command, "version", 4)) return print(version_text());
  if (is_command(command, "help", 2)) return print(help_text(SlurmCommand::scontrol));
  return say(fmt::format("invalid keyword: {}", command));
}

}  // namespace

int run_scontrol(int argc, char** argv) {
  Voice voice("scontrol");
  auto read = read_call(SlurmCommand::scontrol, argc, argv, voice);
  if (!read) return read.error();
  const auto& options = read->options;
  if (read->words.empty()) return print(help_text(SlurmCommand::scontrol));
  if (options.has("clusters")) {
    auto daemon = DaemonClient::connect();
    if (daemon && !is_here(*daemon, options, voice)) return 1;
  }
  const Call call{.style = {.one_line = options.has("oneliner"), .details = options.has("details")},
                  .json = wants_json(options),
                  .quiet = options.has("quiet"),
                  .words = Words(read->words.begin() + 1, read->words.end())};
  return run_control(read->words.front(), call);
}

}  // namespace aliquot::cli
