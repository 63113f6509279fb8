// A Slurm cluster in the words of our API: nodes with their GPUs, and jobs with what they hold of
// each. Pure: from what SlurmClient says and the site's settings; tool/view_command.cpp asks and
// prints.
//
// slurmctld counts shards. How large and how busy a GPU is comes from the node's `extra`
// (slurm/sample_text.hpp); without that its memory is what setup was told, or what the same model
// has elsewhere (know_sizes), or else taken for shards × unit. What a job asked for
// comes from its admin_comment, where job_submit.lua put it (slurm/admin_comment.hpp).
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "api/types.hpp"
#include "core/request.hpp"
#include "slurm/client.hpp"
#include "slurm/site.hpp"
#include "slurm/site_settings.hpp"
#include "slurm/view/reservations.hpp"

namespace aliquot::slurm {

// Everything asked of slurmctld at one time.
struct Snapshot {
  std::string version = {};
  std::vector<SlurmNode> nodes = {};
  std::vector<SlurmJob> jobs = {};
  std::vector<SlurmPartition> partitions = {};
  std::vector<Reservation> reservations = {};  // for `why` alone
  std::string cluster = {};                    // its name
};

// One GPU as Slurm books it.
struct BookedGpu {
  std::string model;
  std::int64_t shards = 0;  // that it has; 0: the site shares none of it
  Bytes memory = Bytes(0);
  friend bool operator==(const BookedGpu&, const BookedGpu&) = default;
};
// In the order of their indexes, from `gpu:h200:4(S:0-1),shard:h200:560`.
std::vector<BookedGpu> gpus_of(const SlurmNode& node, const SiteSettings& settings);

// How large the GPUs of each node are while nobody samples them: as setup was told, else as nodes
// with the same GPUs say.
void know_sizes(std::vector<SlurmNode>& nodes, const std::vector<GpuGroup>& told);

// What the job asked of each node: by the words of its admin_comment, else by its gres. Nothing: no
// GPU, or nothing that can be understood.
std::optional<core::GpuRequest> request_of(const SlurmJob& job, const SiteSettings& settings);
// The same in words: `--gpu-mem=8G`, `shard:20`; empty: no GPU.
std::string words_of(const SlurmJob& job);
// How many shards or GPUs it books on each node; nothing: none of that name.
std::optional<std::int64_t> booked_of(const SlurmJob& job, std::string_view gres);

// "MIXED+DRAIN" -> "draining": in the API's words.
std::string node_state(std::string_view slurm_state);
bool takes_jobs(const SlurmNode& node);

// PENDING, RUNNING and what is about to leave hold or want something; the others are over.
bool is_waiting(const SlurmJob& job);
// For a job without a time limit Slurm plans with a year, and of one that is held (its priority is
// 0) it only knows when it may start: no expected starts that help anyone.
bool is_no_estimate(const SlurmJob& job);

using UserName = std::function<std::string(std::uint32_t uid)>;

api::ClusterInfo cluster_info(const Snapshot& snapshot, const SiteSettings& settings);
std::vector<api::JobInfo> job_infos(const Snapshot& snapshot, const SiteSettings& settings,
                                    const UserName& user_name);
// Of one job, GPU by GPU with its node.
std::vector<api::GpuHold> holds_of(const SlurmJob& job, const std::vector<SlurmNode>& nodes,
                                   const SiteSettings& settings);

// The amount of `name` in `cpu=4,mem=500G,gres/gpu=1`; 0 where it is not there.
std::int64_t tres_count(std::string_view text, std::string_view name);

}  // namespace aliquot::slurm
