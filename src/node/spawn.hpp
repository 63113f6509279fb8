// Starting a process as a user, with nothing of ours left in it: identity, groups, limits, umask,
// folder, environment and open files are exactly those asked for; the rest is as after a login
// (login_state.hpp). Files are opened after the privileges are gone, so the kernel decides what the
// user may open. Waiting for it is the caller's.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "base/ids.hpp"
#include "base/result.hpp"
#include "node/group_paths.hpp"
#include "node/process_tree.hpp"
#include "node/resource_limits.hpp"
#include "sys/fd.hpp"
#include "sys/identity.hpp"

namespace aliquot::node {

struct FromFile {
  std::string path;  // relative to the working folder
};
struct ToFile {
  std::string path;
  bool append = false;
};
struct FromFd {
  int fd = -1;  // the caller keeps its own
};
struct LikeStdout {};
struct Null {};  // /dev/null

struct SpawnSpec {
  sys::Identity identity;  // another uid than ours needs root
  std::string file;        // executed as it is: no PATH
  std::vector<std::string> argv;
  std::vector<std::string> environment;
  std::string directory = "/";
  std::string fallback_directory =
      {};  // where directory cannot be entered; empty: that is an error
  std::variant<Null, FromFile, FromFd> in = Null{};
  std::variant<Null, ToFile, FromFd> out = Null{};
  std::variant<Null, ToFile, FromFd, LikeStdout> err = Null{};
  mode_t umask = 0022;
  std::vector<ResourceLimit> limits = {};
  GroupPaths group = {};  // joined while we still may
  bool new_session = true;
  std::optional<int> death_signal = {};  // to the child, when our thread dies
  // Adds NAME=<the child's own pid>: SLURM_TASK_PID.
  std::string pid_variable = {};
  // Messages for the user go to the child's stderr behind this: "slurmstepd-host: error: ".
  std::string message_prefix = {};
};

// Where a start failed, in the order of what happens.
enum class SpawnStage : std::uint8_t {
  fork,
  cgroup,
  identity,
  limits,
  directory,
  std_in,
  std_out,
  std_err,
  exec,
};

struct SpawnFailure {
  SpawnStage stage = SpawnStage::fork;
  int error = 0;     // errno
  std::string what;  // one line: "Could not open stdout file /x: Permission denied"
};

// Returns when the program runs, or when the child has failed and been waited for. A failed exec
// has been told to the child's stderr too. Opening a fifo waits for its other end: who cannot wait
// takes the steps below.
tl::expected<Pid, SpawnFailure> spawn(const SpawnSpec& spec);

// A child on its way to exec. Poll channel; when it is readable, call advance.
struct Starting {
  Pid pid;
  sys::Fd channel;
  sys::Fd std_err;  // the child's, from just before exec on
};
enum class Progress : std::uint8_t { pending, running };
tl::expected<Starting, SpawnFailure> begin_spawn(const SpawnSpec& spec);
// A failed child has been waited for.
tl::expected<Progress, SpawnFailure> advance(Starting* starting, const SpawnSpec& spec);

}  // namespace aliquot::node
