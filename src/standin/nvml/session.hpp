// The stand-in management library within one process: the machine it looks at, and the small pieces
// every query needs. It only reads, so it never takes a slot, and it does not wait for long for a
// lock that a stopped process holds.
#pragma once

#include <memory>

#include "standin/abi/nvml.hpp"
#include "standin/state/state.hpp"

#define NVML_API extern "C" __attribute__((visibility("default"))) nvmlReturn

namespace aliquot::standin {

inline constexpr char kDriverVersionText[] = "580.159.04";
inline constexpr int kCudaVersion = 13000;

// Counted: as many shutdowns as inits. Null between.
[[nodiscard]] State* nvml_state();
// The GPU behind a handle, checked to be one that still answers.
nvmlReturn nvml_gpu(nvmlDevice device, unsigned* index);
[[nodiscard]] nvmlDevice nvml_handle(unsigned index);

// Looks at the machine with the dead removed and the compute model up to date.
class Look {
 public:
  explicit Look(State& state);

 private:
  State::Guard guard_;
};

nvmlReturn put_text(const std::string& text, char* out, unsigned size);

template <class T, class V>
nvmlReturn put(T* out, V value) {
  if (out == nullptr) return kNvmlInvalidArgument;
  *out = static_cast<T>(value);
  return kNvmlSuccess;
}

}  // namespace aliquot::standin
