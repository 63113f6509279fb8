// `aliquot status`, `gpus` and `why`: ask the engine that runs the jobs, and print for people or as
// JSON.
#include <unistd.h>

#include <algorithm>
#include <string>
#include <vector>

#include "api/json.hpp"
#include "cli/console.hpp"
#include "cli/engine_choice.hpp"
#include "cli/own_command.hpp"
#include "cli/query.hpp"
#include "cli/users.hpp"
#include "cli/view/engine_query.hpp"
#include "cli/view/overview_text.hpp"

namespace aliquot::cli {
namespace {

struct OverviewOptions {
  bool json = false;
  KubeOptions kube;
};

int status(const OverviewOptions& options) {
  const auto overview = ask_overview(true, options.kube);
  if (!overview) return refused(overview.error());
  if (options.json) return print(overview_json(*overview));
  const auto uid = ::getuid();
  return print(format_status(overview->cluster, overview->jobs,
                             {uid, user_name(Uid(uid)), wall_now()}, Paint::for_stdout()));
}

// One machine's object, or a list of a cluster's nodes.
std::string gpus_json(const api::ClusterInfo& cluster) {
  if (cluster.nodes.empty()) return api::to_json(cluster.node) + "\n";
  std::string nodes;
  for (const auto& node : cluster.nodes) nodes += (nodes.empty() ? "" : ",") + api::to_json(node);
  return "{\"nodes\":[" + nodes + "]}\n";
}

int gpus(const OverviewOptions& options) {
  const auto overview = ask_overview(false, options.kube);
  if (!overview) return refused(overview.error());
  if (options.json) return print(gpus_json(overview->cluster));
  return print(format_gpus(overview->cluster, overview->jobs, Paint::for_stdout()));
}

struct WhyOptions {
  std::vector<std::string> jobs = {"last"};
  bool json = false;
  KubeOptions kube;
};

int why_one(const std::string& job, const WhyOptions& options) {
  const auto info = ask_why(job, options.kube);
  if (!info) return refused(info.error(), job);
  if (options.json) return print(api::to_json(*info) + "\n");
  return print(format_why(*info, job, wall_now(), Paint::for_stdout()));
}

// One after the other; of those that are not known, the others are told all the same.
int why(const WhyOptions& options) {
  const auto engine = engine_asked();
  if (!engine) return failed(engine.error());
  for (const auto& job : options.jobs) {
    // What names a pod, Kubernetes' tool knows.
    if (*engine != Engine::kubernetes && !is_job_id(job)) return no_job_id(job);
  }
  int status = kDone;
  for (const auto& job : options.jobs) status = std::max(status, why_one(job, options));
  return status;
}

}  // namespace

void add_status(CLI::App& command, Invocation& invocation) {
  auto& options = run_with(command, invocation, status);
  command.add_flag("--json", options.json, kJsonAbout);
  add_kube_options(command, options.kube, true);
}

void add_gpus(CLI::App& command, Invocation& invocation) {
  auto& options = run_with(command, invocation, gpus);
  command.add_flag("--json", options.json, kJsonAbout);
  add_kube_options(command, options.kube, false);
}

void add_why(CLI::App& command, Invocation& invocation) {
  auto& options = run_with(command, invocation, why);
  command
      .add_option("job", options.jobs,
                  "The job's id, or last; several, one after the other; on Kubernetes pod/NAME")
      ->capture_default_str();
  command.add_flag("--json", options.json, kJsonAbout);
  add_kube_options(command, options.kube, true);
}

}  // namespace aliquot::cli
