#include "slurm/view/run_view.hpp"

#include <fmt/format.h>
#include <getopt.h>
#include <pwd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>

#include "api/json.hpp"
#include "base/clock.hpp"
#include "base/text.hpp"
#include "slurm/client.hpp"
#include "slurm/settings.hpp"
#include "slurm/view/limits.hpp"
#include "slurm/view/snapshot.hpp"
#include "slurm/view/why.hpp"

namespace aliquot::slurm {
namespace {

constexpr const char* kHelp =
    R"(usage: aliquot-slurm view [--config FILE] [--limits] [why JOB]

Prints the cluster and its jobs, or why a job waits, as JSON for 'aliquot status' and the like.

  --config FILE   read the settings from here (/etc/aliquot/slurm.toml)
  --limits        also ask slurmdbd how many GPUs you may hold
)";

int say(std::string_view text) {
  fmt::print(stderr, "aliquot: {}\n", text);
  return 1;
}

std::string user_name(std::uint32_t uid) {
  const auto* entry = ::getpwuid(uid);
  return entry == nullptr ? std::to_string(uid) : entry->pw_name;
}

struct Close {
  void operator()(FILE* file) const { ::pclose(file); }
};

// What Slurm's own command prints, within two seconds; nothing where it fails.
std::string output_of(const std::string& command) {
  const std::unique_ptr<FILE, Close> pipe(
      ::popen(("timeout 2 " + command + " 2>/dev/null").c_str(), "re"));
  std::string text;
  std::array<char, 4096> buffer{};
  while (pipe && text.size() < (1U << 20U)) {
    const auto size = std::fread(buffer.data(), 1, buffer.size(), pipe.get());
    if (size == 0) break;
    text.append(buffer.data(), size);
  }
  return text;
}

bool is_plain_name(std::string_view name) {
  return !name.empty() && name.front() != '-' && std::ranges::all_of(name, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
           c == '_' || c == '.';
  });
}

// The QOS that counts for a job of this user that says none.
std::string usual_qos(const Snapshot& snapshot) {
  for (const auto& partition : snapshot.partitions) {
    if (partition.is_default && !partition.qos.empty()) return partition.qos;
  }
  const auto user = user_name(::getuid());
  if (!is_plain_name(user)) return "normal";
  const auto lines = output_of("sacctmgr -nP show assoc where user=" + user + " format=DefaultQOS");
  for (const auto line : split(lines, '\n')) {
    if (!line.empty()) return std::string(line);
  }
  return "normal";
}

void add_limits(api::ClusterInfo& cluster, const Snapshot& snapshot, const Settings& settings) {
  GpuWorth worth;
  for (const auto& node : snapshot.nodes) {
    for (const auto& gpu : gpus_of(node, settings))
      worth.shards = std::max(worth.shards, gpu.shards);
  }
  for (const auto& partition : snapshot.partitions) {
    if (partition.is_default) worth.billing = gpu_billing(partition.billing_weights);
  }
  const auto qos = usual_qos(snapshot);
  const auto limit =
      gpu_limit(output_of("sacctmgr -nP show qos format=Name,MaxTRESPU"), qos, worth);
  if (limit) cluster.config["MaxGpusPerUser"] = std::to_string(*limit / kWholeGpu.value());
}

Result<Snapshot> take_snapshot(SlurmClient& client) {
  Snapshot snapshot;
  snapshot.version = client.version();
  snapshot.nodes = TRY(client.nodes());
  snapshot.jobs = TRY(client.jobs());
  snapshot.partitions = TRY(client.partitions());
  return snapshot;
}

struct Options {
  std::string config;
  bool limits = false;
  std::string why;
};

Result<std::string> view(const Options& options) {
  const auto settings = TRY(load_settings(options.config));
  const auto conf = slurm_conf_path(settings);
  ::setenv("SLURM_CONF", conf.c_str(), 1);  // for sacctmgr
  const auto client = TRY(open_client({}, conf));
  const auto snapshot = TRY(take_snapshot(*client));
  if (!options.why.empty()) {
    const auto job = TRY(find_job(snapshot, options.why, ::getuid()));
    return api::to_json(why_info(snapshot, settings, job, SystemClock().wall()));
  }
  auto cluster = cluster_info(snapshot, settings);
  if (options.limits) add_limits(cluster, snapshot, settings);
  const auto jobs = api::to_json(api::JobList{job_infos(snapshot, settings, user_name)});
  return "{\"cluster\":" + api::to_json(cluster) + "," + jobs.substr(1);
}

}  // namespace

int run_view(int argc, char** argv) {
  enum : int { kConfig = 256, kLimits, kHelpOption };
  static constexpr std::array<option, 4> kOptions{{
      {"config", required_argument, nullptr, kConfig},
      {"limits", no_argument, nullptr, kLimits},
      {"help", no_argument, nullptr, kHelpOption},
      {nullptr, 0, nullptr, 0},
  }};
  Options options;
  optind = 1;
  for (int choice = 0; (choice = ::getopt_long(argc, argv, "", kOptions.data(), nullptr)) != -1;) {
    switch (choice) {
      case kConfig:
        options.config = optarg;
        break;
      case kLimits:
        options.limits = true;
        break;
      case kHelpOption:
        std::fputs(kHelp, stdout);
        return 0;
      default:
        say("try 'aliquot-slurm view --help'");
        return 2;
    }
  }
  if (argc - optind == 2 && std::string_view(argv[optind]) == "why") {
    options.why = argv[optind + 1];
  } else if (optind < argc) {
    say(fmt::format("what is {}? Try 'aliquot-slurm view --help'", quote(argv[optind])));
    return 2;
  }
  const auto text = view(options);
  if (!text) return say(text.error().message);
  fmt::print("{}\n", *text);
  const int failed = std::fflush(stdout);
  ::_exit(failed == 0 ? 0 : 1);  // libslurm never gives back all that it took
}

}  // namespace aliquot::slurm
