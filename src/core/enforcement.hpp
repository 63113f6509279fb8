// How a job is kept within its grant: decides, from what the node has, which backends the job gets.
// Pure; the node carries the plan out, `scontrol show job` and `aliquot doctor` show it.
//
// The backends, strongest first: the driver's own limit per cgroup, MPS, the library in the job,
// the watchdog. They complement each other: each enforces what the one before cannot see. A whole
// GPU needs none of them, because nobody else is on it.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.hpp"
#include "base/units.hpp"
#include "core/grant.hpp"

namespace aliquot::core {

// The jobs that die together when one of them faults on the GPU.
enum class FaultDomain : std::uint8_t {
  gpu,   // all on one GPU: one MPS server for everybody, the fastest
  user,  // one MPS server for each user
  job,   // no MPS: jobs take turns
};
std::optional<FaultDomain> parse_fault_domain(std::string_view word);
std::string_view to_string(FaultDomain domain);

// What a node has. A reason is why something is missing, for people; empty: it is there.
struct EnforcementFacts {
  bool enabled = true;
  std::string driver_version = {};  // "580.159.04"; empty: none
  std::string no_mps = {};
  std::string no_library = {};
  FaultDomain domain = FaultDomain::user;
  Compute compute_limit = kWholeGpu;  // over that: compute is over-committed
  bool strict = false;       // domain gpu: a share is also the most a job gets, whatever is idle
  bool kill_escapes = true;  // end what holds more than its job was granted
  std::map<GpuId, int> capabilities = {};  // compute capabilities, their major numbers
};

inline constexpr std::string_view kNotHeld = "none";

struct EnforcementPlan {
  FaultDomain domain = FaultDomain::user;  // of its MPS server
  bool library = false;
  bool mps = false;
  bool lease = false;     // the library obeys the GPU's lease board
  bool watchdog = false;  // the daemon looks for processes that got around all this
  std::optional<std::int64_t> thread_percentage = {};  // of the MPS client
  std::optional<Bytes> pinned_limit = {};              // of each MPS client: a second line

  // For `scontrol show job`: "mps(user)+library+leases+watchdog", "exclusive" or kNotHeld.
  std::string words = {};

  friend bool operator==(const EnforcementPlan&, const EnforcementPlan&) = default;
};

EnforcementPlan plan_enforcement(const EnforcementFacts& node, const Grant& grant);

// What EnforcementPlan::words says of a plan under which something is held.
std::string words_of(const EnforcementPlan& plan);

// For a plan whose MPS did not start: it goes on without MPS.
void drop_mps(EnforcementPlan& plan);

struct Backend {
  std::string name;  // "driver", "mps", "library", "watchdog"
  bool used = false;
  std::string detail;
};
// Strongest first, each with what it does or why it is not there.
std::vector<Backend> list_backends(const EnforcementFacts& node);

// Of one MPS server, since Volta.
inline constexpr std::int64_t kMpsClients = 48;

}  // namespace aliquot::core
