// `aliquot status`, `gpus`, `why`: asking the daemon, and printing for people or as JSON.
#include <unistd.h>

#include <memory>
#include <string>

#include "api/json.hpp"
#include "cli/common.hpp"
#include "cli/console.hpp"
#include "cli/view/ours.hpp"
#include "cli/view/overview_text.hpp"
#include "cli/view/slurm_command.hpp"
#include "net/http.hpp"

namespace aliquot::cli {
namespace {

int refused(const api::ErrorInfo& error) {
  if (error.code == kUnreachable) {
    complain("no daemon answers: start it with 'aliquot up', or look with 'aliquot doctor'");
  } else {
    complain(error_text(error));
  }
  return kFailed;
}

struct Overview {
  api::ClusterInfo cluster;
  api::JobList list;
};

Answer<Overview> ask() {
  auto daemon = Daemon::connect();
  if (!daemon) return tl::make_unexpected(daemon.error());
  auto cluster = daemon->get<api::ClusterInfo>("/v1/cluster");
  if (!cluster) return tl::make_unexpected(cluster.error());
  auto list = daemon->get<api::JobList>("/v1/jobs");
  if (!list) return tl::make_unexpected(list.error());
  return Overview{std::move(*cluster), std::move(*list)};
}

// {"cluster": …, "jobs": […]}; an empty list is left out of its own JSON.
std::string overview_json(const Overview& overview) {
  return "{\"cluster\":" + api::to_json(overview.cluster) + "," +
         (overview.list.jobs.empty() ? "\"jobs\":[]}" : api::to_json(overview.list).substr(1)) +
         "\n";
}

int status(bool json) {
  const auto overview = ask();
  if (!overview) return refused(overview.error());
  if (json) return print(overview_json(*overview));
  const auto uid = ::getuid();
  return print(format_status(overview->cluster, overview->list.jobs,
                             {uid, user_name(Uid(uid)), wall_now()}, Paint::for_stdout()));
}

int gpus(bool json) {
  const auto overview = ask();
  if (!overview) return refused(overview.error());
  if (json) return print(api::to_json(overview->cluster.node) + "\n");
  return print(format_gpus(overview->cluster, overview->list.jobs, Paint::for_stdout()));
}

int why(const std::string& job, bool json) {
  if (!is_job_id(job)) {
    complain(fmt::format("'{}' is no job's id: write a number such as 7, 7_3, or last", job));
    return kMisused;
  }
  auto daemon = Daemon::connect();
  if (!daemon) return refused(daemon.error());
  const auto info = daemon->get<api::WhyInfo>("/v1/jobs/" + net::percent_encode(job) + "/why");
  if (!info) return refused(info.error());
  if (json) return print(api::to_json(*info) + "\n");
  return print(format_why(*info, wall_now(), Paint::for_stdout()));
}

void add_overview(CLI::App& parent, Invocation& invocation, const char* name, const char* about,
                  int (*run)(bool)) {
  auto* command = parent.add_subcommand(name, about);
  const auto json = std::make_shared<bool>(false);
  command->add_flag("--json", *json, "Print one JSON object");
  command->callback(
      [&invocation, json, run] { invocation.run = [json, run] { return run(*json); }; });
}

}  // namespace

void add_status(CLI::App& parent, Invocation& invocation) {
  add_overview(parent, invocation, "status", "GPUs used and free, your limits and your jobs",
               status);
}

void add_gpus(CLI::App& parent, Invocation& invocation) {
  add_overview(parent, invocation, "gpus", "Each GPU: memory, compute, jobs, foreign processes",
               gpus);
}

void add_why(CLI::App& parent, Invocation& invocation) {
  auto* command = parent.add_subcommand("why", "Why a job waits, and until when");
  const auto job = std::make_shared<std::string>("last");
  const auto json = std::make_shared<bool>(false);
  command->add_option("job", *job, "The job's id, or last")->capture_default_str();
  command->add_flag("--json", *json, "Print one JSON object");
  command->callback(
      [&invocation, job, json] { invocation.run = [job, json] { return why(*job, *json); }; });
}

void add_view_commands(CLI::App& parent, Invocation& invocation) {
  add_status(parent, invocation);
  add_why(parent, invocation);
  add_gpus(parent, invocation);
  add_logs(parent, invocation);
  add_doctor(parent, invocation);
  add_up(parent, invocation);
  add_down(parent, invocation);
  add_shims(parent, invocation);
}

}  // namespace aliquot::cli
