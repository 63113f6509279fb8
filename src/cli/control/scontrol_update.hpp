// `scontrol update …`: from `Key=Value` words to the body the daemon takes. Pure.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "base/time.hpp"

namespace aliquot::cli {

struct JobUpdate {
  std::vector<std::string> ids;
  std::string of_name = {};           // without ids: of all jobs of this name
  std::string body;                   // JSON: the changed fields of a JobSpec
  std::optional<Millis> longer = {};  // TimeLimit=+10, or -10: than each one's is now

  // With that, for a job that has this limit.
  [[nodiscard]] Result<std::string> body_for(std::optional<Millis> limit) const;
};
struct NodeUpdate {
  std::string name;
  bool drain = false;  // else resume
  bool down = false;   // drain, and end what runs there
  std::string reason;
  std::vector<std::int64_t> gpus;  // these alone; empty: the machine
};
struct Update {
  // Exactly one of them.
  std::vector<JobUpdate> jobs;
  std::vector<NodeUpdate> nodes;
};

// `now` is for times such as StartTime=now+60.
Result<Update> parse_update(const std::vector<std::string_view>& words, WallTime now);

}  // namespace aliquot::cli
