// When each waiting job will start: keeps core::Plan up to date for whoever looks. Nobody looks,
// nothing is planned. A plan is made in pieces, one for each turn of the engine, so that a long
// queue keeps nobody waiting; until a new one is there the old one's times are shown.
//
// It writes Job::start of what waits, and decides nothing: Queue does, at each moment anew.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "core/plan.hpp"
#include "engine/state.hpp"

namespace aliquot::engine {

class Queue;

// The policy of this machine, for each who decides by one: it remembers what it has seen.
Result<std::unique_ptr<core::Policy>> machine_policy(const Settings& settings);

class Forecast {
 public:
  Forecast(State& state, Queue& queue) : state_(state), queue_(queue) {}

  // Before jobs are shown.
  void look_ahead();
  // The next piece, if there is one.
  void go_on();
  [[nodiscard]] bool unfinished() const { return plan_ != nullptr || !questions_.empty(); }
  // Of one more job, which is not in the queue: nothing where it is not known. Told at once, or
  // with a later piece; then the number says which it is. Each asker has one such question at a
  // time: a plan is large.
  using Told = std::function<void(std::optional<WallTime>)>;
  Answer<std::optional<std::uint64_t>> ask(Uid asker, const Job& extra, Told told);
  // Nobody waits for the answer any more.
  void drop(std::uint64_t question);

 private:
  struct Question {
    std::uint64_t number;
    Uid asker;
    JobId job;
    std::unique_ptr<core::Plan> plan;
    WallTime made_at;
    Told told;
  };
  std::unique_ptr<core::Plan> make_plan(const Job* extra);
  void advance();
  static bool answer(Question& question);

  State& state_;
  Queue& queue_;
  // Its own: a policy remembers what it has seen, and who looks must not change what happens.
  std::unique_ptr<core::Policy> policy_;
  std::vector<Question> questions_;
  std::uint64_t last_question_ = 0;
  std::unique_ptr<core::Plan> plan_;  // until it is done
  WallTime made_at_ = {};
  std::optional<std::uint64_t> made_for_;  // Queue::passes()
  Millis took_ = {};
  MonoTime not_before_ = {};
};

}  // namespace aliquot::engine
