// An interactive job, for srun and salloc: asked for, waited for with Slurm's messages, and kept as
// long as this lives. The job hangs on a connection; when the daemon goes away and comes back, the
// job is attached to a new one.
#pragma once

#include <functional>
#include <memory>
#include <optional>

#include "api/types.hpp"
#include "cli/daemon_client.hpp"
#include "cli/option_set.hpp"
#include "cli/voice.hpp"

namespace aliquot::cli {

class HeldAllocation {
 public:
  // Says why not, if not.
  static std::optional<HeldAllocation> ask(const OptionSet& options, const api::JobSpec& job,
                                           const Voice& voice);

  HeldAllocation(HeldAllocation&&) noexcept;
  HeldAllocation& operator=(HeldAllocation&&) noexcept;
  ~HeldAllocation();

  [[nodiscard]] const api::Allocation& answer() const { return answer_; }

  // Once, from another thread, when the daemon ends the job: at its time limit, or for scancel.
  void on_ending(std::function<void(const api::JobInfo&)> told);

  // Says how it ended, and lets go.
  void finish(const api::StepEnd& end);

 private:
  class Keeper;
  class Watch;
  HeldAllocation(std::unique_ptr<Keeper> keeper, api::Allocation answer);

  std::unique_ptr<Keeper> keeper_;
  std::unique_ptr<Watch> watch_;
  api::Allocation answer_;
};

}  // namespace aliquot::cli
