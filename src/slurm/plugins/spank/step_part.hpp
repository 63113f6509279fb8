// What a step of a job with a share of a GPU books of it: srun's words inside the job, read in
// proportion to the words and the shards of the job. Slurm then counts the steps' shards itself, so
// that steps with parts of their own run side by side, and no two have the same part.
//
// Pure; words.cpp asks Slurm for the job.
#pragma once

#include <cstdint>
#include <string>

namespace aliquot::spank {

// The job, by slurmctld: `--gpu-mem=20G`, `mps:25`, …, and the shards that it holds on each node.
struct JobShare {
  std::string words;
  std::int64_t shards = 0;
  std::string partition = {};
};

// What srun was told; empty: nothing.
struct StepWords {
  std::string gpu_mem = {};
  std::string gpu_share = {};
  std::string gres = {};

  [[nodiscard]] bool empty() const { return gpu_mem.empty() && gpu_share.empty() && gres.empty(); }
};

struct StepPart {
  std::int64_t shards = 0;   // 0: all that the job has
  std::string refusal = {};  // why the step cannot be; empty: it can
};
StepPart step_part(const JobShare& job, const StepWords& step);

// "aliquot: --gpu-mem=20G; escape on n1" and "gres:shard:18", as slurmctld has them. Without shards
// where the job holds none.
JobShare read_share(const std::string& admin_comment, const std::string& tres_per_node);

}  // namespace aliquot::spank
