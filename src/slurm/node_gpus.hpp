// Which GPUs the nodes have, by what setup was told of now and before, and how slurm.conf and
// gres.conf name them: node by node, and nodes that are alike together. Pure.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "base/units.hpp"
#include "slurm/site.hpp"

namespace aliquot::slurm {

// Before each group that setup was told of, in our part of gres.conf; and those that stand there.
inline constexpr std::string_view kRememberedGpus = "# gpus: ";
std::vector<GpuGroup> remembered_gpus(std::string_view gres_conf);

using GpusByNode = std::map<std::string, std::vector<GpuGroup>>;

// The groups of each node. A node that is told of now forgets what was known of it, but for the
// files of GPUs that are as many as before.
GpusByNode gpus_by_node(const std::vector<GpuGroup>& earlier, const std::vector<GpuGroup>& now);

// Nodes with the same GPUs together again, in the order of slurm.conf.
std::vector<GpuGroup> gather_gpus(const GpusByNode& nodes, const Site& site);

// Each GPU as a group of its own, of a type of its own. Its files must be as many as it has GPUs.
Result<std::vector<GpuGroup>> slots_of(const GpuGroup& group);

// `gpu:h200:4,nic:1` without GPUs and shares, and then ours.
std::string gres_of_node(std::string_view before, const std::vector<GpuGroup>& groups, Bytes unit);

}  // namespace aliquot::slurm
