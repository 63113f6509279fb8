// `aliquot status`, `gpus`, `why`: asking whoever runs the jobs, and printing for people or as
// JSON.
#include <unistd.h>

#include <memory>
#include <string>

#include "api/json.hpp"
#include "cli/common.hpp"
#include "cli/console.hpp"
#include "cli/view/ours.hpp"
#include "cli/view/overview_text.hpp"
#include "cli/view/slurm_command.hpp"
#include "cli/view/sources.hpp"

namespace aliquot::cli {
namespace {

int status(bool json) {
  const auto overview = ask_overview(true);
  if (!overview) return refused(overview.error());
  if (json) return print(overview_json(*overview));
  const auto uid = ::getuid();
  return print(format_status(overview->cluster, overview->jobs,
                             {uid, user_name(Uid(uid)), wall_now()}, Paint::for_stdout()));
}

int gpus(bool json) {
  const auto overview = ask_overview(false);
  if (!overview) return refused(overview.error());
  if (json && overview->cluster.nodes.empty()) {
    return print(api::to_json(overview->cluster.node) + "\n");
  }
  if (json) {
    std::string nodes;
    for (const auto& node : overview->cluster.nodes) {
      nodes += (nodes.empty() ? "" : ",") + api::to_json(node);
    }
    return print("{\"nodes\":[" + nodes + "]}\n");
  }
  return print(format_gpus(overview->cluster, overview->jobs, Paint::for_stdout()));
}

int why(const std::string& job, bool json) {
  if (!is_job_id(job)) {
    complain(fmt::format("'{}' is no job's id: write a number such as 7, 7_3, or last", job));
    return kMisused;
  }
  const auto info = ask_why(job);
  if (!info) return refused(info.error(), job);
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

int refused(const api::ErrorInfo& error) {
  if (error.code == kUnreachable) {
    complain("no daemon answers: start it with 'aliquot up', or look with 'aliquot doctor'");
  } else {
    complain(error_text(error));
  }
  return kFailed;
}

int refused(const api::ErrorInfo& error, const std::string& job) {
  if (error.code != "ESLURM_INVALID_JOB_ID") return refused(error);
  complain(job == "last" ? "you have no job yet" : fmt::format("there is no job {}", job));
  return kFailed;
}

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
  add_top(parent, invocation);
  add_logs(parent, invocation);
  add_doctor(parent, invocation);
  add_up(parent, invocation);
  add_down(parent, invocation);
  add_setup(parent, invocation);
  add_shims(parent, invocation);
}

}  // namespace aliquot::cli
