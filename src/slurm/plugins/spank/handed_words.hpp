// Which words of sbatch, srun and salloc about GPUs are taken from Slurm and handed to
// job_submit.lua, and why: a job that asks by `--gres=mps:25` or `-G 1` books shards, but Slurm
// repeats the words for each step, and refuses a step that asks for what its job does not hold.
// Words that become shards therefore travel beside Slurm's own; a step then simply has what its job
// has.
//
// The rules only; the command and its environment are handed in (words.cpp has the real ones).
#pragma once

#include <array>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "slurm/plugins/spank/step.hpp"

namespace aliquot::spank {

// The command's own options, by their long names.
class CommandOptions {
 public:
  virtual ~CommandOptions() = default;
  [[nodiscard]] virtual bool has(const char* name) const = 0;
  [[nodiscard]] virtual std::string get(const char* name) const = 0;  // empty: not given
};

struct HandedOption {
  const char* name;  // of the command's option
  const char* word;  // under which it travels, in the job's environment
  bool counts_gpus;
};
inline constexpr std::array kHandedOptions{
    HandedOption{"gres", "ALIQUOT_GRES", true},
    HandedOption{"gpus", "ALIQUOT_GPUS", true},
    HandedOption{"gpus-per-node", "ALIQUOT_GPUS_PER_NODE", true},
    HandedOption{"gpus-per-task", "ALIQUOT_GPUS_PER_TASK", true},
    HandedOption{"cpus-per-gpu", "ALIQUOT_CPUS_PER_GPU", false},
    HandedOption{"mem-per-gpu", "ALIQUOT_MEM_PER_GPU", false},
};

// Whether a job with these options books shards. asked_for_share: by --gpu-mem or --gpu-share.
// whole_as_shards: this Slurm mixes whole GPUs with shards, so one whole GPU is booked as shards.
bool books_shards(const CommandOptions& command, const PluginOptions& plugin, bool asked_for_share,
                  bool whole_as_shards);

// Whether every one of the partitions is in the list. No partition means the default one, which has
// a star in the list.
bool all_in(std::string_view list, std::string_view partitions);

}  // namespace aliquot::spank
