#include "slurm/agent/own_drain.hpp"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <utility>

#include "slurm/plugins/drain.h"

namespace aliquot::slurm {
namespace {

// Rounds come several times a second; a step gives up after some seconds. In between lies what we
// can have missed.
constexpr Millis kLate = Millis(1500);
// The drain of a step that gave up may come after our first look.
constexpr Millis kFirstPause = seconds(2);
constexpr Millis kLongestPause = seconds(60);

bool is_own(const SlurmNode& node) {
  return node.state.find("DRAIN") != std::string::npos &&
         (node.reason == ALIQUOT_DRAIN_SILENT || node.reason == ALIQUOT_DRAIN_UNFIT);
}

}  // namespace

OwnDrain::OwnDrain(SlurmClient& slurm, std::string node, Clock& clock)
    : slurm_(slurm),
      node_(std::move(node)),
      clock_(clock),
      last_round_(clock.mono()),
      next_look_(last_round_),
      troubled_until_(last_round_) {}

void OwnDrain::trouble() { troubled_until_ = clock_.mono() + kLongestPause; }

void OwnDrain::round(bool fit) {
  const MonoTime now = clock_.mono();
  if (now - last_round_ > kLate) {
    next_look_ = now;
    pause_ = Millis(0);
  }
  last_round_ = now;
  if (!fit || now < next_look_ || now < troubled_until_) return;
  look();
  pause_ = std::clamp(pause_ * 2, kFirstPause, kLongestPause);
  last_round_ = clock_.mono();  // what slurmctld took for it
  next_look_ = last_round_ + pause_;
}

void OwnDrain::look() {
  const auto node = slurm_.node(node_);
  if (!node || !is_own(*node)) return;
  if (const auto done = slurm_.undrain_node(node_); !done) {
    spdlog::warn("cannot undo the drain of {} ({}): {}", node_, node->reason, done.error().message);
    return;
  }
  spdlog::info("{} takes jobs again: it was drained, as {}", node_, node->reason);
  pause_ = Millis(0);
}

}  // namespace aliquot::slurm
