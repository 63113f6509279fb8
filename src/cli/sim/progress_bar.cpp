#include "cli/sim/progress_bar.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>

namespace aliquot::cli {

ProgressBar::ProgressBar(const Clock& clock)
    : clock_(clock), start_(clock.mono()), watched_(::isatty(STDERR_FILENO) == 1) {}

ProgressBar::~ProgressBar() {
  if (watched_ && !shown_.empty()) std::fputs("\r\033[K", stderr);
}

void ProgressBar::show(std::int64_t done_per_mille) {
  if (!watched_) return;
  constexpr std::int64_t kWidth = 40;
  const auto full = static_cast<std::size_t>(done_per_mille * kWidth / 1000);
  const std::int64_t spent = (clock_.mono() - start_).value() / 1000;
  auto line = fmt::format("\r[{:.<{}}] {:3}% {} s", std::string(full, '#'), kWidth,
                          done_per_mille / 10, spent);
  if (line == shown_) return;
  shown_ = std::move(line);
  std::fputs(shown_.c_str(), stderr);
  std::fflush(stderr);
}

}  // namespace aliquot::cli
