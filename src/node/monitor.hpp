// What the GPUs are doing and whose processes those are. A process belongs to a job when it carries
// that job's mark in the environment it was started with and is its user's, when it is in the job's
// control group, or when one of its ancestors does. Our own MPS servers are left out; everything
// else on a GPU is foreign.
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

namespace aliquot::node {

// For people: a process's user, by name or else by number, and its command. Empty: it is gone.
std::string user_of(Pid pid);
std::string command_of(Pid pid);

// Somebody who holds a part of the machine and runs on it.
struct RunningJob {
  HolderId id;
  Uid uid;
  std::string mark;  // in the environment of its processes
  std::int64_t attempt = 0;
  // For who uses a GPU that its job has nothing of. Absent: what it was granted is not known.
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
  std::string user = {};
  std::string command = {};
  Bytes memory = Bytes(0);
  std::optional<HolderId> holder = {};  // absent: foreign
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

// All processes of a job, on a GPU or not: by its control group, or where nobody is in one by its
// mark. Walks through /proc.
using JobMembers = std::function<std::vector<ProcessRef>(const HolderId&)>;
// running and fenced must outlive it.
JobMembers members_by(const std::vector<RunningJob>& running, const FencedJob& fenced,
                      bool by_mark);

// Asks the driver and reads /proc: on a worker. by_mark: also who is in no group is looked at, for
// where there are none: its environment is read, and a process can see to it that this waits for
// ever.
Result<std::vector<GpuView>> look_at_gpus(gpu::Devices& devices,
                                          const std::vector<RunningJob>& running,
                                          const FencedJob& fenced, bool by_mark);

}  // namespace aliquot::node
