// `aliquot-slurm view`: a Slurm cluster as the JSON that `aliquot status`, `gpus`, `top` and `why`
// print from. The commands run it, so that they need no libslurm themselves.
#pragma once

namespace aliquot::slurm {

// argv[0] is "view". The exit status; what went wrong is one line on stderr.
//   view [--config FILE] [--limits]    {"cluster": …, "jobs": […]}
//   view [--config FILE] why JOB       a WhyInfo
int run_view(int argc, char** argv);

}  // namespace aliquot::slurm
