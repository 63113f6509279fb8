// How the values of a job are written, the same in squeue, scontrol, sacct and our own commands:
// states, ids, times and resources in Slurm's words. Text only; nothing here talks to the daemon.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "api/types.hpp"
#include "base/slurm_time.hpp"
#include "base/time.hpp"

namespace aliquot::cli {

// What the text of a value depends on, beside the record itself.
struct ViewContext {
  WallTime now;
  bool convert = true;       // --noconvert: memory stays in MiB
  std::string cluster = {};  // its name, where a column shows it
};

// `PD` for `PENDING`; the name itself where Slurm has no short one.
std::string_view compact_state(std::string_view state);
// The long name for either, in any case of letters; nothing for no state.
std::optional<std::string_view> find_state(std::string_view word);
// Every long name, for messages: `PENDING,RUNNING,…`.
std::string all_states();

bool is_pending(const api::JobInfo& job);
// Holds resources: running, suspended, completing.
bool is_active(const api::JobInfo& job);
bool is_finished(const api::JobInfo& job);
// Has begun to run, even if it has ended by now.
bool has_started(const api::JobInfo& job);

// `7`, `7_3` or `7_[1-6%2]`; of a pod `team/train`.
void append_job_id(std::string& out, const api::JobInfo& job);
std::string job_id_text(const api::JobInfo& job);

// The elements that a record stands for, as in `1-3,7,9-15:2%2`. Empty if the text cannot be read
// or was shortened (`1-3,...`).
std::vector<std::int64_t> array_elements(std::string_view pending);

// How many jobs the record stands for: one of an array that waits stands for all its elements.
std::int64_t job_count(const api::JobInfo& job);

// True for `7` (the job, or any element of the array 7), `7_3`; ids as users write them.
bool matches_job_id(const api::JobInfo& job, std::string_view id);

// None while it is held, or waits for another one.
std::optional<std::int64_t> eligible_ms(const api::JobInfo& job);
Millis time_used(const api::JobInfo& job, WallTime now);
TimeLimit time_limit(const api::JobInfo& job);

// `cpu=4,mem=4G,node=1,billing=4,gres/gpu=1`: what it asked for, and what it holds or held.
std::string requested_tres(const api::JobInfo& job);
std::string allocated_tres(const api::JobInfo& job);
// `gres/gpu:1`, `gres/mps:25`, `gres/gpumem:8G,gres/gpuutil:50`; empty: no GPU asked for.
std::string tres_per_node(const api::JobInfo& job);
// `gpu:h100:1(IDX:0)`; empty: holds none.
std::string gres_detail(const std::vector<api::GpuHold>& gpus);
// A GPU's model as the type of a gres: `h100`, `nvidia_h200`.
std::string gres_type(std::string_view model);
// What it holds of each GPU, for people: `gpu0:8G,25%`, on a cluster `n1/gpu0:8G,25%`; empty: none.
std::string gpu_share_text(const api::JobInfo& job);

// In the column NODELIST(REASON).
void append_node_or_reason(std::string& out, const api::JobInfo& job);

// MiB as Slurm writes memory: `4G`, `20000M`; without converting always in M.
std::string memory_text(std::int64_t bytes, bool convert = true);

// `3:0`
std::string exit_code_text(int code, int signal);

// In Slurm's way of writing times, or as SLURM_TIME_FORMAT says: `relative`, or what strftime
// reads.
std::string shown_time(WallTime time);
void append_time(std::string& out, std::optional<std::int64_t> ms, std::string_view otherwise);

}  // namespace aliquot::cli
