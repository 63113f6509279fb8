// What stands in a Slurm job's admin comment, which no user can write: the request in our words,
// put there by job_submit.lua, and behind it what the node agents have to say, each of its node:
// "aliquot: --gpu-mem=8G; escape on n1; broken GPU on n1; used 12.5 s 7900M on n1". A site may have
// its own text beside it. Nothing about processes themselves goes in: their user chooses their
// names, and the words are read from here.
#pragma once

#include <optional>
#include <string>

#include "base/time.hpp"
#include "base/units.hpp"

namespace aliquot::slurm {

// The words behind "aliquot:" (core::format_gpu_request); nothing where there are none.
std::optional<std::string> asked_words(const std::string& admin_comment);

enum class Remark {
  escape,      // a process of it got around its share
  broken_gpu,  // a GPU that it held broke
};
// The comment with the remark added, unless there is one of that kind.
std::string add_remark(const std::string& admin_comment, Remark remark, const std::string& node);
// The node of the remark; nothing: there is none.
std::optional<std::string> remarked_on(const std::string& admin_comment, Remark remark);

// What a job has used on a node: GPU time, and the most of the GPU's memory at a time.
struct Used {
  Millis gpu_time = Millis(0);
  Bytes memory_peak = Bytes(0);
  friend bool operator==(const Used&, const Used&) = default;
};
// In place of what the node has said before.
std::string set_used(const std::string& admin_comment, const std::string& node, const Used& used);
// Of all nodes together: the sum of the time, the largest peak. Nothing: none has said.
std::optional<Used> used_in(const std::string& admin_comment);

}  // namespace aliquot::slurm
