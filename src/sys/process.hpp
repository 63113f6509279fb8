// Processes, as the kernel shows them in /proc, and held by a descriptor, so that a number that has
// been given to another process is never signalled. Finding all processes of a job is
// node/process_tree.hpp's.
//
// A process is named by its pid and start time; the pair is unique until the next boot.
#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.hpp"
#include "base/result.hpp"
#include "base/time.hpp"
#include "sys/fd.hpp"

namespace aliquot::sys {

struct ProcessRef {
  Pid pid;
  std::uint64_t start_time = 0;  // field 22 of /proc/PID/stat
  friend auto operator<=>(const ProcessRef&, const ProcessRef&) = default;
};

struct ProcessInfo {
  ProcessRef ref;
  Pid parent;
  Pid session;
  char state = '?';       // Z: dead, not yet waited for
  bool headless = false;  // its first thread has ended, and others run on
};

// Nothing if there is no such process (any more).
std::optional<ProcessInfo> read_process(Pid pid);
// The file /proc/PID/NAME; nothing where the process has gone, or where we may not look.
std::optional<std::string> read_proc(Pid pid, std::string_view name);
// Of every process there is, the newest first.
std::vector<Pid> all_pids();
bool is_alive(const ProcessRef& process);  // a zombie is not
// Whose it is; nothing: it has gone.
std::optional<Uid> owner_of(Pid pid);
// Whether there is such a process and all of its user ids are this one.
bool runs_as(Pid pid, Uid uid);
// Its name, which it can choose itself; empty: it has gone.
std::string command_of(Pid pid);
// The value of a variable in the environment the process was started with; nothing where it has
// none, or where we may not look.
std::optional<std::string> environment_of(Pid pid, std::string_view name);

// Different after each boot, when pids and start times begin anew.
std::string boot_id();

// A descriptor that polls readable when the process ends, whoever its parent is. Of whichever
// process has that number now; closed: there is none.
Fd open_pid(Pid pid);
// Fails with not_found if it has gone or is another process of the same number by now.
Result<Fd> open_process(const ProcessRef& process);
// Whether it ended within the time; without one it is waited for as long as it takes.
bool has_ended(const Fd& process, std::optional<Millis> patience);

// By its descriptor.
bool signal_process(int process, int signal);
// Signals each that still is the same process; how many.
int signal_processes(const std::vector<ProcessRef>& processes, int signal);

// Waits for our child; its status as waitpid() has it, or -1 where it is not our child.
int wait_for_child(Pid child);

}  // namespace aliquot::sys
