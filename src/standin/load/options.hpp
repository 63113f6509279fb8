// What the load program is asked to do.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace aliquot::standin {

// Documented in the help text; scripts depend on them.
enum class ExitCode : int {
  ok = 0,
  usage = 2,
  no_device = 3,
  out_of_memory = 4,
  cuda_error = 5,
  verify_failed = 6,
};

struct Options {
  int device = 0;
  std::uint64_t memory = 0;
  std::uint64_t step = 64ULL << 20;
  std::string kind = "alloc";
  double seconds = 0;
  double busy = 1;            // fraction of the time with work enqueued; 0 = only hold the memory
  std::uint64_t kernels = 0;  // a fixed amount of work instead of a time
  double pause = 0;           // seconds of rest behind each of them
  std::uint64_t iterations = 0;  // per kernel; 0 = as many as take about 2 ms
  unsigned blocks = 0;           // per kernel; 0 = fill the GPU
  bool grow = false;
  bool fault = false;
  bool verify = false;
  bool json = false;
  bool help = false;
};

// Nothing when it printed what is wrong.
[[nodiscard]] std::optional<Options> parse_options(int argc, char** argv);
[[nodiscard]] const char* help_text();

}  // namespace aliquot::standin
