// What one user's running jobs may hold at once. Each limit is a row, which says how it is set,
// counted and shown; settings, queue, reasons and views go through the rows and know none by name.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/ids.hpp"
#include "base/result.hpp"
#include "core/schedule.hpp"
#include "engine/job.hpp"
#include "engine/settings.hpp"

namespace aliquot {
class TomlPlace;
}

namespace aliquot::engine {

struct State;

struct UserLimit {
  std::string setting;   // below [jobs]
  std::string reason;    // Slurm's word, while a job waits for it
  std::string config;    // its name in `scontrol show config`
  std::string sentence;  // for `aliquot why`, with {} where the limit stands

  // The limit, in the unit in which jobs are counted; and back, as people read it.
  Result<std::int64_t> (*read)(const TomlPlace& place);
  std::string (*show)(std::int64_t most);
  // What a job holds while it runs.
  std::int64_t (*count)(const Job& job, const core::Node& node);

  // Absent: there is none.
  [[nodiscard]] std::optional<std::int64_t> most(const Settings& settings) const;
};

const std::vector<UserLimit>& user_limits();
// The one that a job with this reason waits for, if it is one of them.
const UserLimit* user_limit_of(Reason reason);

// The limits that are set, in one decision: what users' running jobs hold, and what starts.
class UserRules final : public core::Rules {
 public:
  explicit UserRules(const State& state);

  [[nodiscard]] std::optional<std::string_view> hold_back(const core::QueueEntry& entry) override;
  void started(const core::QueueEntry& entry) override;
  void ended(JobId job) override;

 private:
  struct Count {
    const UserLimit* limit;
    std::int64_t most;
    std::unordered_map<Uid, std::int64_t> held;
  };
  // What one job counts for, in the order of `counts_`. Of those that wait it is noted at once: a
  // plan goes on asking when they may be gone.
  struct Wanted {
    Uid user;
    std::vector<std::int64_t> amounts;
  };
  void add(JobId job, std::int64_t times);

  std::vector<Count> counts_;
  std::unordered_map<JobId, Wanted> wanted_;
};

}  // namespace aliquot::engine
