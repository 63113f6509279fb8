// The drain of this node that is our own. The SPANK plugin drains the node, with words that nobody
// else uses (plugins/drain.h), when this agent has not answered a step or could not hold its share;
// the agent itself does when it has found what must keep jobs away, a broken GPU. Here it is undone
// when that is over. A drain for any other reason is the administrator's or Slurm's, and stays; and
// an administrator who resumes the node in spite of what we found is not contradicted.
//
// slurmctld is asked seldom: soon after the start, when a step says that it has drained the node,
// after a round that came late (the agent was stopped, or waited for somebody; who drained the node
// may not have reached it), and after trouble; then less and less often. Belongs to the thread that
// asks slurmctld, and waits for it.
#pragma once

#include <functional>
#include <string>

#include "base/clock.hpp"
#include "base/time.hpp"
#include "slurm/client.hpp"

namespace aliquot::slurm {

// Whether a node with this reason was drained by us.
bool is_own_drain(const std::string& reason);

class OwnDrain {
 public:
  // What is wrong with the node as slurmctld has it, in a few words; empty: nothing.
  using Judge = std::function<std::string(const SlurmNode&)>;

  OwnDrain(SlurmClient& slurm, std::string node, Clock& clock, Judge judge = {});

  // Often. fit: the agent could hold a share now.
  void round(bool fit);
  // A share could not be held here: what drained the node is not over for a while.
  void trouble();
  // The node may have been drained.
  void look_soon();
  // What keeps jobs away, in a few words; empty: nothing (any more).
  void keep_away(const std::string& why);

 private:
  // Whether slurmctld has answered, and nothing is left to do.
  bool look();
  // Whether it is done.
  bool drain(const SlurmNode& node, const std::string& why);
  bool undo(const SlurmNode& node);

  SlurmClient& slurm_;
  const std::string node_;
  Clock& clock_;
  const Judge judge_;
  MonoTime last_round_;
  MonoTime next_look_;
  MonoTime troubled_until_;
  Millis pause_ = Millis(0);
  std::string why_;        // jobs are kept away
  bool to_drain_ = false;  // and slurmctld does not know yet
  std::string judged_;     // what was drained for by judge_
};

}  // namespace aliquot::slurm
