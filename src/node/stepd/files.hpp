// The names in a job's folder that the daemon and aliquot-stepd agree on.
#pragma once

namespace aliquot::node {

inline constexpr const char* kLaunchFile = "launch.json";
inline constexpr const char* kExitFile = "exit.json";
inline constexpr const char* kPidFile = "stepd.pid";  // "PID START_TIME BOOT_ID\n"
inline constexpr const char* kControlFile = "control";
inline constexpr const char* kLockFile = "lock";

}  // namespace aliquot::node
