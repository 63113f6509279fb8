// How the machine and its partitions are written in sinfo and scontrol: states, gres, resources.
// Text only.
#pragma once

#include <string>
#include <string_view>

#include "api/types.hpp"

namespace aliquot::cli {

// `mixed` → `mix`, `drained` → `drain`, `draining` → `drng`.
std::string_view compact_node_state(std::string_view state);
// Without what an administrator added: `idle`, `mixed`, `allocated`, `down`.
std::string_view node_base_state(const api::NodeInfo& node);
bool node_is_drained(const api::NodeInfo& node);
// `MIXED`, `IDLE+DRAIN`: scontrol's.
std::string scontrol_node_state(const api::NodeInfo& node);

// `gpu:h100:4`, `(null)` where there is no GPU.
std::string node_gres(const api::NodeInfo& node);
// `gpu:h100:1(IDX:0)`, `gpu:h100:0(IDX:N/A)`
std::string node_gres_used(const api::NodeInfo& node);
// `gpu:h100:1(IDX:2)`, those that take no new jobs; `N/A` where all do.
std::string node_gres_drained(const api::NodeInfo& node);
// The machine with as many GPUs as, and those alone that, the partition's jobs may have.
api::NodeInfo partition_part(api::NodeInfo node, const api::PartitionInfo& partition);
// `cpu=16,mem=20000M,billing=16,gres/gpu=4,gres/gpu:h100=4`; of a partition with `node=1`.
std::string node_configured_tres(const api::NodeInfo& node, bool with_node = false);
std::string node_allocated_tres(const api::NodeInfo& node);

// Whether a job holds it or a part of it.
bool gpu_in_use(const api::GpuInfo& gpu);

}  // namespace aliquot::cli
