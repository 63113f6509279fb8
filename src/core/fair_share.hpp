// Who has had how much of the machine, and what follows from it for who is next: usage per user
// that fades with a half-life, and a job's priority as the sum of weighted factors, with the names
// and formulas of Slurm's priority/multifactor. What was really held counts: a share as its part of
// a GPU, whatever its job did with it.
//
// Pure: values in, values out. Who is a user, what shares there are and where usage is kept is the
// engine's. Usage is counted in GPU seconds, so a double holds centuries of it to the millisecond.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "base/ids.hpp"
#include "base/time.hpp"
#include "core/cluster.hpp"

namespace aliquot::core {

// What a job holds as parts of a GPU, in 1/10,000: each share as the larger of its parts of memory
// and compute, a whole GPU as one. Who holds no GPU is counted by CPUs: all of a machine's CPUs are
// worth all of its GPUs, and where there is none, each is worth one.
Compute billed(const Cluster& cluster, const Use& use);
// A portion as a part of its GPU: the larger one, of its memory or of its compute.
Compute part_of_gpu(const Portion& portion, Bytes gpu_memory);
// The same for one that waits; `of_all`: as a part of the whole cluster, from 0 to 1.
Compute billed(const Cluster& cluster, const Shape& shape);
double part_of_all(const Cluster& cluster, const Shape& shape);

// How much of an amount is left after so long. No half-life: all of it, always.
double faded(Millis half_life, Millis length);
// What holding so much without a break counts for at its end, when its beginning has faded already.
double charge_of(Compute held, Millis length, Millis half_life);

// What each user has had by now, as on record: without what runs.
class UsageBook {
 public:
  struct Entry {
    double amount = 0;  // GPU seconds, as of then
    WallTime at = {};
    friend bool operator==(const Entry&, const Entry&) = default;
  };
  explicit UsageBook(Millis half_life) : half_life_(half_life) {}

  [[nodiscard]] Millis half_life() const { return half_life_; }
  void set_half_life(Millis half_life) { half_life_ = half_life; }
  [[nodiscard]] const std::map<Uid, Entry>& entries() const { return entries_; }
  void set(Uid user, Entry entry) { entries_[user] = entry; }
  void clear() { entries_.clear(); }

  // The clock may be set back: what was had does not grow by that.
  [[nodiscard]] double usage(Uid user, WallTime now) const;
  // Somebody held this until now. What there is to be kept of the user.
  Entry charge(Uid user, Compute held, Millis length, WallTime now);

 private:
  Millis half_life_;
  std::map<Uid, Entry> entries_;
};

// Slurm's PriorityWeight*, PriorityMaxAge.
struct PriorityWeights {
  std::int64_t age = 1'000;
  std::int64_t fair_share = 100'000;
  std::int64_t job_size = 0;
  std::int64_t partition = 10'000;
  std::int64_t qos = 10'000;
  Millis max_age = days(7);
  friend bool operator==(const PriorityWeights&, const PriorityWeights&) = default;
};

// From 0 to 1 each.
struct PriorityFactors {
  double age = 0;
  double fair_share = 0;
  double job_size = 0;
  double partition = 0;
  double qos = 0;
};

// Weighted, as sprio shows them; they add up to `total`, which is never below 1.
struct Priority {
  std::int64_t age = 0;
  std::int64_t fair_share = 0;
  std::int64_t job_size = 0;
  std::int64_t partition = 0;
  std::int64_t qos = 0;
  std::int64_t nice = 0;
  std::int64_t total = 1;
};
Priority weigh(const PriorityFactors& factors, const PriorityWeights& weights, std::int64_t nice);
double age_factor(const PriorityWeights& weights, Millis waited);

// One of those who share the machine.
struct Sharer {
  Uid user;
  double shares = 1;  // any scale
  double usage = 0;   // GPU seconds, what runs included
  Compute held = {};  // by what runs
};

// A sharer's place among all.
struct Standing {
  double norm_shares = 0;  // of all shares
  double norm_usage = 0;   // of all usage
  double factor = 1;       // 2^(-norm_usage / norm_shares)
};
void find_standings(const std::vector<Sharer>& sharers, std::vector<Standing>& all);

// What a job's priority is made of, as far as it does not change while it waits.
struct Urgency {
  std::optional<std::int64_t> fixed = {};  // as an administrator set it: nothing else counts
  std::size_t sharer = 0;                  // position among the sharers
  Millis waited = {};                      // since it could have started; less than 0: not yet
  PriorityFactors factors = {};            // without age and fair share
  std::int64_t nice = 0;
};

// The priorities at one moment, and at later ones if only what runs goes on.
class PriorityModel {
 public:
  PriorityModel(PriorityWeights weights, Millis half_life, std::vector<Sharer> sharers);

  [[nodiscard]] const std::vector<Sharer>& sharers() const { return sharers_; }
  [[nodiscard]] const Standing& standing(std::size_t sharer) const { return standings_[sharer]; }
  [[nodiscard]] const PriorityWeights& weights() const { return weights_; }
  // The whole sum, for people; and the number alone, for passes over long queues.
  [[nodiscard]] Priority priority(const Urgency& urgency) const;
  [[nodiscard]] PriorityFactors factors(const Urgency& urgency) const;

  // Split for those that ask often: what never changes of it, and the rest.
  [[nodiscard]] std::int64_t fixed_part(const Urgency& urgency) const;
  [[nodiscard]] std::int64_t moving_part(const Urgency& urgency) const {
    return fair_[urgency.sharer] + age_part(urgency.waited + passed_);
  }

  void pass(Millis length);                     // so much later
  void hold(std::size_t sharer, Compute held);  // from now on, so much more
  void let_go(std::size_t sharer, Compute held);

 private:
  [[nodiscard]] std::int64_t age_part(Millis waited) const;
  void refresh();

  PriorityWeights weights_;
  Millis half_life_;
  std::vector<Sharer> sharers_;
  std::vector<Standing> standings_;
  std::vector<std::int64_t> fair_;  // weighted
  Millis passed_ = {};
};

}  // namespace aliquot::core
