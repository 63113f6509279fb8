// What sinfo can print, and its rows: one for each partition, or fewer where the chosen columns
// cannot tell partitions apart.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "api/types.hpp"
#include "cli/view/listing.hpp"

namespace aliquot::cli {

// Neither is owned.
struct NodeRow {
  const api::ClusterInfo* cluster = nullptr;
  const api::PartitionInfo* partition = nullptr;
  const api::GpuInfo* gpu = nullptr;  // -R: the reason is this one's, not the node's
  bool no_node = false;               // the partition is shown, its node was not asked for
};
std::span<const ViewField<NodeRow>> sinfo_fields();

enum class SinfoView { usual, longer, by_node, by_node_longer, summary, reasons, longer_reasons };
// Slurm widens the first column to the longest name of these partitions.
std::string sinfo_format(SinfoView view, const api::ClusterInfo& cluster,
                         const std::vector<const api::PartitionInfo*>& partitions);

struct SinfoRows {
  bool by_node = false;  // -N: partitions are never put together
  bool header = true;
  bool reasons = false;  // -R: a row for the node and for each GPU that takes no new jobs
  bool no_node = false;  // -t, -n or -d leaves none: partitions without nodes
};
// The header and the rows of these partitions.
std::string format_sinfo(const Listing<NodeRow>& listing, const api::ClusterInfo& cluster,
                         const std::vector<const api::PartitionInfo*>& partitions,
                         const SinfoRows& rows, const ViewContext& context);

}  // namespace aliquot::cli
