// What a Slurm job holds on a node, from what Slurm knows of it: which GPU by the gres that
// slurmctld gave it, how much of it by the words in its admin comment, and never more than was
// booked. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "core/grant.hpp"
#include "gpu/devices.hpp"
#include "slurm/client.hpp"
#include "slurm/site_settings.hpp"

namespace aliquot::slurm {

// The GPUs of a node, numbered as Slurm does: GPU number i is devices[i].
struct NodeGpus {
  std::string node;
  std::vector<gpu::Device> devices;
  ShareSettings share;

  // Slurm's number of a GPU of this node; nothing: it is not here.
  [[nodiscard]] std::optional<std::int64_t> number_of(const GpuId& gpu) const;
};

// In the order in which gres.conf lists the device files, that is by minor number.
std::vector<gpu::Device> in_gres_order(std::vector<gpu::Device> devices);

// What a job that asked for `part` of a GPU and booked so many of its shards gets there: what it
// asked for, and no more than was booked. Nothing where the part is more than that GPU.
std::optional<core::Portion> booked_portion(const decltype(core::GpuRequest::what)& part,
                                            std::int64_t booked, Bytes gpu_memory,
                                            std::int64_t shards, const core::GpuUnits& units);

// Without GPUs where the job holds none on this node. An error: what Slurm told cannot be true.
Result<core::Grant> slurm_grant(const SlurmJob& job, const NodeGpus& node);

// What slurmstepd tells the agent of a step. Slurm's own credential says who and where, and Slurm
// sets these variables from it (or unsets them) for each step, whatever the user has there:
// SLURM_SHARDS_ON_NODE, CUDA_VISIBLE_DEVICES, and SLURM_JOB_GPUS in a batch script but
// SLURM_STEP_GPUS in any other step. The other of the two is as the user likes.
struct StepFacts {
  std::int64_t job = 0;
  std::int64_t step = 0;
  std::int64_t stepd = 0;  // its process: when it ends, the step has ended
  std::uint32_t uid = 0;
  std::uint32_t gid = 0;
  std::int64_t tasks = 1;
  std::int64_t restarts = 0;
  std::vector<std::int64_t> job_gpus = {};
  std::vector<std::int64_t> step_gpus = {};
  std::string visible = {};  // CUDA_VISIBLE_DEVICES as Slurm sets it
  std::int64_t shards = 0;
  std::string words = {};  // "--gpu-mem=8G": the user's, for a part of what Slurm has given
};
Result<StepFacts> parse_step_facts(std::string_view text);

inline constexpr std::int64_t kBatchStep = 0xfffffffb;
// Those of the two lists that Slurm has set.
const std::vector<std::int64_t>& given_gpus(const StepFacts& step);

// While slurmctld does not answer: the job holds what the step was given of its booking, in
// proportion. That is all of it, or less.
Result<core::Grant> booked_grant(const StepFacts& step, const NodeGpus& node);

// The shards that a job holds on this node.
std::int64_t booked_shards(const SlurmJob& job, const NodeGpus& node);

// What a step holds by its own words: what it asks for, and no more than Slurm gave it. In
// proportion where it has none.
Result<core::Grant> part_grant(const StepFacts& step, const NodeGpus& node);

}  // namespace aliquot::slurm
