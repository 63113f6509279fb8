// Looks at what the GPUs are doing, and at whose processes do it. A process belongs to a job when
// it is in the job's control group, when it is the user's and has the job's mark in the environment
// that it was started with, or when one of its ancestors belongs to the job. Our own MPS servers
// are left out; every other process on a GPU is foreign.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/ids.hpp"
#include "base/result.hpp"
#include "gpu/devices.hpp"
#include "node/cgroup.hpp"
#include "node/spawn.hpp"
#include "sys/identity.hpp"

namespace aliquot::node {

// A job that holds a part of this machine and runs.
struct RunningJob {
  HolderId id;
  Uid uid;
  std::string mark;  // in the environment of its processes
  std::int64_t attempt = 0;
  // What it was granted, to find trespassers. Absent: that is not known.
  std::optional<std::vector<GpuId>> gpus = {};
  Gid gid = Gid(0);
};

// A process on a GPU that its job has nothing of.
struct Trespasser {
  std::int64_t pid = 0;
  HolderId job;
  Uid uid;
  Gid gid;
};

struct GpuProcess {
  std::int64_t pid = 0;
  std::string user = {};  // its name; empty where the look has not asked for it
  std::string command = {};
  Bytes memory = Bytes(0);
  std::optional<HolderId> holder = {};  // absent: foreign
  std::optional<Uid> uid = {};          // absent: it has gone
};

// What was seen of one GPU.
struct GpuView {
  gpu::Sample sample;
  std::vector<GpuProcess> processes;
  std::vector<Trespasser> trespassers = {};  // of these
};

// The job in whose control group a process is.
using FencedJob = std::function<std::optional<HolderId>(Pid)>;
// By the groups we made for these jobs, read once, when it is first asked.
FencedJob fenced_by(Cgroups& cgroups, const std::vector<RunningJob>& running);

// All processes of a job, on a GPU or not: those in its control group, or if there are none, those
// with its mark. Reads all of /proc.
using JobMembers = std::function<std::vector<sys::ProcessRef>(const HolderId&)>;
// running and fenced must outlive it.
JobMembers members_by(const std::vector<RunningJob>& running, const FencedJob& fenced,
                      bool by_mark);

// Asks the driver and reads /proc: on a worker. by_mark is for machines without control groups: it
// reads the environment of processes, and a process can make its reader wait for ever. So can the
// user database: a look that is for the watchdog as well has no `name`, and who shows it names.
using UserName = std::function<std::string(Uid)>;
Result<std::vector<GpuView>> look_at_gpus(gpu::Devices& devices,
                                          const std::vector<RunningJob>& running,
                                          const FencedJob& fenced, bool by_mark,
                                          const UserName& name = sys::user_name);

}  // namespace aliquot::node
