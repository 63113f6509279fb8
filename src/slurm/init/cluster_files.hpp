// The files of a cluster from nothing: slurm.conf, slurmdbd.conf, cgroup.conf and MariaDB's, as
// `aliquot slurm init` writes them on the controller, and then what setup adds for the GPUs. What
// is init's in slurm.conf stands between two marks of its own: the site's lines around it stay, and
// what init was told before is read back from there. Pure.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "slurm/billing.hpp"
#include "slurm/init/node_line.hpp"
#include "slurm/setup.hpp"

namespace aliquot::slurm {

inline constexpr std::string_view kSlurmFolder = "/etc/slurm";
inline constexpr std::string_view kMariadbConf = "/etc/mysql/mariadb.conf.d/60-aliquot-slurm.cnf";

struct ClusterInput {
  std::string cluster = {};          // empty: what it was called before, or "cluster"
  std::string host = {};             // the controller
  std::vector<NodeLine> nodes = {};  // told now; earlier ones are remembered
  SiteSettings settings = {};
  SlurmVersion version = {};
  std::string plugin = {};
  bool bare_cgroup2 = false;  // control groups of version 2 without systemd
};

struct ClusterFiles {
  SetupPlan plan;  // what differs, and notes
  std::string cluster;
  std::vector<NodeLine> nodes;  // all of the cluster
  std::int64_t gpu_shards = 0;  // of the largest GPU; 0: there are none
  GpuBill bill = {};            // what slurm.conf bills in the partition main
};

// `read` fails with not_found for a file that is not there. Refuses a Slurm that is not init's.
Result<ClusterFiles> plan_cluster(const ClusterInput& input, const ReadFile& read);

// The limit in billing for a user who may have so many GPUs' worth in main; 0 for 0: none is set.
std::int64_t user_billing(const ClusterFiles& files, std::int64_t gpus);

}  // namespace aliquot::slurm
