// A control group by where it lies. That is all aliquot-stepd needs to put a job in and to look
// after it; making, limiting and removing groups is the daemon's (cgroup.hpp). Empty paths are a
// group that nobody is in and that has no freezer.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.hpp"
#include "base/result.hpp"
#include "base/time.hpp"
#include "base/units.hpp"
#include "node/process_tree.hpp"

namespace aliquot::node {

// The kernel's control files, one value at a time.
Result<void> write_control(const std::string& file, std::string_view value);
// The number behind "key " in the file, or the first line where there is no key.
std::optional<std::int64_t> read_number(const std::string& file, std::string_view key);

struct GroupUsage {
  std::optional<Millis> user_cpu = {};  // absent where the kernel does not say
  std::optional<Millis> system_cpu = {};
  std::optional<Bytes> memory_peak = {};
  std::int64_t oom_kills = 0;
};

// Where a group lies, by controller; v2 has one folder, under the name "". Empty: no cgroups.
struct GroupPaths {
  std::map<std::string, std::string> folders = {};
  [[nodiscard]] bool empty() const { return folders.empty(); }
  friend bool operator==(const GroupPaths&, const GroupPaths&) = default;
};

// Where a process of a single thread writes "0" to be in the group.
std::vector<std::string> join_files(const GroupPaths& paths);
// With those of the groups inside.
Result<std::vector<Pid>> group_processes(const GroupPaths& paths);
Result<void> freeze_group(const GroupPaths& paths, bool frozen);
GroupUsage group_usage(const GroupPaths& paths);
// Until the group is empty but for those spared, or patience runs out; how many were there.
Killed kill_group(const GroupPaths& paths, Millis patience, const std::set<Pid>& spared = {});
// Of the groups inside alone: of a job, those of its steps.
std::vector<Pid> inner_processes(const GroupPaths& paths);

}  // namespace aliquot::node
