// In srun, sbatch and salloc, as the user.
#include <unistd.h>

#include <cstdlib>
#include <cstring>

#include "slurm/plugins/spank/plugin.hpp"

namespace aliquot::spank {

// A share is the job's, and all of its steps run within it.
void check_request() {
  if (spank_context() != S_CTX_LOCAL || !asked_for_a_share()) return;
  if (std::getenv("SLURM_JOB_ID") == nullptr) return;
  // Within the job that asked for it Slurm repeats the option to every srun.
  for (char** variable = environ; *variable != nullptr; ++variable) {
    if (std::strstr(*variable, "_SLURM_SPANK_OPTION_aliquot_gpu_") != nullptr) return;
  }
  say("a step runs within its job's share of the GPU: --gpu-mem and --gpu-share are for the job");
}

}  // namespace aliquot::spank
