// What `aliquot slurm check` looks at: every piece that sharing GPUs under Slurm needs, each with
// how it stands and, where it is not well, what to do. Looking changes nothing.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "gpu/devices.hpp"
#include "slurm/client.hpp"
#include "slurm/settings.hpp"
#include "slurm/setup.hpp"
#include "slurm/site.hpp"

namespace aliquot::slurm {

struct Check {
  enum class Level { ok, warn, fail };

  std::string name;
  Level level = Level::ok;
  std::string finding;
  std::string cure = {};  // what to do; empty where it is well
};

std::string_view to_string(Check::Level level);

// The configuration, as files: what setup would change, and what it leaves to the site.
std::vector<Check> check_files(const SetupInput& input, const ReadFile& read);

// What slurmctld says of nodes and partitions; `client` may be an error.
std::vector<Check> check_cluster(const Result<std::vector<SlurmNode>>& nodes,
                                 const Result<std::vector<SlurmPartition>>& partitions,
                                 const Settings& settings, const std::vector<GpuGroup>& gpus);

// Jobs of which a process got around its share.
Check check_escapes(const Result<std::vector<SlurmJob>>& jobs);

// The GPUs of a node, as found there, against what gres.conf says of it.
Check check_gpus(const std::string& node, const std::vector<gpu::Device>& devices,
                 const std::vector<GpuGroup>& gpus);

// munged, over the socket that Slurm uses.
Check check_munge(const std::string& socket);

// The SPANK plugin of a plugstack line: there, safe, and built for this Slurm.
Check check_plugin(const std::string& path, const SlurmVersion& version);

// The node agent behind a socket.
Check check_agent(const std::string& node, const std::string& socket);

// "/run/%n/x" for node n1 is "/run/n1/x".
std::string expand_node(std::string_view pattern, std::string_view node);

}  // namespace aliquot::slurm
