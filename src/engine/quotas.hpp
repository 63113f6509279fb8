// What users, accounts, qualities of service and partitions may hold, and what they hold now: the
// book and the settings as core::Limits, for one decision or one question.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "core/limits.hpp"
#include "engine/state.hpp"

namespace aliquot::engine {

// Slurm's words for waiting because of a limit; Reason counts them from Reason::limit.
const std::vector<std::string_view>& limit_words();

// `2`, `0.25`
std::string format_gpus(Compute gpus);

// What a job holds, or wants. A share is the part of a GPU that its compute is.
core::Tally wants_of(const Job& job, const core::Node& node);

class Quotas {
 public:
  // With what runs now. `state` must outlive this, and not change meanwhile.
  explicit Quotas(const State& state);

  // Until the next call.
  const core::Claim& claim(const Job& job, const Partition& partition);
  // For the decision on these, or a plan of them; `extra` is not in the queue yet.
  std::unique_ptr<core::Rules> rules(const std::vector<core::QueueEntry>& queue,
                                     const Job* extra = nullptr);
  // A job's in this partition: which limit keeps it, how much of it is used by whom, and what to
  // do. Nothing where none does.
  std::vector<std::string> sentences(const Job& job, const Partition& partition);

 private:
  // Whose jobs count together.
  enum class Whose : std::uint8_t {
    user,
    qos,
    qos_user,
    qos_user_gpus,
    association,
    account,
    partition
  };
  struct Key {
    Whose whose = Whose::user;
    std::string name = {};
    std::string user = {};
    friend auto operator<=>(const Key&, const Key&) = default;
  };
  // A limit on one job.
  struct Alone {
    core::Ceiling most;
    std::optional<std::int64_t> wall_ms = {};
    std::string qos = {};  // whose limit it is; empty: an association's
  };
  struct Group {  // jobs with the same limits
    std::vector<std::size_t> pots;
    std::vector<Alone> alone;
  };
  using GroupKey = std::tuple<Uid, std::string, std::string, std::string>;

  const Group& group_of(const Job& job, const Partition& partition);
  void count_in(Group& group, const Key& key, const core::Ceiling& most);
  std::size_t pot(const Key& key, const core::Ceiling& most);
  [[nodiscard]] std::vector<std::string> never_sentences(const Job& job, const Partition& partition,
                                                         const core::Claim& claim) const;
  [[nodiscard]] std::string limit_text(const Key& key, const core::Ceiling& most,
                                       core::Measure measure) const;
  [[nodiscard]] std::string who(const Key& key) const;

  const State& state_;
  core::Limits limits_;
  std::map<Key, std::size_t> numbers_;
  std::vector<Key> keys_;  // by number
  std::map<GroupKey, Group> groups_;
  std::map<std::size_t, std::vector<JobId>> holders_;  // by pot
  std::vector<std::pair<JobId, core::Claim>> running_;
  core::Claim claim_;
  Alone broken_;  // the limit that is in the way of claim_
};

}  // namespace aliquot::engine
