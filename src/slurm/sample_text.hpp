// The samples of a node as the balancer writes them into the node's `extra` field, where everyone
// can read them (`scontrol show node`, `aliquot gpus`). GPU by GPU: the utilisation, the memory in
// use, all memory, each process that belongs to no job with its user and memory, what is wrong with
// it, and each job with its part of the time and its memory:
// `aliquot:0=35%/12000M/143771M/4711:eve:2048M/!xid79/@7:12%:2048M,1=…`; where Aliquot is of
// another version there, that comes last: `,v=1.2.3`. `aliquot:?` is a node without samples. A
// site's own text in that field is not touched.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "slurm/samples.hpp"

namespace aliquot::slurm {

inline constexpr std::string_view kSampleMark = "aliquot:";
inline constexpr std::string_view kNoSamples = "aliquot:?";

// version: of Aliquot on that node.
std::string format_sample_text(const std::vector<GpuLoad>& gpus, std::string_view version = {});
// Memory is in whole MiB. Nothing: the text is not ours, says that there are none, or is damaged.
std::optional<std::vector<GpuLoad>> parse_sample_text(std::string_view text);

// The version of Aliquot there; empty: ours.
std::string_view sample_version(std::string_view text);

// Whether we may write the field: it is empty, or we wrote it.
bool may_hold_samples(std::string_view text);
// Whether people should see the change: 5 points, 256 MiB, to or from nothing, another process.
bool sample_texts_differ(std::string_view before, std::string_view after);

}  // namespace aliquot::slurm
