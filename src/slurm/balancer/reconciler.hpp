// Brings slurmctld's weights to what weights.hpp wants of them, one round at a time, and tells
// people the samples in the nodes' `extra` field. It may be killed at any instant: what it needs to
// know afterwards is on disk before it changes anything. Rounds wait for slurmctld and so run on a
// worker (loop.hpp).
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "base/time.hpp"
#include "slurm/balancer/weights.hpp"
#include "slurm/client.hpp"
#include "slurm/samples.hpp"

namespace aliquot::slurm {

// The newest sample of a node.
struct HeardSample {
  NodeSample sample;
  MonoTime heard;
  std::int64_t encoded_s = 0;
};
using Heard = std::map<std::string, HeardSample, std::less<>>;

// How much of its GPUs is out of reach, on average: of each the time that it computes, or the
// part of its memory that processes of no job hold, whichever is more; all of one that is broken.
// Nothing where it has none.
std::optional<Compute> mean_load(const NodeSample& sample);

class Reconciler {
 public:
  struct Round {
    bool look = true;      // ask slurmctld anew how it stands, else trust what we set last
    bool patient = false;  // see PlanInput
    MonoTime now;
  };
  struct Outcome {
    std::size_t weights = 0;  // nodes whose weight was set
    std::size_t calls = 0;    // of update_nodes
    std::size_t resets = 0;   // nodes that had lost a weight of ours
  };

  Reconciler(SlurmClient& client, BalanceMode mode, std::filesystem::path state);

  // Reads the state file. One that cannot be read is an error once, and then as good as none.
  Result<void> recall();

  // On an error some nodes may have been changed and others not; the next round looks first.
  Result<Outcome> round(const Heard& heard, const Round& round);

  // The site's own weights, and nothing of ours in `extra`.
  Result<void> restore();

 private:
  Result<void> look();
  Result<void> set_weights(const Plan& plan, Outcome& outcome);
  Result<void> publish(const Heard& heard, MonoTime now, bool patient, Outcome& outcome);

  SlurmClient& client_;
  BalanceMode mode_;
  std::filesystem::path state_;
  Memory memory_;
  std::map<std::string, std::uint32_t, std::less<>> set_;  // what we set last
  struct Known {
    WeighedNode node;
    std::string extra;
    MonoTime told = MonoTime(-1'000'000);  // when `extra` was last written
  };
  std::map<std::string, Known, std::less<>> nodes_;
  bool looked_ = false;
  bool stored_ = false;
};

}  // namespace aliquot::slurm
