// `aliquot doctor`.
#include <string>
#include <vector>

#include "cli/console.hpp"
#include "cli/engine_choice.hpp"
#include "cli/machine/doctor_checks.hpp"
#include "cli/machine/paths.hpp"
#include "cli/own_command.hpp"

namespace aliquot::cli {
namespace {

struct DoctorOptions {
  bool json = false;
};

int doctor(const DoctorOptions& options) {
  if (const auto no = refused_on_cluster(
          "doctor",
          {.kubernetes = "look with 'kubectl -n aliquot get pods' (docs/kubernetes.md)"})) {
    return *no;
  }
  const auto engine = engine_asked();
  if (!engine) return failed(engine.error());
  if (*engine == Engine::slurm) {
    return run_part("aliquot-slurm", options.json ? std::vector<std::string>{"check", "--json"}
                                                  : std::vector<std::string>{"check"});
  }
  const auto cluster = ask<api::ClusterInfo>("/v1/cluster");
  std::string state;
  if (cluster && cluster->config.contains("StateSaveLocation")) {
    state = cluster->config.at("StateSaveLocation");
  }
  auto checks = check_machine(state);
  for (auto& check : check_daemon(cluster)) checks.push_back(std::move(check));
  const int status =
      print(options.json ? checks_json(checks) : format_checks(checks, Paint::for_stdout()));
  return status == kDone && all_well(checks) ? kDone : kFailed;
}

}  // namespace

void add_doctor(CLI::App& command, Invocation& invocation) {
  command.add_flag("--json", run_with(command, invocation, doctor).json, kJsonAbout);
}

}  // namespace aliquot::cli
