// A job as the engine keeps it while it waits or runs. What is over lives in the store alone.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "api/types.hpp"
#include "base/time.hpp"
#include "core/array_spec.hpp"
#include "core/cluster.hpp"
#include "core/dependency.hpp"
#include "core/job_state.hpp"
#include "node/run_name.hpp"

namespace aliquot::engine {

enum class Hold : std::uint8_t { none, user, admin };

// What shall become of a job whose processes are being ended.
enum class Ending : std::uint8_t { none, cancel, timeout, requeue, requeue_hold };

// How long a job has run, by the clock that nobody sets and in the boot in which it counts.
struct RunTime {
  std::string boot;
  MonoTime since = {};  // running, or suspended, without a break
  Millis before = {};   // of running, until then
};

struct Job {
  api::JobInfo info;  // as its owner sees it, but for the steps; state is a name for `state`
  api::JobSpec spec;  // without script, arguments and environment: those wait in the store
  core::JobState state = core::JobState::pending;
  Hold hold = Hold::none;
  Ending ending = Ending::none;
  std::string mark;          // of its processes, while it runs
  std::int64_t payload = 0;  // whose script and so on it has: an element's are its array's
  RunTime run_time;          // while it runs
  Millis limited_at = {};    // of its running: when its time limit was last changed
  std::string unfit;         // why it cannot run on the machine as it is now

  // Read from the above whenever it comes from outside or from the store.
  core::Dependencies dependencies;
  core::DependencyState dependency_state;
  WallTime not_before;      // after a start that was postponed
  core::ArraySpec waiting;  // elements of an array that have not started
  core::Request request;
  core::Shape shape;

  [[nodiscard]] JobId id() const { return JobId(info.id); }
  [[nodiscard]] node::Run run() const { return {id(), info.restarts}; }
  [[nodiscard]] bool is_array() const { return !waiting.tasks.empty(); }
  // Elements stand where their array stands.
  [[nodiscard]] std::uint64_t order() const {
    return static_cast<std::uint64_t>(info.array_job_id.value_or(info.id));
  }
};

// What is needed once, at the start, and is too large to keep at hand.
struct Payload {
  std::string script;
  std::vector<std::string> environment;
  std::vector<std::string> arguments;
};

}  // namespace aliquot::engine
