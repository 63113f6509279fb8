#include "slurm/agent/own_drain.hpp"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <utility>

#include "slurm/plugins/drain.h"

namespace aliquot::slurm {
namespace {

// Rounds come several times a second, and a step waits for some seconds before it gives up. After a
// round that is later than this, a step may have given up meanwhile.
constexpr Millis kLate = Millis(1500);
// A step that gave up may drain the node only after our first look.
constexpr Millis kFirstPause = seconds(2);
constexpr Millis kLongestPause = seconds(60);

bool is_drained(const SlurmNode& node) { return node.state.find("DRAIN") != std::string::npos; }

}  // namespace

bool is_own_drain(const std::string& reason) {
  return reason == ALIQUOT_DRAIN_SILENT || reason == ALIQUOT_DRAIN_UNFIT ||
         reason.starts_with(ALIQUOT_DRAIN_FOUND);
}

OwnDrain::OwnDrain(SlurmClient& slurm, std::string node, Clock& clock, Judge judge)
    : slurm_(slurm),
      node_(std::move(node)),
      clock_(clock),
      judge_(std::move(judge)),
      last_round_(clock.mono()),
      next_look_(last_round_),
      troubled_until_(last_round_) {}

void OwnDrain::trouble() { troubled_until_ = clock_.mono() + kLongestPause; }

void OwnDrain::look_soon() {
  next_look_ = clock_.mono();
  pause_ = Millis(0);
}

void OwnDrain::keep_away(const std::string& why) {
  if (why == why_) return;
  why_ = why;
  to_drain_ = !why.empty();
  look_soon();
}

void OwnDrain::round(bool fit) {
  const MonoTime now = clock_.mono();
  if (now - last_round_ > kLate) look_soon();
  last_round_ = now;
  if (now < next_look_) return;
  if (!to_drain_ && (!fit || !why_.empty() || now < troubled_until_)) return;
  // One that is too busy to answer is no reason to look less often.
  pause_ = look() ? std::clamp(pause_ * 2, kFirstPause, kLongestPause) : kFirstPause;
  last_round_ = clock_.mono();  // the time that slurmctld took does not make us late
  next_look_ = last_round_ + pause_;
}

bool OwnDrain::look() {
  const auto node = slurm_.node(node_);
  if (!node) return node.error().code == Error::Code::not_found;
  const std::string found = judge_ ? judge_(*node) : "";
  if (found.empty()) judged_.clear();  // what breaks again is found again
  if (to_drain_) {
    to_drain_ = !drain(*node, why_);
  } else if (!found.empty()) {
    if (found != judged_ && drain(*node, found)) judged_ = found;
  } else if (is_drained(*node) && is_own_drain(node->reason)) {
    return undo(*node);
  }
  return true;
}

bool OwnDrain::drain(const SlurmNode& node, const std::string& why) {
  // While it is somebody else's: his reason counts. When he is done with it, ours does.
  if (is_drained(node) && !is_own_drain(node.reason)) return false;
  const std::string reason = ALIQUOT_DRAIN_FOUND + why;
  if (const auto done = slurm_.drain_node(node_, reason); !done) {
    spdlog::warn("cannot drain {} ({}): {}", node_, why, done.error().message);
    return false;
  }
  spdlog::warn("{} takes no more jobs: {}", node_, why);
  return true;
}

bool OwnDrain::undo(const SlurmNode& node) {
  if (const auto done = slurm_.undrain_node(node_); !done) {
    spdlog::warn("cannot undo the drain of {} ({}): {}", node_, node.reason, done.error().message);
    return false;
  }
  spdlog::info("{} takes jobs again: it was drained, as {}", node_, node.reason);
  pause_ = Millis(0);
  return true;
}

}  // namespace aliquot::slurm
