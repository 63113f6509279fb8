// Control groups: the kernel's fence around a job and each of its steps. Cgroups makes, changes and
// removes them; Group names one, and GroupPaths (group_paths.hpp) says where it lies. There is a
// driver for v2, one for v1, one for machines where we have none, and a fake (fake_cgroups.hpp).
//
// v1 hides devices by its own controller, v2 by a BPF program (device_filter.hpp). Calls write to
// the kernel's files and may take milliseconds: make them on a worker.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/ids.hpp"
#include "base/result.hpp"
#include "base/time.hpp"
#include "base/units.hpp"
#include "node/group_paths.hpp"
#include "node/run_name.hpp"

namespace aliquot::node {

// The group of one run of a job, or that of one of its steps, which lies inside.
struct Group {
  Run run;
  std::optional<std::int64_t> step = {};
  friend auto operator<=>(const Group&, const Group&) = default;
};

// A character device.
struct DeviceNumber {
  unsigned major = 0;
  unsigned minor = 0;
  friend auto operator<=>(const DeviceNumber&, const DeviceNumber&) = default;
};

// Absent is unlimited.
struct Limits {
  std::optional<CpuMilli> cpus = {};       // time, by quota
  std::optional<std::string> cpuset = {};  // "0-3,8": these CPUs only
  std::optional<Bytes> memory = {};
  std::int64_t processes = 0;                     // and threads; 0: no limit
  std::vector<DeviceNumber> hidden_devices = {};  // what the job may not open
};

class Cgroups {
 public:
  Cgroups() = default;
  Cgroups(const Cgroups&) = delete;
  Cgroups& operator=(const Cgroups&) = delete;
  virtual ~Cgroups() = default;

  // One line for `doctor` and ClusterInfo::cgroup: "v1: cpu, cpuset, memory, devices, freezer",
  // "none: not root".
  [[nodiscard]] virtual std::string capabilities() const = 0;
  [[nodiscard]] virtual bool available() const = 0;
  // Whether Limits::hidden_devices are hidden.
  [[nodiscard]] virtual bool hides_devices() const { return false; }

  // A step's job must be there. Creating what exists sets its limits anew.
  virtual Result<GroupPaths> create(const Group& group, const Limits& limits) = 0;
  // What is absent in limits stays as it is; devices can only be hidden, never shown again.
  virtual Result<void> update(const Group& group, const Limits& limits) = 0;
  [[nodiscard]] virtual GroupPaths paths(const Group& group) const = 0;
  virtual Result<void> add(const Group& group, Pid pid) = 0;
  // Out of whatever group of ours it is in.
  virtual Result<void> expel(Pid pid) = 0;
  virtual Result<std::vector<Pid>> processes(const Group& group) = 0;
  virtual Result<void> freeze(const Group& group, bool frozen) = 0;
  virtual Result<Killed> kill(const Group& group, Millis patience,
                              const std::set<Pid>& spared = {}) = 0;
  virtual Result<GroupUsage> usage(const Group& group) = 0;
  // With the steps inside. Fails with unavailable while a process is left. Gone already is fine.
  virtual Result<void> remove(const Group& group) = 0;
  // That have a group, in order: to clean up after a restart.
  virtual Result<std::vector<Run>> runs() = 0;
  // Its group is named by the job alone, as once every run's was. Before it is used.
  virtual void name_by_job(const Run& /*run*/) {}
  // The run whose group, or the group of whose step, the process is in, by the kernel's word;
  // nothing: in none of ours.
  [[nodiscard]] virtual std::optional<Run> run_of(Pid pid) const = 0;
};

// What this machine offers: v2 where it is the only hierarchy, else v1, else none with the reason.
// name is the folder under each hierarchy's root; mounts is for tests.
std::unique_ptr<Cgroups> open_cgroups(const std::string& name = "aliquot",
                                      const std::filesystem::path& mounts = "/proc/self/mountinfo");
std::unique_ptr<Cgroups> no_cgroups(std::string why);

// The device nodes of these minors of /dev/nvidia*, for Limits::hidden_devices. With all, also the
// common ones (nvidiactl, nvidia-uvm, …): for a job without any GPU. Nodes that do not exist are
// left out.
std::vector<DeviceNumber> nvidia_devices(const std::vector<int>& minors, bool all,
                                         const std::filesystem::path& dev = "/dev");

}  // namespace aliquot::node
