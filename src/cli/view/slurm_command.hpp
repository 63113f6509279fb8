// What the Slurm-named viewing commands share: Slurm's words on a wrong command line, asking the
// daemon, and `last` as a job's id.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "api/types.hpp"
#include "base/time.hpp"
#include "cli/common.hpp"

namespace aliquot::cli {

// After getopt's own line; exit status 1, as squeue and its kin have it.
int try_help(std::string_view command);

// Slurm's way: `slurm_load_jobs error: Invalid job id specified`; exit status 1.
int load_failed(std::string_view prefix, const api::ErrorInfo& error);

// The ids, `last` being the caller's latest job. An unknown one stays as it is.
Answer<std::string> resolve_job_id(Daemon& daemon, std::string_view id);
Answer<std::vector<std::string>> resolve_job_ids(Daemon& daemon, std::string_view list);

// `7`, `7_3`, `7_[1-3]`, `last`: what may stand after -j.
bool is_job_id(std::string_view text);

// Whether `clusters`, of -M, names this one, or `all`, or nobody: says so where it does not.
bool is_here(Daemon& daemon, std::string_view clusters, const Voice& voice);

// Uids for `ann,1001`; the first name that is nobody's instead, as the error.
tl::expected<std::vector<std::uint32_t>, std::string> resolve_users(std::string_view list);

WallTime wall_now();

// `a,b` as two words behind what is there: options that may be given again.
void add_words(std::vector<std::string>& to, std::string_view list);

// The seconds of --iterate; nothing, and Slurm's word for it, where it makes no sense.
std::optional<unsigned> read_iterate(const Voice& voice, std::string_view value);
// Shows once, or again and again every so many seconds; the exit status.
int show_every(unsigned seconds, const std::function<int()>& show);

}  // namespace aliquot::cli
