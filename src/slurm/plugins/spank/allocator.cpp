// In srun, sbatch and salloc, as the user.
#include <cstdlib>

#include "slurm/plugins/spank/plugin.hpp"

namespace aliquot::spank {

// A share is the job's, and all of its steps run within it.
void check_request() {
  if (spank_context() != S_CTX_LOCAL || !asked_for_a_share()) return;
  if (std::getenv("SLURM_JOB_ID") == nullptr) return;
  say("a step runs within its job's share of the GPU: --gpu-mem and --gpu-share are for the job");
}

}  // namespace aliquot::spank
