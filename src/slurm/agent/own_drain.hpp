// Undoes the drain of this node that is our own: the SPANK plugin drains the node, with words that
// nobody else uses (plugins/drain.h), when this agent has not answered a step or could not hold its
// share. A drain for any other reason is the administrator's or Slurm's, and stays.
//
// slurmctld is asked seldom: soon after the start, after a round that came late (the agent was
// stopped, or waited for somebody), and after trouble; then less and less often. Belongs to the
// agent's thread, and waits for slurmctld.
#pragma once

#include <string>

#include "base/clock.hpp"
#include "base/time.hpp"
#include "slurm/client.hpp"

namespace aliquot::slurm {

class OwnDrain {
 public:
  OwnDrain(SlurmClient& slurm, std::string node, Clock& clock);

  // Often. fit: the agent could hold a share now.
  void round(bool fit);
  // A share could not be held here: what drained the node is not over for a while.
  void trouble();

 private:
  void look();

  SlurmClient& slurm_;
  const std::string node_;
  Clock& clock_;
  MonoTime last_round_;
  MonoTime next_look_;
  MonoTime troubled_until_;
  Millis pause_ = Millis(0);
};

}  // namespace aliquot::slurm
