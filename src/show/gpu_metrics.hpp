// GPUs and shares as figures for Prometheus, from the snapshot that the commands and the page are
// made of: the same names and units whatever engine the machine belongs to. docs/metrics.md lists
// them.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "api/types.hpp"
#include "base/exposition.hpp"

namespace aliquot::show {

// Whom series are told by. Without users no series has a user's name or account.
struct Detail {
  bool users = true;
};

// Each GPU of a machine.
void write_gpus(Exposition& out, const api::NodeInfo& node);
// What became of its MPS servers.
void write_mps(Exposition& out, const api::NodeInfo& node);
// What jobs hold of these GPUs and do with it.
void write_shares(Exposition& out, const api::NodeInfo& node, const std::vector<api::JobInfo>& jobs,
                  const Detail& detail);
// Which program says all this.
void write_build(Exposition& out, std::string_view program, std::string_view version);

// Memory of a GPU that processes of no job hold.
std::int64_t foreign_memory(const api::GpuInfo& gpu);
// What is known of a job on a GPU that it holds; null: nothing.
const api::GpuUse* find_use(const api::GpuInfo& gpu, const api::JobInfo& job,
                            const api::GpuHold& hold);

}  // namespace aliquot::show
