// The SPANK plugin: `--gpu-mem` and `--gpu-share` for sbatch, srun and salloc, and in each step the
// view of its GPU that the node agent gives. One file for each Slurm context; dispatch.cpp calls
// them. Needs libc and Slurm's spank.h, nothing of ours: it is loaded into Slurm's programs.
//
// It never fails a hook: a plugin that does takes slurmstepd, and with it perhaps the node, out of
// service. What must not run is ended in the task itself.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "slurm/plugins/spank/step.hpp"

// Not all of it says by itself that it is C.
extern "C" {
#include <slurm/spank.h>
}

namespace aliquot::spank {

PluginOptions read_options(int argc, char** argv);

// options.cpp. In every context: the remote side must know what it is handed.
void register_options(spank_t handle);
bool asked_for_a_share();  // on this command line
// The value of --gpu-mem or --gpu-share, for this command or repeated by Slurm from its job's;
// empty: there is none.
const std::string& value_of(std::string_view option);

// words.cpp: in srun, sbatch and salloc. The words of a job that becomes shards go beside Slurm's
// own. A step's become shards of its job, or it is refused.
void hand_over_words(spank_t handle, const PluginOptions& options);

// step_hooks.cpp: in slurmstepd, the hooks of the one step that it serves (step.hpp).
void enter_step(spank_t handle, PluginOptions options);
void go_on(spank_t handle, void (Step::*hook)(StepHost&));
void enter_task(spank_t handle);  // ends the task that must not start

// give_back.cpp: there too.
class SlurmController final : public Controller {
 public:
  std::optional<bool> takes_jobs(const std::string& node) override;
  void drain(const std::string& node, const char* why) override;
  GivenBack give_back(std::uint32_t job, bool began) override;
};

// Every message begins with our name.
void say(const char* format, ...) __attribute__((format(printf, 1, 2)));

}  // namespace aliquot::spank
