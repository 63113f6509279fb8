// A bar on stderr while something takes long, if a person is watching: nothing at all otherwise.
#pragma once

#include <cstdint>
#include <string>

#include "base/clock.hpp"

namespace aliquot::cli {

class ProgressBar {
 public:
  explicit ProgressBar(const Clock& clock);
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;
  ~ProgressBar();  // wipes it off

  void show(std::int64_t done_per_mille);

 private:
  const Clock& clock_;
  MonoTime start_;
  bool watched_;
  std::string shown_;
};

}  // namespace aliquot::cli
