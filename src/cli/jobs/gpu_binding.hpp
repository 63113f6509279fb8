// Which of its step's GPUs each task sees: --gpu-bind, and what --gpus-per-task and
// --ntasks-per-gpu say of it where that is not given. GPUs are counted from 0 among those of the
// step.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "cli/option_set.hpp"

namespace aliquot::cli {

struct GpuBinding {
  enum class Kind : std::uint8_t {
    none,      // every task sees all of them
    single,    // one; `count` tasks on the first, then as many on the second, …
    per_task,  // `count` each, one task after the other
    chosen,    // `lists`, one for each task, and then from the beginning again
  };
  Kind kind = Kind::none;
  std::size_t count = 1;
  std::vector<std::vector<std::size_t>> lists = {};
  bool verbose = false;  // say which task sees what

  // Of so many GPUs; an error where a task is bound to one that the step does not have.
  [[nodiscard]] Result<std::vector<std::size_t>> gpus_of(std::size_t task, std::size_t gpus) const;
};

// `[verbose,]closest|none|single:n|per_task:n|map_gpu:list|mask_gpu:list`; every GPU of one machine
// is close.
Result<GpuBinding> parse_gpu_binding(std::string_view text);

Parsed<GpuBinding> gpu_binding_of(const OptionSet& options);

}  // namespace aliquot::cli
