// The balancer's life: samples come in, weights go out. One thread listens; rounds, which wait for
// slurmctld, are a worker's. A sample leads to a round within milliseconds. After a round there is
// a pause; it is the longer, the longer slurmctld takes for rounds (pace.hpp).
#pragma once

#include <filesystem>

#include "base/clock.hpp"
#include "base/result.hpp"
#include "slurm/balancer/weights.hpp"
#include "slurm/client.hpp"
#include "slurm/samples.hpp"

namespace aliquot::slurm {

struct LoopOptions {
  BalanceMode mode = BalanceMode::spread;
  std::filesystem::path state;
};

// Until the descriptor `stop` can be read; then puts the site's weights back. An error: they could
// not be put back. A call into libslurm may then still be under way, and the process should end
// without waiting for it.
Result<void> run_loop(SampleReceiver& receiver, SlurmClient& client, const LoopOptions& options,
                      const Clock& clock, int stop);

}  // namespace aliquot::slurm
