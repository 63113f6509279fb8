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

#include "base/text.hpp"
#include "cli/commands.hpp"
#include "cli/console.hpp"
#include "cli/control/scontrol_call.hpp"
#include "cli/control/scontrol_reservation.hpp"
#include "cli/control/scontrol_text.hpp"
#include "cli/control/scontrol_update.hpp"
#include "cli/help_text.hpp"
#include "cli/jobs/job_ids.hpp"
#include "cli/query.hpp"
#include "cli/view/job_text.hpp"
#include "cli/view/json_writer.hpp"
#include "sys/fd.hpp"
#include "sys/host_name.hpp"

namespace aliquot::cli {
namespace {

// `create reservation …`, and the same for update and delete; `words` without that word.
int change_reservation(std::string_view verb, const std::vector<std::string_view>& words) {
  const auto failed = [&](const api::ErrorInfo& error) {
    // Ours says which GPU or which word; Slurm's texts are for what Slurm would say.
    const std::string& text =
        error.code == "ESLURM_NODES_BUSY" || error.code == "ESLURM_INVALID_TIME_VALUE"
            ? error_text(error) + ": " + error.message
            : error_text(error);
    fail_with(fmt::format("Error {} the reservation: {}",
                          verb == "create"   ? "creating"
                          : verb == "update" ? "updating"
                                             : "deleting",
                          text));
    return verb == "update" ? fail_with(fmt::format("slurm_update error: {}", error_text(error)))
                            : 1;
  };
  auto daemon = DaemonClient::connect();
  if (!daemon) return failed(daemon.error());
  const auto cluster = daemon->get<api::ClusterInfo>("/v1/cluster");
  if (!cluster) return failed(cluster.error());
  std::vector<std::int64_t> gpus;
  for (const auto& gpu : cluster->node.gpus) gpus.push_back(gpu.index);
  const auto spec = parse_reservation(words, gpus, wall_now());
  if (!spec) return fail_with(spec.error().message);
  if (verb != "create" && spec->name.empty())
    return fail_with("Reservation must be given.  No update sent");
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
int reservation_command(std::string_view verb, const ControlCall& call) {
  if (call.words.empty()) return fail_with(fmt::format("too few arguments for keyword:{}", verb));
  ControlWords words = call.words;
  const bool plain = words[0].find('=') == words[0].npos;
  if (!is_reservation(words[0]) && std::ranges::none_of(words, is_reservation)) {
    return fail_with(fmt::format("Invalid {} option: {}", verb, words[0]));
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

bool names_job(std::string_view word) {
  const auto key = word.substr(0, word.find('='));
  return key.size() < word.size() &&
         (equals_ignoring_case(key, "JobName") || equals_ignoring_case(key, "Name"));
}

// The caller's waiting and running jobs of a name: root's are everybody's.
std::vector<std::string> jobs_of_name(DaemonClient& daemon, std::string_view name) {
  std::vector<std::string> ids;
  const auto list = daemon.list("/v1/jobs?live");
  if (!list) return ids;
  for (const auto& job : list->jobs) {
    const bool mine = ::getuid() == 0 || job.uid == static_cast<std::int64_t>(::getuid());
    if (mine && job.name == name) ids.push_back(std::to_string(job.id));
  }
  return ids;
}

// `hold 14,15 16`: each id gets the same request.
int for_jobs(const ControlCall& call, std::string_view command, std::string_view action,
             std::string_view body = {}) {
  if (call.words.empty())
    return fail_with(fmt::format("too few arguments for keyword:{}", command));
  auto daemon = DaemonClient::connect();
  int status = 0;
  for (const auto& word : call.words) {
    std::vector<std::string> ids;
    if (names_job(word) && daemon) {
      ids = jobs_of_name(*daemon, word.substr(word.find('=') + 1));
    } else {
      // `7_[1-3]`, which the daemon takes one by one.
      for (const auto id : split_outside_brackets(word)) {
        const auto pattern = id.find('[') == id.npos ? std::nullopt : parse_job_pattern(id);
        const auto targets = pattern ? pattern->targets() : std::vector{std::string(id)};
        ids.insert(ids.end(), targets.begin(), targets.end());
      }
    }
    for (const std::string& id : ids) {
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
      if (call.quiet) continue;
      const auto& error = answer.error();
      const bool over = error.code == "ESLURM_ALREADY_DONE" && !action.starts_with("requeue");
      const auto text = over ? "Job has already finished" : error_text(error);
      const bool element = id.find('_') != std::string::npos;
      fail_with(element && answer.error().code == "ESLURM_INVALID_JOB_ID"
                    ? fmt::format("{}: {}", id, text)
                    : fmt::format("{} for job {}", text, id));
      if (!element && (action.starts_with("hold") || action == "release")) {
        fail_with(fmt::format("slurm_suspend error: {}", text));
      }
    }
  }
  return status;
}

// All of them in one request: their order counts.
int top_jobs(const ControlCall& call) {
  if (call.words.empty()) return fail_with("too few arguments for keyword:top");
  std::string ids;
  for (const auto word : call.words) ids += (ids.empty() ? "" : ",") + std::string(word);
  auto daemon = DaemonClient::connect();
  auto answer = daemon ? daemon->send("POST", job_target(ids) + "/top")
                       : Reply<std::string>(tl::make_unexpected(daemon.error()));
  if (answer) return 0;
  if (!call.quiet) fail_with(fmt::format("{} for job {}", error_text(answer.error()), ids));
  return 1;
}

int update_job(const ControlCall& call, const JobUpdate& update, const std::string& id) {
  std::optional<Millis> limit;
  if (update.longer) {
    const auto failed = [&](const api::ErrorInfo& error) {
      return call.quiet ? 1 : fail_with(fmt::format("{} for job {}", error_text(error), id));
    };
    auto daemon = DaemonClient::connect();
    if (!daemon) return failed(daemon.error());
    const auto job = daemon->get<api::JobInfo>(job_target(id));
    if (!job) return failed(job.error());
    if (job->time_limit_ms) limit = Millis(*job->time_limit_ms);
  }
  const auto body = update.body_for(limit);
  if (!body) {
    Voice("scontrol").error(body.error().message);
    return 1;
  }
  ControlCall each = call;
  each.words = {id};
  return for_jobs(each, "update", "update", *body);
}

int update(const ControlCall& call) {
  if (call.words.empty()) return fail_with("too few arguments for update keyword");
  const auto parsed = parse_update(call.words, wall_now());
  if (!parsed) return fail_with(parsed.error().message);
  auto daemon = DaemonClient::connect();
  for (const auto& node : parsed->nodes) {
    const auto failed = [&](const api::ErrorInfo& error) {
      return fail_with(fmt::format("slurm_update error: {}", error_text(error)));
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
    if (job.ids.empty() && daemon) {
      const auto ids = jobs_of_name(*daemon, job.of_name);
      if (ids.empty()) {
        Voice("scontrol").error(fmt::format("No jobs with name '{}'", job.of_name));
        return 1;
      }
      for (const auto& id : ids) status = std::max(status, update_job(call, job, id));
    }
    for (const auto& id : job.ids) status = std::max(status, update_job(call, job, id));
  }
  return status;
}

// Until the job runs.
int wait_job(const ControlCall& call) {
  const auto id = call.word(0);
  if (id.empty()) return fail_with("too few arguments for keyword:wait_job");
  const Voice voice("scontrol");
  while (true) {
    auto daemon = DaemonClient::connect();
    if (!daemon) return load_failed(kLoadJobs, daemon.error());
    const auto job = daemon->get<api::JobInfo>(job_target(id));
    if (!job && job.error().code == "ESLURM_INVALID_JOB_ID") {
      voice.info(fmt::format("Problem running job {}", id));
      return 1;
    }
    if (!job) return load_failed(kLoadJobs, job.error());
    if (is_active(*job)) {
      voice.info(fmt::format("Nodes are ready for job {}", job->id));
      return 0;
    }
    if (is_finished(*job)) {
      voice.info(fmt::format("Problem running job {}", job->id));
      return 1;
    }
    ::usleep(250'000);
  }
}

// `notify 7 words`: there is no way to a job's terminal here.
int notify(const ControlCall& call) {
  if (call.words.size() < 2) return fail_with("too few arguments for keyword:notify");
  auto daemon = DaemonClient::connect();
  const auto job = daemon ? daemon->get<api::JobInfo>(job_target(call.word(0)))
                          : Reply<api::JobInfo>(tl::make_unexpected(daemon.error()));
  const auto error = job ? api::ErrorInfo{"ESLURM_DISABLED", ""} : job.error();
  return fail_with(fmt::format("job notify failure: {}", error_text(error)));
}

// The processes of a job, or of all of the caller's that run, as ps would number them.
int list_pids(const ControlCall& call) {
  auto daemon = DaemonClient::connect();
  if (!daemon) return load_failed(kLoadJobs, daemon.error());
  const auto jobs = daemon->list("/v1/jobs?live");
  if (!jobs) return load_failed(kLoadJobs, jobs.error());
  std::string out = "PID      JOBID    STEPID   LOCALID GLOBALID\n";
  const auto wanted = call.word(0).substr(0, call.word(0).find('.'));
  bool any = false;
  for (const auto& job : jobs->jobs) {
    if (!is_active(job) || (!wanted.empty() && !matches_job_id(job, wanted))) continue;
    const auto all =
        daemon->get<api::RunningProcesses>(job_target(fmt::format("{}", job.id)) + "/processes");
    if (!all) continue;  // somebody else's
    any = true;
    for (const auto& step : all->steps) {
      for (const auto pid : step.pids) {
        out += fmt::format("{:<8} {:<8} {:<8} {:<7} {:<8}\n", pid, job.id, step.id, "-", "-");
      }
    }
  }
  const int status = print(out);
  if (wanted.empty() || any) return status;
  std::fflush(stdout);
  return fail_with(fmt::format("JobId={} does not exist on node (null).", wanted));
}

// `pidinfo 123`: which job that process is of.
int pid_info(const ControlCall& call) {
  const auto pid = parse_digits(call.word(0));
  if (!pid) return fail_with("too few arguments for keyword:pidinfo");
  auto daemon = DaemonClient::connect();
  const auto jobs = daemon ? daemon->list("/v1/jobs?live")
                           : Reply<api::JobList>(tl::make_unexpected(daemon.error()));
  if (!jobs) return load_failed(kLoadJobs, jobs.error());
  for (const auto& job : jobs->jobs) {
    if (!is_active(job)) continue;
    const auto all =
        daemon->get<api::RunningProcesses>(job_target(fmt::format("{}", job.id)) + "/processes");
    if (!all) continue;
    const bool found = std::ranges::any_of(all->steps, [&](const api::StepProcesses& step) {
      return std::ranges::find(step.pids, *pid) != step.pids.end();
    });
    if (!found) continue;
    std::string end;
    append_time(end, job.end_ms, "UNLIMITED");
    return print(fmt::format("Slurm JobId={} ends at {}\n", job.id, end));
  }
  return fail_with("Failed to locate job for requested pid");
}

int write_file(const std::string& path, std::string_view text) {
  // The script may hold secrets: as private as Slurm makes it.
  const sys::Fd file(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0700));
  if (!file) {
    return fail_with(fmt::format("failed to create file `{}`: {}", path, std::strerror(errno)));
  }
  if (sys::write_all(file.get(), text)) return 0;
  return fail_with(fmt::format("failed to write file `{}`: {}", path, std::strerror(errno)));
}

int write_script(const ControlCall& call) {
  const auto id = call.word(1);
  if (!is_command(call.word(0), "batch_script", 1)) {
    return fail_with(fmt::format("invalid write argument:{}", call.word(0)));
  }
  if (id.empty()) return fail_with("too few arguments for keyword:write");
  auto daemon = DaemonClient::connect();
  const auto failed = [](const api::ErrorInfo& error) {
    return fail_with(fmt::format("job script retrieval failed: {}", error_text(error)));
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
  if (!done) return fail_with(fmt::format("slurm_reconfigure error: {}", error_text(done.error())));
  if (!done->needs_restart.empty()) {
    fail_with(fmt::format("These have changed and need a restart: {}",
                          fmt::join(done->needs_restart, ", ")));
  }
  return 0;
}

// The commands, with how many letters of each are enough.
int run_control(std::string_view command, const ControlCall& call) {
  struct OnJobs {
    std::string_view name;
    std::size_t least;
    std::string_view action;
  };
  constexpr auto kOnJobs = std::to_array<OnJobs>({{"hold", 2, "hold"},
                                                  {"uhold", 2, "hold?user=1"},
                                                  {"release", 3, "release"},
                                                  {"requeue", 3, "requeue"},
                                                  {"requeuehold", 8, "requeue?hold=1"},
                                                  {"suspend", 2, "suspend"},
                                                  {"resume", 3, "resume"}});
  for (const auto& [name, least, action] : kOnJobs) {
    if (is_command(command, name, least)) return for_jobs(call, name, action);
  }
  if (is_command(command, "show", 2)) return show_entity(call);
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
  if (is_command(command, "notify", 1)) return notify(call);
  if (is_command(command, "listpids", 1)) return list_pids(call);
  if (is_command(command, "pidinfo", 3)) return pid_info(call);
  if (is_command(command, "ping", 1)) return ping();
  if (is_command(command, "version", 4)) return print(version_text());
  if (is_command(command, "help", 2)) return print(help_text(SlurmCommand::scontrol));
  return fail_with(fmt::format("invalid keyword: {}", command));
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
  const ControlCall call{
      .style = {.one_line = options.has("oneliner"), .details = options.has("details")},
      .json = wants_json(options),
      .quiet = options.has("quiet"),
      .words = ControlWords(read->words.begin() + 1, read->words.end())};
  return run_control(read->words.front(), call);
}

}  // namespace aliquot::cli
