// What a Slurm job holds on this node, from what Slurm knows of it: which GPU by the gres that
// slurmctld gave it, how much of it by the words that job_submit.lua left in the admin comment,
// which no user can write, and never more than was booked. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "api/types.hpp"
#include "base/result.hpp"
#include "core/request.hpp"
#include "gpu/devices.hpp"
#include "slurm/client.hpp"
#include "slurm/settings.hpp"

namespace aliquot::slurm {

// The node as Slurm counts: GPU number i is devices[i].
struct NodeGpus {
  std::string node;
  std::vector<gpu::Device> devices;
  ShareSettings share;
};

// In the order in which gres.conf lists the device files, that is by minor number.
std::vector<gpu::Device> in_gres_order(std::vector<gpu::Device> devices);

// The words behind "aliquot:" in an admin comment (core::format_gpu_request); nothing where there
// are none.
std::optional<std::string> asked_words(const std::string& admin_comment);
// A job of which a process got around its share says so in the same comment, behind its words:
// "aliquot: --gpu-mem=8G; escape on n1". Nothing of the process goes in: its name is its user's to
// choose, and the words are read from here.
std::string note_escape(const std::string& admin_comment, const std::string& node);
std::optional<std::string> escaped_on(const std::string& admin_comment);

// The job as the enforcer wants it; without gpus where it holds none here. An error says what Slurm
// told that cannot be.
Result<api::JobInfo> found_grant(const SlurmJob& job, const NodeGpus& node);

// While slurmctld does not answer: what slurmstepd told of a job, by its own credential. It holds
// what was booked, in proportion.
struct StepFacts {
  std::int64_t job = 0;
  std::int64_t step = 0;
  std::int64_t stepd = 0;  // whose end is the step's
  std::uint32_t uid = 0;
  std::uint32_t gid = 0;
  std::int64_t tasks = 1;
  std::int64_t restarts = 0;
  std::vector<std::int64_t> job_gpus = {};
  std::vector<std::int64_t> step_gpus = {};
  std::string visible = {};  // CUDA_VISIBLE_DEVICES as Slurm sets it
  std::int64_t shards = 0;
};
Result<StepFacts> parse_step_facts(std::string_view text);
Result<api::JobInfo> booked_grant(const StepFacts& step, const NodeGpus& node);

}  // namespace aliquot::slurm
