// How many processes of the control group that this process is in the kernel has killed because
// they had more memory than they may; 0 where there is no such group.
#pragma once

#include <cstdint>
#include <string>

namespace aliquot::cli {

// From /proc/self/cgroup and below where control groups are mounted; the arguments are for tests.
std::int64_t count_oom_kills(const std::string& membership = "/proc/self/cgroup",
                             const std::string& mounts = "/sys/fs/cgroup");

}  // namespace aliquot::cli
