// A job as the engine keeps it while it waits or runs. What is over lives in the store alone.
// job_info.hpp makes of it what the API shows and what the store writes down.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "api/types.hpp"
#include "base/ids.hpp"
#include "base/time.hpp"
#include "base/units.hpp"
#include "core/array_spec.hpp"
#include "core/cluster.hpp"
#include "core/dependency.hpp"
#include "core/grant.hpp"
#include "core/job_state.hpp"
#include "engine/reason.hpp"
#include "node/run_name.hpp"

namespace aliquot::engine {

enum class Hold : std::uint8_t { none, user, admin };

// What shall become of a job whose processes are being ended.
enum class Ending : std::uint8_t {
  none,
  cancel,
  timeout,
  requeue,
  requeue_hold,
  preempt,
  node_fail
};

// How long a job has run, by the clock that nobody sets and in the boot in which it counts.
struct RunTime {
  std::string boot;
  MonoTime since = {};  // running, or suspended, without a break
  Millis before = {};   // of running, until then
};

struct Owner {
  std::string user;
  Uid uid;
  std::string group;
  Gid gid;
};

// The whole array as it was submitted.
struct ArrayExtent {
  std::int64_t count = 0;
  std::int64_t first = 0;
  std::int64_t last = 0;
  std::int64_t step = 1;
};

struct ExitStatus {
  int code = 0;
  int signal = 0;
};

// What a job used, once it has run.
struct Usage {
  Millis user_cpu = {};
  Millis system_cpu = {};
  Bytes max_rss = {};
  Millis gpu_time = {};
  Bytes gpu_memory_peak = {};
  Compute gpu_utilisation = {};
};

// A GPU that a job holds all or a part of, and how the machine calls it.
struct HeldGpu {
  core::GrantedGpu granted;
  std::int64_t index = 0;  // as nvidia-smi counts
  std::string model = {};
};

struct Job {
  JobId id;
  std::optional<JobId> array = {};        // the array that it is, or is an element of
  std::optional<std::int64_t> task = {};  // the element
  core::ArraySpec waiting = {};           // elements that have not started
  std::string waiting_text = {};          // the same in words
  ArrayExtent extent = {};
  std::int64_t throttle = 0;  // so many elements of the array at once; 0: all

  api::JobSpec spec =
      {};  // as it was asked for; script, arguments and environment are in the store
  Owner owner = {};
  std::string partition = {};
  std::int64_t priority = 0;
  std::optional<Millis> time_limit = {};

  core::JobState state = core::JobState::pending;
  Reason reason = Reason::none;
  std::string detail = {};  // of the reason, a sentence
  Hold hold = Hold::none;
  Ending ending = Ending::none;
  std::optional<Uid> cancelled_by = {};
  std::int64_t restarts = 0;
  ExitStatus exit = {};
  ExitStatus derived_exit = {};  // the highest of its steps

  WallTime submitted = {};
  WallTime eligible = {};
  std::optional<WallTime> start = {};  // expected, while it waits
  std::optional<WallTime> end = {};    // expected, while it runs
  std::optional<WallTime> suspended = {};
  Millis suspended_total = {};

  // What it holds, or will: what it asked for, on the machine as it was when it started.
  CpuMilli cpus = {};
  Bytes memory = {};
  std::vector<HeldGpu> gpus = {};
  std::string node = {};
  std::string enforcement = {};  // how it is held to that, in words
  std::string std_out = {};      // the patterns filled in
  std::string std_err = {};
  std::string std_in = {};
  std::string mark = {};     // of its processes, while it runs
  std::int64_t payload = 0;  // whose script and so on it has: an element's are its array's
  RunTime run_time = {};     // while it runs
  Millis limited_at = {};    // of its running: when its time limit was last changed
  Usage usage = {};

  // Read from the above whenever it comes from outside or from the store.
  std::string unfit = {};  // why it cannot run on the machine as it is now
  core::Dependencies dependencies = {};
  core::DependencyState dependency_state = {};
  std::string dependency_text = {};  // what is left of them
  WallTime not_before = {};          // after a start that was postponed
  // It makes room for another one: until then it may end by itself, and after that it is ended.
  std::optional<MonoTime> evicted = {};
  core::Request request = {};
  std::string gres = {};  // its GPUs in canonical words
  core::Shape shape = {};

  [[nodiscard]] node::Run run() const { return {id, restarts}; }
  [[nodiscard]] bool is_array() const { return !waiting.tasks.empty(); }
  void set_waiting(core::ArraySpec tasks) {
    waiting = std::move(tasks);
    waiting_text = core::format_array(waiting);
  }
  // Elements stand where their array stands.
  [[nodiscard]] JobId order() const { return array.value_or(id); }
  // --ntasks-per-node alone says how many tasks there are: there is one node.
  [[nodiscard]] std::int64_t ntasks() const {
    return spec.ntasks.value_or(std::max<std::int64_t>(spec.ntasks_per_node.value_or(1), 1));
  }
  [[nodiscard]] core::Grant grant() const;
};

// What is needed once, at the start, and is too large to keep at hand.
struct Payload {
  std::string script;
  std::vector<std::string> environment;
  std::vector<std::string> arguments;
};

}  // namespace aliquot::engine
