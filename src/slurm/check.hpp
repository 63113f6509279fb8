// What `aliquot slurm check` looks at: every piece that sharing GPUs under Slurm needs, each with
// how it stands and, where it is not well, what to do. Looking changes nothing.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.hpp"
#include "base/result.hpp"
#include "base/time.hpp"
#include "gpu/devices.hpp"
#include "slurm/client.hpp"
#include "slurm/setup.hpp"
#include "slurm/site.hpp"
#include "slurm/site_settings.hpp"

namespace aliquot::slurm {

// The configuration, as files: what setup would change, and what it leaves to the site.
std::vector<Check> check_files(const SetupInput& input, const ReadFile& read);

// What slurmctld says of nodes and partitions, or why it says nothing.
std::vector<Check> check_cluster(const Result<std::vector<SlurmNode>>& nodes,
                                 const Result<std::vector<SlurmPartition>>& partitions,
                                 const SiteSettings& settings, const std::vector<GpuGroup>& gpus);

// Jobs of which a process got around its share.
Check check_escapes(const Result<std::vector<SlurmJob>>& jobs);

// The GPUs of a node, as found there, against what gres.conf says of it.
Check check_gpus(const std::string& node, const std::vector<gpu::Device>& devices,
                 const std::vector<GpuGroup>& gpus);

// munged, over the socket that Slurm uses.
Check check_munge(const std::string& socket);

// The SPANK plugin of a plugstack line: there, safe, and built for this Slurm.
Check check_plugin(const std::string& path, const SlurmVersion& version);

// The node agent behind a socket, and the GPUs that it has, where it says.
struct AgentCheck {
  Check check;
  std::optional<std::vector<gpu::Device>> devices = {};
};
AgentCheck check_agent(const std::string& node, const std::string& socket,
                       Millis patience = seconds(5));

// What the agent answers: {"version":…,"node":…,"jobs":…,"gpus":[{"model":…,"memory":…}]}.
AgentCheck read_agent(const std::string& node, const std::string& socket, std::string_view answer);

// Our plugin in plugstack.conf; empty: it is not there.
std::string plugin_of(std::string_view plugstack);

// "/run/%n/x" for node n1 is "/run/n1/x".
std::string expand_node(std::string_view pattern, std::string_view node);

}  // namespace aliquot::slurm
