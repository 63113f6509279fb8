// sstat: what the tasks of a running step use, as /proc has it, in Slurm's columns. Text only.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"

namespace aliquot::cli {

inline constexpr std::string_view kSstatFormat =
    "jobid,maxvmsize,maxvmsizenode,maxvmsizetask,avevmsize,maxrss,maxrssnode,maxrsstask,averss,"
    "maxpages,maxpagesnode,maxpagestask,avepages,mincpu,mincpunode,mincputask,avecpu,ntasks,"
    "avecpufreq,reqcpufreqmin,reqcpufreqmax,reqcpufreqgov,consumedenergy,maxdiskread,"
    "maxdiskreadnode,maxdiskreadtask,avediskread,maxdiskwrite,maxdiskwritenode,maxdiskwritetask,"
    "avediskwrite,tresusageinave,tresusageinmax,tresusageinmaxnode,tresusageinmaxtask,"
    "tresusageinmin,tresusageinminnode,tresusageinmintask,tresusageintot,tresusageoutave,"
    "tresusageoutmax,tresusageoutmaxnode,tresusageoutmaxtask,tresusageoutmin,"
    "tresusageoutminnode,tresusageoutmintask,tresusageouttot";
inline constexpr std::string_view kSstatPids = "jobid,nodelist,pids";

// With all that descends from it.
struct TaskUse {
  std::int64_t cpu_ms = 0;
  std::int64_t rss = 0;
  std::int64_t vm = 0;
  std::int64_t pages = 0;  // faults that read a disk
  std::int64_t read = 0;
  std::int64_t written = 0;
};

struct StepUse {
  std::string id;  // 7.0
  std::string node;
  std::vector<std::int64_t> pids = {};
  std::vector<TaskUse> tasks = {};
  bool batch = false;
  // Of the GPUs that the job holds: what its own processes have and do, whatever else is there.
  std::optional<std::int64_t> gpu_memory = {};
  std::optional<std::int64_t> gpu_percent = {};
};

struct SstatView {
  std::string format = std::string(kSstatFormat);
  bool convert = true;
  bool header = true;
  std::string delimiter = {};  // empty: columns
  bool trailing = false;
};

class SstatTable {
 public:
  static Result<SstatTable> of(const SstatView& view);
  [[nodiscard]] std::string header() const;
  [[nodiscard]] std::string row(const StepUse& step) const;

 private:
  SstatView view_;
  std::vector<std::size_t> fields_ = {};  // positions in the list of all
  std::vector<std::size_t> widths_ = {};
  std::vector<bool> left_ = {};
};

// --helpformat
std::string list_sstat_fields();

}  // namespace aliquot::cli
