// The environment variables that tell a process about its own job or step, and would mislead it in
// another. cli and node each add a few that only they know of.
#pragma once

#include <array>
#include <string_view>

namespace aliquot {

inline constexpr auto kJobVariables = std::to_array<std::string_view>({
    "ALIQUOT_GRANT",
    "SLURM_CPUS_ON_NODE",
    "SLURM_CPUS_PER_TASK",
    "SLURM_GET_USER_ENV",
    "SLURM_GPUS",
    "SLURM_GPUS_ON_NODE",
    "SLURM_GPUS_PER_NODE",
    "SLURM_GPUS_PER_TASK",
    "SLURM_GTIDS",
    "SLURM_JOBID",
    "SLURM_LAUNCH_NODE_IPADDR",
    "SLURM_LOCALID",
    "SLURM_MEM_PER_CPU",
    "SLURM_MEM_PER_GPU",
    "SLURM_MEM_PER_NODE",
    "SLURM_NNODES",
    "SLURM_NODEID",
    "SLURM_NODELIST",
    "SLURM_NPROCS",
    "SLURM_NTASKS",
    "SLURM_NTASKS_PER_NODE",
    "SLURM_PROCID",
    "SLURM_RESTART_COUNT",
    "SLURM_STEPID",
    "SLURM_TASKS_PER_NODE",
    "SLURM_TASK_PID",
});

}  // namespace aliquot
