// `aliquot-slurm view`: a Slurm cluster as the JSON that `aliquot status`, `gpus`, `top` and `why`
// print from. The commands run it, so that they need no libslurm themselves.
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/App.hpp>
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>

#include "api/json.hpp"
#include "base/text.hpp"
#include "slurm/client.hpp"
#include "slurm/node_gpus.hpp"
#include "slurm/plain_name.hpp"
#include "slurm/setup.hpp"
#include "slurm/setup_files.hpp"
#include "slurm/site.hpp"
#include "slurm/site_settings.hpp"
#include "slurm/tool/commands.hpp"
#include "slurm/view/limits.hpp"
#include "slurm/view/snapshot.hpp"
#include "slurm/view/why.hpp"
#include "sys/identity.hpp"
#include "sys/system_clock.hpp"

namespace aliquot::slurm {
namespace {

std::string user_name_of(std::uint32_t uid) { return sys::user_name(Uid(uid)); }

// The QOS that counts for a job of this user that says none.
std::string usual_qos(const Snapshot& snapshot) {
  for (const auto& partition : snapshot.partitions) {
    if (partition.is_default && !partition.qos.empty()) return partition.qos;
  }
  const auto user = user_name_of(::getuid());
  if (!is_plain_name(user) || user.front() == '-') return "normal";
  const auto lines =
      output_of({"sacctmgr", "-nP", "show", "assoc", "where", "user=" + user, "format=DefaultQOS"});
  for (const auto line : split(lines, '\n')) {
    if (!line.empty()) return std::string(line);
  }
  return "normal";
}

std::string qos_lines() {
  return output_of({"sacctmgr", "-nP", "show", "qos", "format=Name,MaxTRESPU"});
}

void add_limits(api::ClusterInfo& cluster, const Snapshot& snapshot, const SiteSettings& settings) {
  const auto qos = usual_qos(snapshot);
  const auto worth = gpu_worth(snapshot, settings);
  const auto limit = gpu_limit(qos_lines(), qos, worth);
  if (limit.most) {
    cluster.config["MaxGpusPerUser"] = limit_text(*limit.most);
    cluster.config["GpusCountedPerUser"] =
        limit_text(gpus_counted(snapshot, qos, ::getuid(), worth));
  }
  if (!limit.partial.empty()) cluster.config["PartialGpuLimit"] = limit.partial;
}

// Of a job that waits; libslurm's plugin does not hand it over.
std::string reservation_of(std::int64_t job) {
  const auto shown = output_of({"squeue", "-h", "-o", "%v", "-j", std::to_string(job)});
  const auto name = split(shown, '\n').front();
  return name == "(null)" || name == "N/A" ? std::string() : std::string(name);
}

Result<Snapshot> take_snapshot(SlurmClient& client, const std::string& conf) {
  Snapshot snapshot;
  snapshot.version = client.version();
  if (const auto keys = read_keys(conf, read_conf_file)) {
    snapshot.cluster = keys->get("ClusterName").value_or("");
  }
  snapshot.nodes = TRY(client.nodes());
  snapshot.jobs = TRY(client.jobs());
  snapshot.partitions = TRY(client.partitions());
  const auto gres =
      read_conf_file((std::filesystem::path(conf).parent_path() / "gres.conf").string());
  know_sizes(snapshot.nodes, remembered_gpus(gres.value_or("")));
  return snapshot;
}

struct ViewOptions {
  std::string config;
  bool limits = false;
  std::string why;
};

Result<std::string> view(const ViewOptions& options) {
  auto settings = TRY(load_settings(options.config));
  const auto conf = slurm_conf_path(settings);
  ::setenv("SLURM_CONF", conf.c_str(), 1);  // for sacctmgr
  ::setenv("SLURM_BITSTR_LEN", "0", 1);     // libslurm shows all elements of an array
  const auto client = TRY(open_client({}, conf));
  auto snapshot = TRY(take_snapshot(*client, conf));
  if (!names_each_gpu(settings.share,
                      parse_slurm_version(snapshot.version).value_or(SlurmVersion()))) {
    settings.share.placement = "slurm";
  }
  if (!options.why.empty()) {
    auto job = TRY(find_job(snapshot, options.why, ::getuid()));
    if (is_waiting(job)) {
      job.reservation = reservation_of(job.id);
      snapshot.reservations =
          read_reservations(output_of({"scontrol", "-o", "show", "reservation"}));
    }
    const bool limited = is_waiting(job) && job.reason.starts_with("QOSMax");
    const auto too_much =
        limited ? never_allowed(qos_lines(), snapshot, settings, job) : std::string();
    return api::to_json(why_info(snapshot, settings, job, sys::SystemClock().wall(), too_much));
  }
  auto cluster = cluster_info(snapshot, settings);
  if (options.limits) add_limits(cluster, snapshot, settings);
  const auto jobs = api::to_json(api::JobList{job_infos(snapshot, settings, user_name_of)});
  return "{\"cluster\":" + api::to_json(cluster) + "," + jobs.substr(1);
}

int print_view(const ViewOptions& options) {
  const auto text = view(options);
  if (!text) return complain(text.error().message);
  fmt::print("{}\n", *text);
  const int failed = std::fflush(stdout);
  ::_exit(failed == 0 ? kDone : kFailed);  // libslurm never gives back all that it took
}

}  // namespace

void add_view(CLI::App& parent, Invocation& invocation) {
  auto* command = parent.add_subcommand(
      "view", "The cluster and its jobs as JSON, for 'aliquot status' and the like");
  const auto options = std::make_shared<ViewOptions>();
  command->add_option("--config", options->config, "The settings (/etc/aliquot/slurm.toml)");
  command->add_flag("--limits", options->limits, "Also ask slurmdbd how many GPUs you may hold");
  auto* why = command->add_subcommand("why", "Why a job waits");
  why->add_option("job", options->why, "7, 7_3 or last")->required();
  command->callback(
      [&invocation, options] { invocation.run = [options] { return print_view(*options); }; });
}

}  // namespace aliquot::slurm
