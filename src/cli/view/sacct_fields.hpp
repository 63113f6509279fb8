// What sacct can print of a job or a step, with each field's usual width; choosing them as
// --format does; and the rows. Text only.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "api/types.hpp"
#include "base/result.hpp"
#include "base/table.hpp"
#include "cli/view/job_text.hpp"

namespace aliquot::cli {

inline constexpr std::string_view kSacctFormat =
    "jobid,jobname,partition,account,alloccpus,state,exitcode";
inline constexpr std::string_view kSacctBrief = "jobid,state,exitcode";
inline constexpr std::string_view kSacctLong =
    "jobid,jobidraw,jobname,partition,maxvmsize,maxvmsizenode,maxvmsizetask,avevmsize,maxrss,"
    "maxrssnode,maxrsstask,averss,maxpages,maxpagesnode,maxpagestask,avepages,mincpu,mincpunode,"
    "mincputask,avecpu,ntasks,alloccpus,elapsed,state,exitcode,avecpufreq,reqcpufreqmin,"
    "reqcpufreqmax,reqcpufreqgov,reqmem,consumedenergy,maxdiskread,maxdiskreadnode,maxdiskreadtask,"
    "avediskread,maxdiskwrite,maxdiskwritenode,maxdiskwritetask,avediskwrite,reqtres,alloctres,"
    "tresusageinave,tresusageinmax,tresusageinmaxn,tresusageinmaxt,tresusageinmin,tresusageinminn,"
    "tresusageinmint,tresusageintot,tresusageoutmax,tresusageoutmaxn,tresusageoutmaxt,"
    "tresusageoutave,tresusageouttot";

// A job's row has no step. Neither is owned.
struct AccountingRow {
  const api::JobInfo* job = nullptr;
  const api::StepInfo* step = nullptr;
};

struct AccountingContext {
  WallTime now;
  std::string cluster;
  char unit = 0;                 // --units: K, M, G, T, P; 0: the largest that is exact
  bool convert = true;           // --noconvert
  std::int64_t node_memory = 0;  // what a job has that asked for no memory
};

struct AccountingView {
  std::string_view name;
  std::size_t width;
  Align align;
  std::string (*text)(const AccountingRow& row, const AccountingContext& context);
  bool whole = false;  // Slurm never cuts it
};
std::span<const AccountingView> sacct_fields();
// --helpformat
std::string list_sacct_fields();

struct ChosenField {
  const AccountingView* view;
  Column column;
  bool hidden = false;  // without width: `%0`
};
// Names may be cut short; as in Slurm a width counts for every mention of its field.
Result<std::vector<ChosenField>> choose_sacct_fields(std::string_view format);

struct SacctLayout {
  bool header = true;
  bool steps = true;                          // -X: without
  std::optional<std::string> delimiter = {};  // -p, -P
  bool trailing = false;                      // -p
  std::vector<std::int64_t> steps_only = {};  // jobs of which steps were asked for by name
};
std::string format_sacct(const std::vector<ChosenField>& fields,
                         const std::vector<api::JobInfo>& jobs, const SacctLayout& layout,
                         const AccountingContext& context);

// `CANCELLED by 1000`
std::string accounting_state(const api::JobInfo& job);

}  // namespace aliquot::cli
