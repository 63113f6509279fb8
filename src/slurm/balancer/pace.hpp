// How often the balancer may bother slurmctld: the longer it takes to answer, the more seldom.
// Pure.
//
// One slow answer says nothing: slurmctld was away or starting, and is quick again afterwards, just
// when its weights have to be looked at. So what counts is the quicker of the last two.
#pragma once

#include <algorithm>

#include "base/time.hpp"

namespace aliquot::slurm {

class Pace {
 public:
  static constexpr Millis kDistance = Millis(200);  // between the end of a round and the next
  static constexpr Millis kLookEvery = seconds(1);  // at the weights slurmctld has
  static constexpr Millis kLongest = seconds(30);

  // A round that was answered took so long.
  void note(Millis took, bool looked) { (looked ? looks_ : rounds_).add(took); }

  // From the end of that round on.
  [[nodiscard]] Millis until_round() const {
    return std::clamp(std::max(rounds_.usual(), looks_.usual()) * kRoundShare, kDistance, kLongest);
  }
  [[nodiscard]] Millis until_look() const {
    return std::clamp(looks_.usual() * kLookShare, kLookEvery, kLongest);
  }

 private:
  static constexpr std::int64_t kRoundShare = 5;  // a round may take 1/5 of the time
  static constexpr std::int64_t kLookShare = 20;  // looking 1/20

  class LastTwo {
   public:
    void add(Millis took) {
      before_ = last_;
      last_ = took;
    }
    [[nodiscard]] Millis usual() const { return std::min(before_, last_); }

   private:
    Millis before_ = Millis(0);
    Millis last_ = Millis(0);
  };

  LastTwo rounds_;
  LastTwo looks_;
};

}  // namespace aliquot::slurm
