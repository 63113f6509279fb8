// The users of this machine as core/fair_share sees them: who shares it, what each has had and
// holds now, and what each waiting job's priority is made of. What was had is on record from the
// moment a job lets go of what it held, in the same transaction; what runs is counted as it goes.
#pragma once

#include <unordered_map>

#include "core/fair_share.hpp"
#include "engine/state.hpp"

namespace aliquot::engine {

// Everybody with a job that waits or runs, and everybody whose usage has not faded yet, by uid.
class Sharers {
 public:
  // `extra`: one that is not among the jobs.
  explicit Sharers(const State& state, const Job* extra = nullptr);

  [[nodiscard]] const core::PriorityModel& model() const { return model_; }
  [[nodiscard]] std::size_t place(Uid user) const { return places_.at(user); }
  // Of a job that waits, as of the moment this was made.
  [[nodiscard]] core::Urgency urgency(const Job& job) const;
  [[nodiscard]] std::int64_t priority(const Job& job) const;

 private:
  core::PriorityModel make_model(const Job* extra);

  const State& state_;
  WallTime now_;
  double largest_partition_ = 0;
  std::unordered_map<Uid, std::size_t> places_;
  core::PriorityModel model_;
};

// Since when it has held what it holds: suspended, too.
Millis held_for(const State& state, const Job& job);
std::int64_t shares_of(const State& state, const std::string& user);

// For figures. An account that nobody keeps is a label, of which anybody may have any number.
std::string figures_account(const State& state, const Job& job);

// It is about to let go of what it holds.
void charge(State& state, const Job& job);
// As it is on record, at the start and after a transaction that failed.
Result<void> read_usage(State& state);

}  // namespace aliquot::engine
