#include "slurm/node_conf.hpp"

#include <algorithm>
#include <array>

#include "base/text.hpp"
#include "slurm/setup_files.hpp"

namespace aliquot::slurm {
namespace {

// Among plugins: "task/affinity,task/cgroup".
bool names_cgroup(std::string_view plugins) {
  constexpr std::string_view kName = "cgroup";
  return std::ranges::any_of(split(plugins, ','), [&](std::string_view plugin) {
    const auto name = plugin.substr(plugin.rfind('/') + 1);
    return equals_ignoring_case(name, kName);
  });
}

// `ctl1(10.0.0.1)` -> `10.0.0.1`
std::string address_of(std::string_view host) {
  const auto open = host.find('(');
  if (open == host.npos) return std::string(host);
  return std::string(host.substr(open + 1, host.find(')', open) - open - 1));
}

}  // namespace

Result<Site> read_node_conf(const SiteSettings& settings) {
  return read_keys(slurm_conf_path(settings), read_conf_file);
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

std::vector<std::string> controllers(const Site& site) {
  std::vector<std::string> hosts;
  for (const std::string& host : site.all("SlurmctldHost")) hosts.push_back(address_of(host));
  if (!hosts.empty()) return hosts;
  auto address = site.get("ControlAddr");
  if (!address) address = site.get("ControlMachine");
  if (address) hosts.push_back(*address);
  return hosts;
}

std::string munge_socket(const Site& site) {
  constexpr std::string_view kSocket = "socket=";
  std::string socket;
  const std::string info = site.get("AuthInfo").value_or("");
  for (const auto part : split(info, ',')) {
    if (part.starts_with(kSocket)) socket = part.substr(kSocket.size());
  }
  return socket;
}

Result<SampleEndpoint> find_endpoint(const SiteSettings& settings) {
  const std::string path = slurm_conf_path(settings);
  const auto site = read_node_conf(settings);
  if (!site) {
    return fail(Error::Code::not_found, "cannot read {}: {}: set SLURM_CONF or [slurm] conf",
                quote(path), site.error().message);
  }
  SampleEndpoint endpoint{controllers(*site), static_cast<std::uint16_t>(settings.balancer.port),
                          munge_socket(*site)};
  if (!settings.balancer.host.empty()) endpoint.hosts = {settings.balancer.host};
  if (endpoint.hosts.empty()) {
    return fail(Error::Code::not_found, "{} names no SlurmctldHost: set [balancer] host",
                quote(path));
  }
  return endpoint;
}

}  // namespace aliquot::slurm
