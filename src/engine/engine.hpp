// The embedded queue itself: what users ask for, what runs, and what is on record, kept in step. It
// decides with core/, remembers with Store, acts through Executor, and has no threads, sockets or
// timers of its own: whoever drives it (daemon.hpp, tests) calls into its rooms with what is asked
// or has happened and calls settle() afterwards, and again at next_due().
//
// Its rooms: Queue (who waits, who starts), Forecast (when), Runs (attempts, ends, recovery),
// Clients (interactive jobs and steps) and Views (what is shown to whom). They share State. Engine
// itself is the transaction: change, commit, act, answer. Where the record cannot be written,
// memory goes back to what is committed: who asked is told to try again, and what has happened on
// the machine is applied again later.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "engine/clients.hpp"
#include "engine/forecast.hpp"
#include "engine/queue.hpp"
#include "engine/runs.hpp"
#include "engine/state.hpp"
#include "engine/tokens.hpp"
#include "engine/upkeep.hpp"
#include "engine/views.hpp"

namespace aliquot::engine {

// How soon a record that could not be written is tried again, if nobody asks before.
inline constexpr Millis kRecordPause = seconds(1);

class Engine {
 public:
  // Reads the record and takes up what runs.
  static Result<std::unique_ptr<Engine>> create(Parts parts, Views::Facts facts = {});
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  [[nodiscard]] Queue& queue() { return queue_; }
  [[nodiscard]] Runs& runs() { return runs_; }
  [[nodiscard]] Clients& clients() { return clients_; }
  [[nodiscard]] Views& views() { return views_; }
  [[nodiscard]] Forecast& forecast() { return forecast_; }

  [[nodiscard]] Answer<void> admit(const Caller& caller) const { return state_.admit(caller); }
  [[nodiscard]] Answer<void> administer(const Caller& caller) const;
  // Who the caller is, by name; `then` runs once that is known as far as it will be.
  [[nodiscard]] bool knows(const Caller& caller) {
    return state_.users.find(caller.uid).has_value();
  }
  void identify(const Caller& caller, std::function<void()> then) {
    state_.users.learn(caller.uid, std::move(then));
  }
  // Starts what can start, commits, then acts and answers.
  void settle();
  // Runs after the next commit: answers. `otherwise` runs where there is none.
  void after_commit(std::function<void()> action, std::function<void()> otherwise = {}) {
    state_.after_commit(std::move(action), std::move(otherwise));
  }
  // Why the record could not be written or read when it was last tried.
  [[nodiscard]] const std::optional<Error>& trouble() const { return state_.trouble; }
  // Something asked for since the last commit could not be read: its answer is worth nothing.
  [[nodiscard]] const std::optional<Error>& unread() const { return state_.unread; }
  // When time alone may change something.
  [[nodiscard]] std::optional<WallTime> next_due();

  // What the monitor saw; nothing: it could not look.
  void observe(std::optional<std::vector<node::GpuView>> views, const Measures& measures = {});
  // Takes over what can change while it runs.
  Reloaded reload(const Settings& next);
  [[nodiscard]] const Settings& settings() const { return state_.settings; }
  [[nodiscard]] const api::AccountBook& book() const { return state_.book; }
  [[nodiscard]] const std::vector<api::ReservationInfo>& reservations() const {
    return state_.reservations;
  }
  // For /metrics: submissions that were refused are no job, and on no record.
  void note_refused(const std::string& code) { ++state_.tally->figures.refused[code]; }
  [[nodiscard]] WallTime now() const { return state_.clock.wall(); }
  [[nodiscard]] Tokens& tokens() { return tokens_; }
  [[nodiscard]] std::string name_of(Uid user) const { return state_.users.name(user); }
  [[nodiscard]] std::size_t live() const { return state_.jobs.size(); }
  [[nodiscard]] Statistics& statistics() { return state_.statistics; }
  void count_anew() { state_.statistics.reset(now(), state_.tally->figures); }
  [[nodiscard]] const core::Ledger& ledger() const { return state_.ledger; }
  // What runs.
  [[nodiscard]] std::vector<const Job*> active() const;

 private:
  Engine(State state, Views::Facts facts);
  void give_up(const Error& why);
  Result<void> restore();

  State state_;
  // They refer to each other, and only use each other once all of them are there.
  Queue queue_;
  Forecast forecast_;
  Runs runs_;
  Clients clients_;
  Views views_;
  Upkeep upkeep_;
  Tokens tokens_;
  std::optional<WallTime> try_again_at_;
  bool unsettled_ = false;  // the last settle() left something to do
};

}  // namespace aliquot::engine
