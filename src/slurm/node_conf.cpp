#include "slurm/node_conf.hpp"

#include <algorithm>
#include <array>

#include "base/text.hpp"
#include "slurm/setup_files.hpp"

namespace aliquot::slurm {
namespace {

constexpr const char* kFetchedConf = "/run/slurm/conf/slurm.conf";

// Among plugins: "task/affinity,task/cgroup".
bool names_cgroup(std::string_view plugins) {
  constexpr std::string_view kName = "cgroup";
  return std::ranges::any_of(split(plugins, ','), [&](std::string_view plugin) {
    const auto name = plugin.substr(plugin.rfind('/') + 1);
    return equals_ignoring_case(name, kName);
  });
}

}  // namespace

Result<Site> read_node_conf(const Settings& settings) {
  auto site = read_keys(slurm_conf_path(settings), read_conf_file);
  if (!site && site.error().code == Error::Code::not_found) {
    if (auto fetched = read_keys(kFetchedConf, read_conf_file)) return fetched;
  }
  return site;
}

bool makes_groups(const Site& slurm_conf, const ReadFile& read) {
  const auto by = [&](std::string_view key, const char* usual) {
    return names_cgroup(slurm_conf.get(key).value_or(usual));
  };
  if (by("ProctrackType", "proctrack/cgroup") || by("JobAcctGatherType", "")) return true;
  // It makes them for what it constrains.
  if (!by("TaskPlugin", "")) return false;
  const auto cgroup_conf = read_keys(slurm_conf.folder() + "/cgroup.conf", read);
  constexpr std::array kConstrained = {"ConstrainCores", "ConstrainDevices", "ConstrainRAMSpace",
                                       "ConstrainSwapSpace"};
  return cgroup_conf && std::ranges::any_of(kConstrained, [&](const char* key) {
           return equals_ignoring_case(cgroup_conf->get(key).value_or("no"), "yes");
         });
}

}  // namespace aliquot::slurm
