// When each waiting job will start, if nothing else comes and every job runs to its limit: the
// whole queue is played through on a copy of the cluster, from one end to the next, with the same
// look, placement and priorities as schedule(). Usage and ages go on as they will, so two users
// take turns in the plan as they will take turns in truth.
//
// A long queue takes a while: a plan is made in pieces of bounded work, and what is known of it
// already can be read in between. Pure; who may still need an answer and when is the engine's.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "core/backfill.hpp"
#include "core/fair_share.hpp"
#include "core/schedule.hpp"

namespace aliquot::core {

// Before which a job does not start: another one's start or end, and so long after it.
struct PlanGate {
  JobId job;
  bool at_start = false;
  Millis delay = {};
};

struct PlanEntry {
  QueueEntry entry;  // its priority is not looked at
  Urgency urgency;
  std::int64_t count = 1;  // elements of an array; the same in each of the job's entries
  // Those with the same number here run only so many at once: an array's.
  std::optional<std::size_t> group = {};
  // Entries of one user that the rules treat alike have the same.
  std::uint64_t kind = 0;
  Millis ready = {};  // from now on; it does not start before
  std::vector<PlanGate> gates = {};
  bool any_gate = false;  // one of them is enough
};

struct PlanRunning {
  JobId job;
  Use use;
  std::optional<Millis> left = {};
  std::size_t sharer = 0;
  std::optional<std::size_t> group = {};
};

// What a plan is made from; it is taken over.
struct PlanInput {
  std::vector<PlanEntry> waiting;
  std::vector<PlanRunning> running;
  std::vector<std::int64_t> group_limits = {};
};

class Plan {
 public:
  // The cluster holds exactly the uses of what runs. Policy and rules are used by advance() alone,
  // and by nobody else meanwhile who would be surprised.
  Plan(const Cluster& cluster, PriorityModel model, PlanInput input, Policy& policy,
       std::unique_ptr<Rules> rules = nullptr);
  Plan(const Plan&) = delete;
  Plan& operator=(const Plan&) = delete;

  // Goes on for about so many steps, of which each costs some hundred nanoseconds; true: done.
  bool advance(std::int64_t steps);
  [[nodiscard]] bool done() const { return done_; }
  // From the moment the plan was made for; an array's first element. Nothing: not yet known, or it
  // is not known when: it waits for what has no end.
  [[nodiscard]] std::optional<Millis> start(JobId job) const;

 private:
  // Entries that differ in nothing but their age, in order: if the first cannot start, none can.
  struct Queue {
    std::size_t shape = 0;
    std::optional<Millis> limit = {};
    std::size_t sharer = 0;
    std::optional<std::int64_t> fixed = {};
    std::int64_t base = 0;  // of the priority, what does not change
    std::int64_t tier = 0;
    std::optional<std::size_t> group = {};
    std::vector<std::size_t> entries = {};
    std::size_t next = 0;
    // One entry alone may have to wait for others, or for its time.
    std::size_t gates = 0;
    Millis from = {};
  };
  // What is compared of an open queue, at the moment that is looked at: small, since there may be a
  // thousand of them at ten thousand moments.
  struct Head {
    std::int64_t tier = 0;
    std::int64_t priority = 0;
    std::uint64_t order = 0;
    std::size_t entry = 0;
    std::int64_t limit = 0;  // milliseconds; -1: none
    std::uint32_t shape = 0;
    std::uint32_t queue = 0;
    bool tried = false;
  };
  struct Run {
    JobId job;
    std::size_t sharer = 0;
    Compute held = {};
    std::optional<std::size_t> group = {};
    std::optional<std::uint32_t> partition = {};  // none: it ran before
  };

  void add_running();
  void add_waiting();
  std::size_t new_queue(const PlanEntry& entry, std::size_t shape, std::int64_t base);
  void open(std::size_t queue);
  void look();
  bool go_on();
  // To the next entry that has something left to start; nothing: it is tried.
  void skip_started(Head& head);
  void weigh(Head& head) const;
  // The best of those not tried yet that may start, or whose shape is full.
  Head* best(bool full);
  void reserve_before(const Head& candidate);
  bool held_back(const Queue& queue);
  void begin_run(Head& head, const Use& use);
  void end_run(const Endings::Ending& ending);
  void open_gates(JobId job, bool at_start);
  static bool is_before(const Head& a, const Head& b);

  Cluster now_;
  PriorityModel model_;
  PlanInput input_;
  Policy& policy_;
  std::unique_ptr<Rules> rules_;

  std::vector<Shape> shapes_;
  std::vector<Queue> queues_;
  std::vector<Head> open_;  // of them those that may start something
  std::multimap<Millis, std::size_t> later_;
  std::unordered_multimap<JobId, std::pair<std::size_t, PlanGate>> waiting_for_;  // queues
  std::unordered_map<JobId, std::int64_t> left_;  // of those: elements that are not over

  std::vector<Run> runs_;
  std::vector<std::int64_t> group_runs_;
  Endings endings_;
  Backfill look_;
  Millis at_ = {};
  std::int64_t steps_ = 0;
  bool done_ = false;

  // A job may have several entries, one for each partition: each element starts once.
  struct Slot {
    std::optional<Millis> start = {};
    std::int64_t left = 0;  // elements that have not started
    bool several = false;
  };
  std::vector<Slot> slots_;
  std::vector<std::size_t> slot_of_;  // by entry
  std::unordered_map<JobId, std::size_t> slot_of_job_;
};

}  // namespace aliquot::core
