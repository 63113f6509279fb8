// Processes of a job, told apart from all others by what the kernel says of them in /proc: their
// parent, their session, and the mark in the environment they were started with. Everything that is
// signalled is held by a pidfd and checked again first, so that a recycled pid is never hit.
//
// A process is named by its pid and start time; the pair is unique until the next boot.
#pragma once

#include <sys/types.h>

#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/ids.hpp"
#include "base/result.hpp"
#include "base/time.hpp"

namespace aliquot::node {

using Pid = Id<struct PidTag, pid_t>;

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

// A descriptor that closes itself.
class Fd {
 public:
  Fd() = default;
  explicit Fd(int fd) : fd_(fd) {}
  Fd(Fd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Fd& operator=(Fd&& other) noexcept {
    if (this != &other) reset(std::exchange(other.fd_, -1));
    return *this;
  }
  ~Fd() { reset(); }
  [[nodiscard]] int get() const { return fd_; }
  [[nodiscard]] int release() { return std::exchange(fd_, -1); }
  void reset(int fd = -1);
  explicit operator bool() const { return fd_ >= 0; }

 private:
  int fd_ = -1;
};

// Nothing if there is no such process (any more).
std::optional<ProcessInfo> read_process(Pid pid);
// Of every process there is, the newest first.
std::vector<Pid> all_pids();
// A descriptor that polls readable when the process ends, whoever its parent is. Fails with
// not_found if it has gone or is another process of the same number by now.
Result<Fd> open_process(const ProcessRef& process);
bool is_alive(const ProcessRef& process);  // a zombie is not
// Whether there is such a process and all of its user ids are this one.
bool runs_as(Pid pid, Uid uid);

// Different after each boot, when pids and start times begin anew.
std::string boot_id();

// The value of a variable in the environment the process was started with; nothing where it has
// none, or where we may not look.
std::optional<std::string> environment_of(Pid pid, std::string_view name);

// ALIQUOT_JOB=<id>:<random>, in the environment of everything a job starts.
inline constexpr std::string_view kMarkVariable = "ALIQUOT_JOB";
std::string make_mark(JobId job);

// What to look for. Zombies never count.
struct Search {
  std::optional<Pid> ancestor = {};       // all that descend from it; not itself
  std::optional<Pid> session = {};        // all of this session
  std::string mark = {};                  // all that carry it; empty: none. It proves nothing, so:
  std::optional<Uid> marked_uid = {};     // only those of this user
  bool steps_only = false;                // of these, only those that a step started
  std::optional<std::int64_t> step = {};  // or only those of this step
};
// And all descendants of what is found.
std::vector<ProcessRef> find_processes(const Search& search);

// By its descriptor.
bool signal_process(int process, int signal);
// Signals each that still is the same process; how many.
int signal_processes(const std::vector<ProcessRef>& processes, int signal);

struct Killed {
  int count = 0;         // processes that were there and were killed
  bool all_gone = true;  // false: some would not die within the time
};
// Stops, kills and looks again until nothing is left, so that nothing escapes by forking.
Killed kill_tree(const Search& search, Millis patience);

}  // namespace aliquot::node
