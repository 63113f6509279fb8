// What srun says of a step's end, in the words of Slurm's srun and stepd.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/time.hpp"
#include "cli/jobs/tasks.hpp"
#include "cli/voice.hpp"

namespace aliquot::cli {

class StepVoice {
 public:
  StepVoice(const StepPlan& plan, const Voice& voice) : plan_(plan), voice_(voice) {}

  [[nodiscard]] std::string name() const;  // StepId=7.0
  // The tasks of this wait status; nothing of those that went well.
  void ended(int status, const std::vector<std::size_t>& tasks, bool out_of_memory);
  void waiting(Millis patience) const;
  void cancelled(bool out_of_time, WallTime now) const;
  void out_of_memory(std::int64_t kills) const;

 private:
  void as_stepd(const std::string& text) const;

  const StepPlan& plan_;
  const Voice& voice_;
  bool force_said_ = false;
};

}  // namespace aliquot::cli
