// `aliquot doctor`.
#include <memory>

#include "cli/console.hpp"
#include "cli/view/doctor_checks.hpp"
#include "cli/view/ours.hpp"

namespace aliquot::cli {
namespace {

Answer<api::ClusterInfo> ask() {
  auto daemon = Daemon::connect();
  if (!daemon) return tl::make_unexpected(daemon.error());
  return daemon->get<api::ClusterInfo>("/v1/cluster");
}

int doctor(bool json) {
  auto checks = check_machine("");
  for (auto& check : check_daemon(ask())) checks.push_back(std::move(check));
  const int status = print(json ? checks_json(checks) : format_checks(checks, Paint::for_stdout()));
  return status == kDone && all_well(checks) ? kDone : kFailed;
}

}  // namespace

void add_doctor(CLI::App& parent, Invocation& invocation) {
  auto* command = parent.add_subcommand("doctor", "What is wrong here, and what to do about it");
  const auto json = std::make_shared<bool>(false);
  command->add_flag("--json", *json, "Print one JSON object");
  command->callback([&invocation, json] { invocation.run = [json] { return doctor(*json); }; });
}

}  // namespace aliquot::cli
