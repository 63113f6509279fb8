// Doing what init has planned: runs its steps in order, or shows them.
#pragma once

#include <string>
#include <vector>

#include "base/result.hpp"
#include "slurm/init/steps.hpp"
#include "slurm/setup.hpp"

namespace aliquot::slurm {

class StepRunner {
 public:
  explicit StepRunner(bool apply) : apply_(apply) {}

  // Each that is not done yet; the first that fails ends it.
  Result<void> steps(const std::vector<Step>& list);
  // Writes them, or shows the differences. Their daemons start anew in a later step, if need be in
  // a later run: that is on record before anything is written.
  Result<void> files(const SetupPlan& plan);
  // Not shown. Of this user, and nobody else's to read.
  Result<void> secret(const std::string& path, const std::string& text, const std::string& user);

  [[nodiscard]] std::size_t changes() const { return changes_; }

 private:
  [[nodiscard]] bool is_done(const Step& step) const;
  Result<void> run(const Step& step);
  Result<void> mark(const std::string& path);

  bool apply_;
  std::size_t changes_ = 0;
  std::vector<std::string> stale_;  // daemons whose files would have changed, where nothing does
};

}  // namespace aliquot::slurm
